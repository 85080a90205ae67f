//! A connection's byte stream with timeouts.
//!
//! A peer must send its first bytes within a deadline, and must read what is written to it. A peer
//! that does neither would hold a connection and its buffers for ever. HTTP/2 streams also pass
//! through a frame counter that ends floods.

use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use super::frames::Frames;

/// Bytes that a peer must send first: HTTP/2's preface with a frame header behind it, and the
/// shortest request of HTTP/1.
const HTTP2_HELLO: usize = 33;
const HTTP1_HELLO: usize = 16;

/// How long a peer may take to send them.
const HELLO_MAX: Duration = Duration::from_secs(5);

/// How long a write may make no progress.
const STALL_MAX: Duration = Duration::from_secs(20);

/// The error kind of a read after too many frames beside calls.
pub(super) const FLOOD: ErrorKind = ErrorKind::QuotaExceeded;

/// A stream with timeouts on its first bytes and on its writes.
pub(super) struct GuardedStream<S> {
    stream: S,
    /// Runs until the peer has sent its first bytes.
    hello: Option<Hello>,
    /// Runs while a write makes no progress.
    stall: Option<Pin<Box<Sleep>>>,
    /// Counts frames, for HTTP/2 only.
    frames: Option<Frames>,
}

struct Hello {
    left: usize,
    end: Pin<Box<Sleep>>,
}

impl<S> GuardedStream<S> {
    /// The peer must speak HTTP/1.
    pub(super) fn http1(stream: S) -> Self {
        Self { stream, hello: Some(Hello::of(HTTP1_HELLO)), stall: None, frames: None }
    }

    /// The peer must speak HTTP/2.
    pub(super) fn http2(stream: S) -> Self {
        let (hello, frames) = (Some(Hello::of(HTTP2_HELLO)), Some(Frames::new()));
        Self { stream, hello, stall: None, frames }
    }

    /// Passes on the result of a write, or a timeout if the peer has read nothing for too long.
    fn written<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stall = None;
            return written;
        }
        let stall = self.stall.get_or_insert_with(|| Box::pin(sleep(STALL_MAX)));
        stall.as_mut().poll(context).map(|()| Err(ErrorKind::TimedOut.into()))
    }
}

impl Hello {
    /// Requires `left` bytes before the deadline.
    fn of(left: usize) -> Self {
        Self { left, end: Box::pin(sleep(HELLO_MAX)) }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for GuardedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buf);
        if let Some(frames) = &mut self.frames
            && !frames.pass(&buf.filled()[before..])
        {
            return Poll::Ready(Err(FLOOD.into()));
        }
        let Some(hello) = &mut self.hello else { return read };
        if read.is_pending() {
            let late = hello.end.as_mut().poll(context);
            return late.map(|()| Err(ErrorKind::TimedOut.into()));
        }
        hello.left = hello.left.saturating_sub(buf.filled().len() - before);
        if hello.left == 0 {
            self.hello = None;
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for GuardedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.written(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        shared: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, shared);
        self.written(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.written(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(context);
        self.written(context, shut)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    const SOON: Duration = Duration::from_millis(10);

    #[tokio::test]
    async fn who_says_nothing_is_given_up_also_where_bytes_trickle() {
        let (mut peer, stream) = duplex(64);
        let mut stream = GuardedStream::http2(stream);
        peer.write_all(b"PRI *").await.unwrap();
        let mut read = [0; 64];
        assert_eq!(stream.read(&mut read).await.unwrap(), 5);
        stream.hello.as_mut().unwrap().end = Box::pin(sleep(SOON));
        assert_eq!(stream.read(&mut read).await.unwrap_err().kind(), ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn who_has_spoken_may_be_silent() {
        let (mut peer, stream) = duplex(64);
        let mut stream = GuardedStream::http2(stream);
        peer.write_all(&[0; HTTP2_HELLO]).await.unwrap();
        let mut read = [0; 64];
        assert_eq!(stream.read(&mut read).await.unwrap(), HTTP2_HELLO);
        assert!(stream.hello.is_none());
    }

    #[tokio::test]
    async fn who_takes_nothing_is_given_up_and_who_takes_something_is_not() {
        let (mut peer, stream) = duplex(4);
        let mut stream = GuardedStream::http2(stream);
        let write = |context: &mut Context<'_>, stream: &mut GuardedStream<_>| {
            Pin::new(stream).poll_write(context, &[0; 4])
        };
        let mut context = Context::from_waker(std::task::Waker::noop());
        assert!(write(&mut context, &mut stream).is_ready());
        assert!(write(&mut context, &mut stream).is_pending() && stream.stall.is_some());
        peer.read_exact(&mut [0; 4]).await.unwrap();
        assert!(write(&mut context, &mut stream).is_ready() && stream.stall.is_none());
        assert!(write(&mut context, &mut stream).is_pending());
        stream.stall = Some(Box::pin(sleep(SOON)));
        assert_eq!(stream.write_all(&[0; 4]).await.unwrap_err().kind(), ErrorKind::TimedOut);
    }
}
