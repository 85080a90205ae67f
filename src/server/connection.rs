//! Serves one gRPC connection: HTTP/2 settings, bounds against floods, maximum age, draining.

use std::convert::Infallible;
use std::error::Error;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::time::{Interval, MissedTickBehavior, interval, timeout};

use super::lifecycle::{Phase, PhaseWatch};
use super::listen::Accepted;
use super::stream::{FLOOD, GuardedStream};
use crate::grpc::calls::Calls;
use crate::grpc::routes::Routes;
use crate::metrics::Shed;

/// Concurrent streams per connection. This allows 25,000 calls per second that take 10 ms each.
const STREAMS_MAX: u32 = 256;

/// Bytes of a call's headers, as HTTP/2 counts them.
const HEADERS_MAX: u32 = 16 << 10;

/// Streams that a caller may reset before they were handled, and stream errors that a caller may
/// cause. Beyond either, the connection is closed.
const PENDING_RESETS_MAX: usize = 64;
const ERROR_RESETS_MAX: usize = 256;

/// Flow-control windows of a connection and of a stream. Requests are small; a large one needs more
/// round trips, not more memory.
const CONNECTION_WINDOW: u32 = 1 << 20;
const STREAM_WINDOW: u32 = 1 << 16;

/// Bytes per stream that wait for a slow reader.
const SEND_BUFFER: usize = 1 << 16;

/// How often an idle connection is pinged, and how long its peer may take to answer.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// Longer than any connection lives, and short enough for timers.
const FOR_EVER: Duration = Duration::from_secs(10 * 365 * 86_400);

/// How connections are served.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConnectionOptions {
    /// After this age a connection gets GOAWAY, give or take a tenth, so that connections that were
    /// opened together do not reconnect together. `None`: no maximum.
    pub(super) age_max: Option<Duration>,
    /// The interval of sweeps over open calls. A call that is open at its last sweep was answered
    /// long before and is not being read, so its connection is cut.
    pub(super) sweep: Duration,
}

impl ConnectionOptions {
    fn age(&self) -> Duration {
        let Some(age) = self.age_max else { return FOR_EVER };
        let tenth_ms = u64::try_from(age.as_millis() / 10).unwrap_or(0);
        age - Duration::from_millis(tenth_ms)
            + Duration::from_millis(fastrand::u64(0..=2 * tenth_ms))
    }
}

/// Serves one connection until it ends, reaches its maximum age or the service stops, then finishes
/// the calls in flight.
pub(super) async fn serve_connection(
    accepted: Accepted,
    routes: Arc<Routes>,
    options: ConnectionOptions,
    follow: PhaseWatch,
) {
    let Some((stream, _permit)) = accepted.handshake().await else { return };
    let calls = Arc::new(routes.grpc.calls());
    let answer = service_fn({
        let (calls, routes) = (Arc::clone(&calls), Arc::clone(&routes));
        move |call| {
            let answer = routes.accept(call, &calls);
            async { Ok::<_, Infallible>(answer.await) }
        }
    });
    let stream = TokioIo::new(GuardedStream::http2(stream));
    let mut connection = pin!(http2().serve_connection(stream, answer));
    let mut ends = pin!(end(options, follow));
    let mut sweeps = interval(options.sweep);
    sweeps.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut is_ending = false;
    loop {
        tokio::select! {
            biased;
            result = connection.as_mut() => {
                return result.unwrap_or_else(|error| {
                    tracing::debug!(%error, "a connection broke");
                    if is_flood(&error) {
                        routes.grpc.count(Shed::Flood);
                    }
                });
            }
            () = ends.as_mut(), if !is_ending => {
                is_ending = true;
                connection.as_mut().graceful_shutdown();
            }
            () = sweep(&calls, &mut sweeps) => if calls.sweep_finds_stalled() {
                return routes.grpc.count(Shed::Stalled);
            }
        }
    }
}

/// Completes when the connection is to get no more calls.
async fn end(options: ConnectionOptions, mut follow: PhaseWatch) {
    // A timeout means that the age was reached first.
    let _ = timeout(options.age(), follow.reached(Phase::Stopping)).await;
}

/// Completes at the next sweep that finds open calls. Without open calls no timer runs.
async fn sweep(calls: &Calls, sweeps: &mut Interval) {
    let sweep = |context: &mut Context<'_>| {
        if calls.are_open() { sweeps.poll_tick(context) } else { Poll::Pending }
    };
    poll_fn(sweep).await;
}

/// Whether we closed the connection because its peer exceeded a bound of this file.
fn is_flood(error: &hyper::Error) -> bool {
    let Some(cause) = error.source() else { return false };
    // COMPRESSION_ERROR: headers too large to be skipped.
    let reasons = [h2::Reason::ENHANCE_YOUR_CALM, h2::Reason::COMPRESSION_ERROR].map(Some);
    let of_h2 = cause.downcast_ref::<h2::Error>();
    let of_stream = cause.downcast_ref::<io::Error>();
    of_h2.is_some_and(|cause| !cause.is_remote() && reasons.contains(&cause.reason()))
        || of_stream.is_some_and(|cause| cause.kind() == FLOOD)
}

fn http2() -> http2::Builder<TokioExecutor> {
    let mut http2 = http2::Builder::new(TokioExecutor::new());
    http2
        .timer(TokioTimer::new())
        .auto_date_header(false)
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEADERS_MAX)
        .max_pending_accept_reset_streams(PENDING_RESETS_MAX)
        .max_local_error_reset_streams(ERROR_RESETS_MAX)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .initial_stream_window_size(STREAM_WINDOW)
        .max_send_buf_size(SEND_BUFFER)
        .keep_alive_interval(KEEPALIVE_INTERVAL)
        .keep_alive_timeout(KEEPALIVE_TIMEOUT);
    http2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_of_one_age_end_a_fifth_of_it_apart_at_most() {
        let options = |age_max| ConnectionOptions { age_max, sweep: Duration::ZERO };
        let some = options(Some(Duration::from_secs(100)));
        let ages: Vec<_> = (0..1_000).map(|_| some.age().as_secs_f64()).collect();
        assert!(ages.iter().all(|age| (90.0..=110.0).contains(age)));
        let spread =
            ages.iter().copied().fold(0.0, f64::max) - ages.iter().copied().fold(200.0, f64::min);
        assert!(spread > 15.0, "{spread}");
        assert_eq!(options(None).age(), FOR_EVER);
    }
}
