//! One gRPC connection, from its first byte to its last call.

use std::convert::Infallible;
use std::net::TcpStream;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::time::timeout;
use tonic_health::pb::health_server::Health;
use tonic_reflection::server::v1::ServerReflection;

use super::life::{Follow, Phase};
use crate::grpc::routes::Routes;

/// Streams that one connection may have open.
const STREAMS_MAX: u32 = 1_024;

/// What a connection, and each of its streams, may have on the way to us: requests are small, and
/// one that is not needs more round trips, not more memory.
const CONNECTION_WINDOW: u32 = 1 << 20;
const STREAM_WINDOW: u32 = 1 << 16;

/// Bytes of answers that wait for a slow reader, for each stream.
const SEND_BUFFER: usize = 1 << 16;

/// How often a silent connection is asked whether it is there, and how long it may not answer.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// As long as no connection lives, and what timers bear.
const FOR_EVER: Duration = Duration::from_secs(10 * 365 * 86_400);

/// On which terms connections are served.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    /// After this a connection gets no new calls; give or take a tenth, so that connections
    /// that came together do not come again together. `None`: it may stay.
    pub(super) age_max: Option<Duration>,
}

impl Terms {
    fn age(&self) -> Duration {
        let Some(age) = self.age_max else { return FOR_EVER };
        let tenth_ms = u64::try_from(age.as_millis() / 10).unwrap_or(0);
        age - Duration::from_millis(tenth_ms)
            + Duration::from_millis(fastrand::u64(0..=2 * tenth_ms))
    }
}

/// Serves one connection until it ends, is too old or the service stops, then finishes what is in
/// flight.
pub(super) async fn talk<H: Health, R: ServerReflection>(
    connection: TcpStream,
    routes: Arc<Routes<H, R>>,
    terms: Terms,
    mut follow: Follow,
) {
    let Ok(connection) = tokio::net::TcpStream::from_std(connection) else { return };
    let answer = service_fn(move |call| {
        let answer = routes.answer(call);
        async { Ok::<_, Infallible>(answer.await) }
    });
    let mut talk = pin!(http2().serve_connection(TokioIo::new(connection), answer));
    let result = tokio::select! {
        biased;
        result = talk.as_mut() => result,
        _ = timeout(terms.age(), follow.reached(Phase::Stopping)) => {
            talk.as_mut().graceful_shutdown();
            talk.await
        }
    };
    if let Err(error) = result {
        tracing::debug!(%error, "a connection broke");
    }
}

fn http2() -> http2::Builder<TokioExecutor> {
    let mut http2 = http2::Builder::new(TokioExecutor::new());
    http2
        .timer(TokioTimer::new())
        .auto_date_header(false)
        .max_concurrent_streams(STREAMS_MAX)
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
        let terms = Terms { age_max: Some(Duration::from_secs(100)) };
        let ages: Vec<_> = (0..1_000).map(|_| terms.age().as_secs_f64()).collect();
        assert!(ages.iter().all(|age| (90.0..=110.0).contains(age)));
        let spread =
            ages.iter().copied().fold(0.0, f64::max) - ages.iter().copied().fold(200.0, f64::min);
        assert!(spread > 15.0, "{spread}");
        assert_eq!(Terms { age_max: None }.age(), FOR_EVER);
    }
}
