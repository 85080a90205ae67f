//! Reads the one message of a unary call, and frames the answer.
//!
//! tonic's own handler keeps a decoder with a buffer per call, and allocates as many bytes as a
//! message's header claims. Here a message is used in place where one frame contains all of it,
//! which is nearly always so.

use std::future::poll_fn;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Response, header};
use http_body::{Body, Frame};
use prost::Message;
use tonic::Status;
use tonic::metadata::MetadataValue;
use tower::BoxError;

use super::refusal::{Reason, refuse};
use crate::body::{BodyError, BoundedBody, MESSAGE_BYTES_MAX};

/// Length of a message's header: one byte for the compression flag, four for the length.
const HEAD_BYTES: usize = 5;

/// The compression that a call's headers announce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    /// Messages are not compressed.
    Identity,
    /// Messages may be compressed, which is not supported.
    Unknown,
}

impl Encoding {
    /// Reads the headers of a call.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        match headers.get("grpc-encoding") {
            Some(other) if other != "identity" => Self::Unknown,
            Some(_) | None => Self::Identity,
        }
    }
}

/// Receives the message of a call and strips its header.
///
/// # Errors
/// The body is not exactly one message, is too long or compressed, or was not complete in time.
pub(super) async fn receive<B>(
    mut arriving: BoundedBody<B>,
    encoding: Encoding,
) -> Result<Bytes, Status>
where
    B: Body<Data = Bytes, Error: Into<BoxError>> + Unpin,
{
    let mut so_far = BytesMut::new();
    let mut message = None;
    while let Some(bytes) = next(&mut arriving).await? {
        if bytes.is_empty() {
            continue;
        }
        if message.is_some() {
            return Err(too_many());
        }
        if so_far.is_empty() && is_whole(&bytes, encoding)? {
            // Nearly all messages arrive in one frame and are not copied.
            message = Some(bytes);
        } else {
            so_far.extend_from_slice(&bytes);
            message = is_whole(&so_far, encoding)?.then(|| mem::take(&mut so_far).freeze());
        }
        if message.is_some() && arriving.is_end_stream() {
            break;
        }
    }
    match message {
        Some(mut message) => {
            message.advance(HEAD_BYTES);
            Ok(message)
        }
        None if so_far.is_empty() => Err(malformed("the call has no message")),
        None => Err(malformed("the message ends before the length that it claims")),
    }
}

/// The next data frame. Trailers from callers are ignored.
async fn next<B>(arriving: &mut BoundedBody<B>) -> Result<Option<Bytes>, Status>
where
    B: Body<Data = Bytes, Error: Into<BoxError>> + Unpin,
{
    while let Some(frame) = poll_fn(|context| Pin::new(&mut *arriving).poll_frame(context)).await {
        if let Ok(bytes) = frame.map_err(not_whole)?.into_data() {
            return Ok(Some(bytes));
        }
    }
    Ok(None)
}

/// Whether `bytes` are one complete message. A message that is too long or compressed is refused as
/// soon as its header is there.
fn is_whole(bytes: &[u8], encoding: Encoding) -> Result<bool, Status> {
    let Some((&[compressed, a, b, c, d], message)) = bytes.split_first_chunk::<HEAD_BYTES>() else {
        return Ok(false);
    };
    match compressed {
        0 => {}
        1 if encoding == Encoding::Unknown => return Err(is_compressed()),
        other => {
            let message =
                format!("{other} before the message's length, and no grpc-encoding for it");
            return Err(malformed(message));
        }
    }
    let claimed = u32::from_be_bytes([a, b, c, d]) as usize;
    if claimed > MESSAGE_BYTES_MAX {
        let message = format!("the message has {claimed} bytes; {MESSAGE_BYTES_MAX} are the most");
        return Err(refuse(Reason::MessageTooLong, message));
    }
    if message.len() > claimed {
        return Err(too_many());
    }
    Ok(message.len() == claimed)
}

fn not_whole(why: BodyError) -> Status {
    match why {
        BodyError::Full => refuse(Reason::Overloaded, why.to_string()),
        BodyError::Late => refuse(Reason::MessageTooSlow, why.to_string()),
        BodyError::Broken(error) => Status::from_error(error),
    }
}

fn too_many() -> Status {
    refuse(Reason::NotSupported, "a call has one message")
}

fn malformed(message: impl Into<String>) -> Status {
    refuse(Reason::MalformedCall, message)
}

/// Names the supported encoding, as the gRPC specification asks.
fn is_compressed() -> Status {
    let mut status = refuse(Reason::NotSupported, "the message is compressed; send it as it is");
    status.metadata_mut().insert("grpc-accept-encoding", MetadataValue::from_static("identity"));
    status
}

