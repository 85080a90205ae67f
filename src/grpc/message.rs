//! The one message of a call, passed on when it is whole.
//!
//! tonic takes memory for as many bytes as the first five claim that there will be. A caller who
//! claims megabytes and sends a few bytes would so take a thousand times what it gives.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame};
use tonic::Status;
use tower::BoxError;

use super::body::{Arriving, NotWhole};
use crate::memory_budget::MemoryBudget;

/// tonic's bound on a message. It refuses what claims to have more.
const MESSAGE_BYTES_MAX: usize = 4 << 20;

/// A byte that says whether it is compressed, and four for the length.
const HEAD_BYTES: usize = 5;

/// A body that has one message at most, in one frame.
pub(super) struct OneMessage<B> {
    arriving: Arriving<B>,
    so_far: BytesMut,
    is_given: bool,
}

impl<B> OneMessage<B> {
    pub(super) fn new(body: B, budget: MemoryBudget) -> Self {
        Self { arriving: Arriving::new(body, budget), so_far: BytesMut::new(), is_given: false }
    }

    /// The message, if it is whole with these.
    fn with(&mut self, bytes: Bytes) -> Result<Option<Bytes>, Status> {
        if self.is_given {
            return if bytes.is_empty() { Ok(None) } else { Err(too_many()) };
        }
        if !self.so_far.is_empty() {
            self.so_far.extend_from_slice(&bytes);
            let is_whole = is_whole(&self.so_far)?;
            return Ok(is_whole.then(|| self.give()));
        }
        // Nearly all are whole at once, and are not copied.
        if is_whole(&bytes)? {
            self.is_given = true;
            return Ok(Some(bytes));
        }
        self.so_far.extend_from_slice(&bytes);
        Ok(None)
    }

    fn give(&mut self) -> Bytes {
        self.is_given = true;
        std::mem::take(&mut self.so_far).freeze()
    }
}

/// Whether these are a message, or are refused before they are.
fn is_whole(bytes: &[u8]) -> Result<bool, Status> {
    let Some((&[_, a, b, c, d], message)) = bytes.split_first_chunk::<HEAD_BYTES>() else {
        return Ok(false);
    };
    let claimed = u32::from_be_bytes([a, b, c, d]) as usize;
    if claimed > MESSAGE_BYTES_MAX {
        return Ok(true);
    }
    if message.len() > claimed {
        return Err(too_many());
    }
    Ok(message.len() == claimed)
}

fn not_whole(why: NotWhole) -> Status {
    match why {
        NotWhole::Full => Status::resource_exhausted(why.to_string()),
        NotWhole::Late => Status::deadline_exceeded(why.to_string()),
        NotWhole::Broken(error) => Status::from_error(error),
    }
}

fn too_many() -> Status {
    Status::unimplemented("a call has one message")
}

impl<B: Body<Data = Bytes, Error: Into<BoxError>> + Unpin> Body for OneMessage<B> {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        loop {
            let Some(frame) = ready!(Pin::new(&mut self.arriving).poll_frame(context)) else {
                // tonic says what is missing.
                let rest = Some(self.give()).filter(|rest| !rest.is_empty());
                return Poll::Ready(rest.map(|rest| Ok(Frame::data(rest))));
            };
            // Trailers of callers say nothing.
            let Ok(bytes) = frame.map_err(not_whole)?.into_data() else { continue };
            if let Some(message) = self.with(bytes)? {
                return Poll::Ready(Some(Ok(Frame::data(message))));
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.so_far.is_empty() && self.arriving.is_end_stream()
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt, StreamBody};
    use metrics::Counter;

    use super::*;

    /// What is passed on of these chunks.
    async fn passed(chunks: &[&'static [u8]]) -> Result<Vec<Bytes>, tonic::Code> {
        let frames: Vec<_> = chunks
            .iter()
            .map(|chunk| Ok::<_, BoxError>(Frame::data(Bytes::from(*chunk))))
            .collect();
        let body = StreamBody::new(tokio_stream::iter(frames));
        let mut message = OneMessage::new(body, MemoryBudget::new(0, Counter::noop()));
        let mut passed = vec![];
        while let Some(frame) = message.frame().await {
            passed.push(frame.map_err(|status| status.code())?.into_data().unwrap());
        }
        Ok(passed)
    }

    #[tokio::test]
    async fn a_message_is_passed_on_when_it_is_whole() {
        for chunks in [
            &[&b"\0\0\0\0\x03abc"[..]][..],
            &[b"\0\0\0\0\x03abc", b""],
            &[b"\0\0\0", b"\0\x03", b"ab", b"", b"c"],
        ] {
            assert_eq!(passed(chunks).await.unwrap(), ["\0\0\0\0\x03abc"], "{chunks:?}");
        }
        assert_eq!(passed(&[b"\0\0\0\0\0"]).await.unwrap(), ["\0\0\0\0\0"]);
    }

    #[tokio::test]
    async fn what_is_not_one_message_is_refused_here_or_by_tonic() {
        let refused = Err(tonic::Code::Unimplemented);
        assert_eq!(passed(&[b"\0\0\0\0\x01ab"]).await, refused);
        assert_eq!(passed(&[b"\0\0\0\0\x01a", b"\0\0\0\0\0"]).await, refused);
        assert_eq!(passed(&[b"\0\x40\0\0\0abc"]).await.unwrap(), ["\0\x40\0\0\0abc"]);
        assert_eq!(passed(&[b"\0\0\0\0\x03", b"ab"]).await.unwrap(), ["\0\0\0\0\x03ab"]);
        assert_eq!(passed(&[]).await.unwrap(), [""; 0]);
    }
}
