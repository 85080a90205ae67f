//! Request bodies, with bounds on their time and memory.
//!
//! A body whose bytes are there when it is polled costs nothing here, which is nearly always so.
//! Once a body has to be waited for, it reserves memory from a budget shared by all such bodies and
//! must be complete within a deadline. Otherwise a caller could hold any amount of memory by
//! sending slowly.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame};
use tokio::time::{Sleep, sleep};
use tower::BoxError;

use crate::memory_budget::{Full, Reservation, Share};

/// How long a message may take from the start of its call until it is complete.
pub const ARRIVAL_MAX: Duration = Duration::from_secs(5);

/// The longest message in bytes, over gRPC and over HTTP.
pub const MESSAGE_BYTES_MAX: usize = 4 << 20;

/// Bytes reserved for the waiting itself.
const WAITING_BYTES: usize = 256;

/// Why a body is not complete.
#[derive(Debug)]
pub enum BodyError {
    /// The budget for slow messages is used up.
    Full,
    /// It was not complete within [`ARRIVAL_MAX`].
    Late,
    /// Its connection broke, or its caller cancelled the call.
    Broken(BoxError),
}

/// A body with bounds on its time and memory.
pub struct BoundedBody<B> {
    body: B,
    share: Share,
    /// Bytes to reserve for the frames received so far.
    came: usize,
    waiting: Option<Wait>,
}

/// What a body holds once it has been waited for.
struct Wait {
    reservation: Reservation,
    end: Pin<Box<Sleep>>,
}

impl<B> BoundedBody<B> {
    /// Wraps a body, which reserves from `share` if it has to be waited for.
    pub const fn new(body: B, share: Share) -> Self {
        Self { body, share, came: 0, waiting: None }
    }
}

impl<B: Body<Data = Bytes, Error: Into<BoxError>> + Unpin> BoundedBody<B> {
    fn came(&mut self, bytes: usize) -> Result<(), BodyError> {
        // The buffer that collects the frames grows by doubling.
        let bytes = 2 * bytes;
        self.came += bytes;
        if let Some(waiting) = &mut self.waiting {
            waiting.reservation.grow(bytes)?;
        }
        Ok(())
    }

    /// Registers for the next frame, or ends with an error when the deadline has passed.
    fn wait(&mut self, context: &mut Context<'_>) -> Poll<BodyError> {
        if self.waiting.is_none() {
            let reservation = match self.share.reserve(WAITING_BYTES + self.came) {
                Ok(reservation) => reservation,
                Err(full) => return Poll::Ready(full.into()),
            };
            self.waiting = Some(Wait { reservation, end: Box::pin(sleep(ARRIVAL_MAX)) });
        }
        if let Some(waiting) = &mut self.waiting {
            ready!(waiting.end.as_mut().poll(context));
        }
        Poll::Ready(BodyError::Late)
    }
}

impl From<Full> for BodyError {
    fn from(_: Full) -> Self {
        Self::Full
    }
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => f.write_str("too many messages arrive slowly; call again later"),
            Self::Late => write!(f, "no whole message came in {ARRIVAL_MAX:?}"),
            Self::Broken(error) => write!(f, "the message broke off: {error}"),
        }
    }
}

impl std::error::Error for BodyError {}

impl<B: Body<Data = Bytes, Error: Into<BoxError>> + Unpin> Body for BoundedBody<B> {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match Pin::new(&mut self.body).poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => {
                let came = frame.data_ref().map_or(0, Bytes::len);
                Poll::Ready(Some(self.came(came).map(|()| frame)))
            }
            Poll::Ready(Some(Err(error))) => {
                Poll::Ready(Some(Err(BodyError::Broken(error.into()))))
            }
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending => self.wait(context).map(|why| Some(Err(why))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::convert::Infallible;
    use std::future::poll_fn;

    use metrics::Counter;

    use super::*;
    use crate::memory_budget::MemoryBudget;

    /// Frames of a body; `None` stands for one that has to be waited for.
    struct Chunks(VecDeque<Option<&'static [u8]>>);

    impl Body for Chunks {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            match self.0.pop_front() {
                Some(Some(chunk)) => Poll::Ready(Some(Ok(Frame::data(chunk.into())))),
                Some(None) => Poll::Pending,
                None => Poll::Ready(None),
            }
        }
    }

    fn arriving(budget: &MemoryBudget, chunks: &[Option<&'static [u8]>]) -> BoundedBody<Chunks> {
        BoundedBody::new(Chunks(chunks.iter().copied().collect()), budget.share(None))
    }

    /// Whether the next frame is refused because the budget is used up.
    fn is_refused(body: &mut BoundedBody<Chunks>) -> bool {
        let mut context = Context::from_waker(std::task::Waker::noop());
        let frame = Pin::new(body).poll_frame(&mut context);
        matches!(frame, Poll::Ready(Some(Err(BodyError::Full))))
    }

    #[tokio::test]
    async fn a_message_that_is_there_takes_no_room() {
        let budget = MemoryBudget::new(0, Counter::noop());
        let mut body = arriving(&budget, &[Some(b"whole")]);
        assert!(!is_refused(&mut body) && !is_refused(&mut body));
        assert_eq!(budget.used(), 0);
    }

    /// For the first three bytes of two messages. Small messages may exceed a budget by an eighth.
    const ROOM_FOR_TWO: usize = 2 * (WAITING_BYTES + 6) + 1;

    #[tokio::test]
    async fn a_message_that_is_waited_for_takes_room_until_it_is_dropped() {
        let budget = MemoryBudget::new(ROOM_FOR_TWO * 8 / 9, Counter::noop());
        let slow = || arriving(&budget, &[Some(b"abc"), None, Some(b"d"), Some(b"e")]);
        let (mut one, mut other) = (slow(), slow());
        for body in [&mut one, &mut other] {
            assert!(!is_refused(body) && !is_refused(body));
        }
        assert_eq!(budget.used(), 2 * (WAITING_BYTES + 6));
        assert!(is_refused(&mut one));
        drop(other);
        assert!(!is_refused(&mut one));
        drop(one);
        assert_eq!(budget.used(), 0);
    }

    #[tokio::test]
    async fn a_message_that_never_ends_is_given_up() {
        let budget = MemoryBudget::new(1 << 20, Counter::noop());
        let mut body = arriving(&budget, &[None, None, None, None]);
        assert!(!is_refused(&mut body));
        body.waiting.as_mut().unwrap().end = Box::pin(sleep(Duration::ZERO));
        let ended = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await;
        assert!(matches!(ended, Some(Err(BodyError::Late))));
    }
}