/// A response with this message and status OK.
pub(super) fn respond(message: &impl Message) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::Message(framed(message)));
    let kind = HeaderValue::from_static("application/grpc");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

fn framed(message: &impl Message) -> Bytes {
    let len = message.encoded_len();
    let mut bytes = Vec::with_capacity(HEAD_BYTES + len);
    bytes.put_u8(0);
    // The bounds of a request keep its answer far below 4 GiB.
    bytes.put_u32(u32::try_from(len).unwrap_or(u32::MAX));
    message.encode_raw(&mut bytes);
    bytes.into()
}

/// The body of a response.
#[derive(Debug, Default)]
pub enum ResponseBody {
    /// One framed message; status OK follows.
    Message(Bytes),
    /// Status OK, after the message was sent.
    Ok,
    /// Nothing more.
    #[default]
    Ended,
    /// A body made by tonic's own services.
    Tonic(tonic::body::Body),
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Self::Tonic(body) = &mut *self {
            return Pin::new(body).poll_frame(context);
        }
        let (frame, next) = match mem::take(&mut *self) {
            Self::Message(bytes) => (Frame::data(bytes), Self::Ok),
            Self::Ok => (Frame::trailers(ok()), Self::Ended),
            Self::Ended | Self::Tonic(_) => return Poll::Ready(None),
        };
        *self = next;
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Message(_) | Self::Ok => false,
            Self::Ended => true,
            Self::Tonic(body) => body.is_end_stream(),
        }
    }
}

fn ok() -> HeaderMap {
    let mut trailers = HeaderMap::with_capacity(1);
    trailers.insert(Status::GRPC_STATUS, HeaderValue::from_static("0"));
    trailers
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt, StreamBody};
    use metrics::Counter;
    use tonic::Code;

    use super::*;
    use crate::memory_budget::MemoryBudget;

    /// Receives a message from these frames.
    async fn received(chunks: &[&'static [u8]]) -> Result<Bytes, Code> {
        received_in(Encoding::Identity, chunks).await
    }

    async fn received_in(encoding: Encoding, chunks: &[&'static [u8]]) -> Result<Bytes, Code> {
        let frames: Vec<_> = chunks
            .iter()
            .map(|chunk| Ok::<_, BoxError>(Frame::data(Bytes::from(*chunk))))
            .collect();
        let body = StreamBody::new(tokio_stream::iter(frames));
        let budget = MemoryBudget::new(0, Counter::noop());
        receive(BoundedBody::new(body, budget), encoding).await.map_err(|status| status.code())
    }

    #[tokio::test]
    async fn a_message_is_received_in_however_many_pieces() {
        for chunks in [
            &[&b"\0\0\0\0\x03abc"[..]][..],
            &[b"\0\0\0\0\x03abc", b""],
            &[b"\0\0\0", b"\0\x03", b"ab", b"", b"c"],
        ] {
            assert_eq!(received(chunks).await.unwrap(), "abc", "{chunks:?}");
        }
        assert_eq!(received(&[b"\0\0\0\0\0"]).await.unwrap(), "");
    }

    #[tokio::test]
    async fn what_is_not_one_message_is_refused() {
        for (chunks, code) in [
            (&[&b"\0\0\0\0\x01ab"[..]][..], Code::Unimplemented),
            (&[b"\0\0\0\0\x01a", b"\0\0\0\0\0"], Code::Unimplemented),
            (&[b"\x01\0\0\0\x01a"], Code::Internal),
            (&[b"\x02\0\0\0\x01a"], Code::Internal),
            (&[b"\0\x40\0\0\0abc"], Code::OutOfRange),
            (&[b"\0\0\0\0\x03", b"ab"], Code::Internal),
            (&[b"\0\0"], Code::Internal),
            (&[], Code::Internal),
        ] {
            assert_eq!(received(chunks).await, Err(code), "{chunks:?}");
        }
        let compressed = received_in(Encoding::Unknown, &[b"\x01\0\0\0\x01a"]).await;
        assert_eq!(compressed, Err(Code::Unimplemented));
        let as_it_is = received_in(Encoding::Unknown, &[b"\0\0\0\0\x01a"]).await;
        assert_eq!(as_it_is.unwrap(), "a");
    }

    #[tokio::test]
    async fn an_answer_is_its_message_and_then_ok() {
        let mut body = respond(&String::from("abc")).into_body();
        let message = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(message, "\0\0\0\0\x05\x0a\x03abc");
        assert!(!body.is_end_stream());
        let trailers = body.frame().await.unwrap().unwrap().into_trailers().unwrap();
        assert_eq!(trailers["grpc-status"], "0");
        assert!(body.is_end_stream() && body.frame().await.is_none());
    }
}
