//! Serves the connections of the HTTP port. They are few, and none may be slow.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use http_body_util::{BodyExt, Collected};
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tower::ServiceExt;

use super::lifecycle::{Phase, PhaseWatch};
use super::listen::{Accepted, Acceptor};
use super::stream::GuardedStream;
use crate::body::BoundedBody;
use crate::clock::uptime_us;
use crate::memory_budget::{Full, MemoryBudget};

/// Concurrent connections: probes, scrapes, people, and callers without gRPC.
pub(super) const CONNECTIONS_MAX: usize = 1_024;

/// How long a connection may take to send the head of its next request. It is longer than the usual
/// intervals of probes and scrapes (15, 30 and 60 seconds), so that they reuse their connections.
const HEAD_MAX: Duration = Duration::from_secs(75);

/// From this many connections on, a sweep closes those that have been idle for `IDLE_MIN`, so that
/// probes always find a free one.
const CROWD: usize = CONNECTIONS_MAX * 3 / 4;
const IDLE_MIN: Duration = Duration::from_secs(1);
const SWEEP_INTERVAL: Duration = Duration::from_millis(100);

/// How long a request may take, including its body. A slow body may use half of it.
const REQUEST_MAX: Duration = Duration::from_secs(10);

/// After this age a connection handles no further request, and `CUT_AFTER` later it is cut.
const AGE_MAX: Duration = Duration::from_secs(300);
const CUT_AFTER: Duration = Duration::from_secs(30);

/// Bytes of a request's head, and of an answer that waits for its reader.
const BUFFER_MAX: usize = 64 << 10;

/// Answers requests, within memory budgets.
#[derive(Clone)]
pub(super) struct Answers {
    pub(super) router: Router,
    /// For bodies that arrive slowly.
    pub(super) messages: MemoryBudget,
    /// For answers that are read slowly.
    pub(super) unread: MemoryBudget,
}

impl Answers {
    async fn answer(self, request: Request<Incoming>) -> Response {
        let request = request.map(|body| BoundedBody::new(body, self.messages));
        let answer = timeout(REQUEST_MAX, self.router.oneshot(request)).await;
        match answer {
            Ok(Ok(answer)) => reserve(answer, &self.unread).await,
            Ok(Err(never)) => match never {},
            Err(_late) => {
                (StatusCode::REQUEST_TIMEOUT, "the request took too long\n").into_response()
            }
        }
    }
}

/// Since when a connection has been idle.
#[derive(Clone)]
struct Idle(Arc<AtomicU64>);

impl Idle {
    /// The connection is not idle.
    const NOT: u64 = u64::MAX;

    fn now() -> Self {
        Self(Arc::new(AtomicU64::new(uptime_us())))
    }

    fn begin(&self) {
        self.0.store(uptime_us(), Ordering::Relaxed);
    }

    fn end(&self) {
        self.0.store(Self::NOT, Ordering::Relaxed);
    }

    /// Completes when a sweep finds this connection idle for at least `IDLE_MIN`.
    async fn too_long(&self, crowd: &Notify) {
        let is_long = || {
            Duration::from_micros(uptime_us().saturating_sub(self.0.load(Ordering::Relaxed)))
                >= IDLE_MIN
        };
        loop {
            crowd.notified().await;
            if is_long() {
                return;
            }
        }
    }
}

/// Reserves memory for the answer until its reader has taken it.
async fn reserve(answer: Response, unread: &MemoryBudget) -> Response {
    let (head, body) = answer.into_parts();
    let bytes = body.collect().await.map(Collected::to_bytes).unwrap_or_default();
    match unread.reserve(bytes.len()) {
        Ok(reservation) => Response::from_parts(head, reservation.with(bytes).into()),
        Err(Full) => {
            (StatusCode::SERVICE_UNAVAILABLE, "too many pages are read slowly\n").into_response()
        }
    }
}

/// Serves connections until the service stops, then finishes the requests in flight.
pub(super) async fn serve(acceptor: Acceptor, answers: Answers, follow: PhaseWatch) {
    let mut open = JoinSet::new();
    let crowd = Arc::new(Notify::new());
    let mut sweeps = interval(SWEEP_INTERVAL);
    sweeps.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let spoken =
        |accepted| serve_connection(accepted, answers.clone(), follow.clone(), Arc::clone(&crowd));
    let mut stops = pin!(follow.clone().until(Phase::Stopping));
    loop {
        tokio::select! {
            accepted = acceptor.accept() => drop(open.spawn(spoken(accepted))),
            () = &mut stops => break,
            // Removes connections that have ended.
            Some(_) = open.join_next() => {}
            _ = sweeps.tick(), if open.len() >= CROWD => crowd.notify_waiters(),
        }
    }
    for accepted in acceptor.close() {
        open.spawn(spoken(accepted));
    }
    while open.join_next().await.is_some() {}
}

async fn serve_connection(
    accepted: Accepted,
    answers: Answers,
    mut follow: PhaseWatch,
    crowd: Arc<Notify>,
) {
    let Some((stream, _permit)) = accepted.handshake().await else { return };
    let idle = Idle::now();
    let answer = service_fn(|request| {
        let (answer, idle) = (answers.clone().answer(request), idle.clone());
        idle.end();
        async move {
            let answer = answer.await;
            idle.begin();
            Ok::<_, Infallible>(answer)
        }
    });
    let mut http1 = http1::Builder::new();
    http1.timer(TokioTimer::new()).header_read_timeout(HEAD_MAX).max_buf_size(BUFFER_MAX);
    let mut connection =
        pin!(http1.serve_connection(TokioIo::new(GuardedStream::http1(stream)), answer));
    let result = tokio::select! {
        biased;
        result = connection.as_mut() => result,
        () = idle.too_long(&crowd) => return,
        _ = timeout(AGE_MAX, follow.reached(Phase::Stopping)) => {
            connection.as_mut().graceful_shutdown();
            timeout(CUT_AFTER, connection).await.unwrap_or(Ok(()))
        }
    };
    if let Err(error) = result {
        tracing::debug!(%error, "a connection to the pages broke");
    }
}
