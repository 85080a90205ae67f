//! Serves the connections of the HTTP port. They are few, and none may be slow.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
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
use tokio::task::JoinSet;
use tokio::time::timeout;
use tower::ServiceExt;

use super::lifecycle::{Phase, PhaseWatch};
use super::listen::{Accepted, Acceptor, Connected};
use super::stream::GuardedStream;
use crate::body::BoundedBody;
use crate::http::{IsShared, refusal};
use crate::memory_budget::{Full, MemoryBudget, Share};
use crate::peer::Peer;

/// Concurrent connections: probes, scrapes, people, and callers without gRPC.
pub(super) const CONNECTIONS_MAX: usize = 1_024;

/// How long a connection may take to send the head of its next request. It is longer than the usual
/// intervals of probes and scrapes (15, 30 and 60 seconds), so that they reuse their connections.
const HEAD_MAX: Duration = Duration::from_secs(75);

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
    /// Names of the port.
    pub(super) hosts: Arc<[String]>,
}

/// Answers the requests of one connection.
#[derive(Clone)]
struct ConnectionAnswers {
    router: Router,
    messages: Share,
    unread: Share,
    hosts: Arc<[String]>,
}

impl Answers {
    fn of_connection(self, peer: Option<&Peer>) -> ConnectionAnswers {
        let Self { router, messages, unread, hosts } = self;
        let messages = messages.share(peer.map(|peer| Arc::clone(&peer.slow_messages)));
        let unread = unread.share(peer.map(|peer| Arc::clone(&peer.unread_pages)));
        ConnectionAnswers { router, messages, unread, hosts }
    }
}

impl ConnectionAnswers {
    async fn answer(self, request: Request<Incoming>) -> Response {
        let path = request.uri().path();
        if let Some(why) = refusal(request.method(), path, request.headers(), &self.hosts) {
            return (StatusCode::FORBIDDEN, why).into_response();
        }
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

/// Reserves memory for the answer until its reader has taken it, unless all readers share it.
async fn reserve(answer: Response, unread: &Share) -> Response {
    if answer.extensions().get::<IsShared>().is_some() {
        return answer;
    }
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
    let spoken = |accepted| serve_connection(accepted, answers.clone(), follow.clone());
    let mut stops = pin!(follow.clone().until(Phase::Stopping));
    loop {
        tokio::select! {
            accepted = acceptor.accept() => drop(open.spawn(spoken(accepted))),
            () = &mut stops => break,
            // Removes connections that have ended.
            Some(_) = open.join_next() => {}
        }
    }
    for accepted in acceptor.close() {
        open.spawn(spoken(accepted));
    }
    while open.join_next().await.is_some() {}
}

async fn serve_connection(accepted: Accepted, answers: Answers, mut follow: PhaseWatch) {
    let Some(connected) = accepted.handshake().await else { return };
    let Connected { stream, place, peer } = connected;
    let answers = answers.of_connection(peer.as_deref());
    place.holds([answers.messages.clone(), answers.unread.clone()].into());
    let begun = place.begun();
    let answer = service_fn(|request| {
        let answer = answers.clone().answer(request);
        begun.fetch_add(1, Ordering::Relaxed);
        async { Ok::<_, Infallible>(answer.await) }
    });
    let mut http1 = http1::Builder::new();
    http1.timer(TokioTimer::new()).header_read_timeout(HEAD_MAX).max_buf_size(BUFFER_MAX);
    let mut connection =
        pin!(http1.serve_connection(TokioIo::new(GuardedStream::http1(stream)), answer));
    let result = tokio::select! {
        biased;
        result = connection.as_mut() => result,
        () = place.lost() => return,
        _ = timeout(AGE_MAX, follow.reached(Phase::Stopping)) => {
            connection.as_mut().graceful_shutdown();
            timeout(CUT_AFTER, connection).await.unwrap_or(Ok(()))
        }
    };
    if let Err(error) = result {
        tracing::debug!(%error, "a connection to the pages broke");
    }
}
