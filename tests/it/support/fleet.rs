//! A client of several replicas that behaves as gRPC requires: it sends only to replicas that
//! report healthy, reconnects after GOAWAY, and retries a request elsewhere if it was never sent.
//!
//! A request that a replica took and did not answer is lost, and reported.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use h2::RecvStream;
use h2::client::{ResponseFuture, SendRequest};
use http::{HeaderValue, Method, Request as HttpRequest, Response};
use prost::Message;
use tokio::net::TcpStream;
use tokio::runtime::Builder;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tonic_health::ServingStatus;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use super::client::Request;
use super::process;

const CHECK: &str = "/tidegate.v1.RateLimitService/CheckRateLimit";
const WATCH: &str = "/grpc.health.v1.Health/Watch";

/// The interval at which due requests are sent, and missing connections are retried.
const TICK: Duration = Duration::from_millis(1);
const RECONNECT: Duration = Duration::from_millis(10);

/// Room for all the answers that a busy machine reads at once.
const WINDOW: u32 = 1 << 24;

/// The deadline of one request, including retries.
const CALL_DEADLINE: Duration = Duration::from_secs(20);

type Sender = SendRequest<Bytes>;
type Members = Arc<Shared>;

#[derive(Default)]
struct Shared {
    members: Mutex<Vec<Member>>,
    /// Notified when a member has a connection again.
    joined: Notify,
}

struct Member {
    addr: SocketAddr,
    /// `Some` while it is healthy.
    sender: Option<Sender>,
    connections: usize,
}

/// A steady load on replicas that come and go.
pub struct Fleet {
    members: Members,
    join: mpsc::UnboundedSender<SocketAddr>,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<Tally>>,
}

/// The results.
#[derive(Debug, Default)]
pub struct Tally {
    /// Answered requests.
    pub answered: u64,
    /// The errors of the others.
    pub lost: Vec<String>,
}

impl Fleet {
    /// Sends `request` at this rate, once there is a replica.
    pub fn start(rate_per_second: u32, request: &Request) -> Self {
        let members = Members::default();
        let (join, joining) = mpsc::unbounded_channel();
        let (end, ended) = oneshot::channel();
        let message = framed(&request.check());
        let shared = Arc::clone(&members);
        let thread = thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(run(shared, joining, ended, rate_per_second, message))
        });
        Self { members, join, end: Some(end), thread: Some(thread) }
    }

    /// Adds this replica; returns once it receives requests.
    ///
    /// # Panics
    /// When it does not become healthy.
    pub fn join(&self, addr: SocketAddr) {
        self.join.send(addr).expect("the load runs");
        let in_use = || {
            let members = self.members.members.lock().unwrap();
            members.iter().find(|member| member.addr == addr && member.sender.is_some()).map(drop)
        };
        process::wait_until(CALL_DEADLINE, in_use).expect("a replica that joins is healthy");
    }

    /// The number of connections to a replica so far.
    pub fn connections(&self, addr: SocketAddr) -> usize {
        let members = self.members.members.lock().unwrap();
        members.iter().find(|member| member.addr == addr).map_or(0, |member| member.connections)
    }

    /// Stops sending, and waits for all answers.
    ///
    /// # Panics
    /// When the load itself failed.
    pub fn stop(mut self) -> Tally {
        drop(self.end.take());
        self.thread.take().expect("it was not stopped").join().expect("the load runs")
    }
}

async fn run(
    members: Members,
    mut joining: mpsc::UnboundedReceiver<SocketAddr>,
    mut ended: oneshot::Receiver<()>,
    rate_per_second: u32,
    message: Bytes,
) -> Tally {
    let (mut calls, mut tally) = (JoinSet::new(), Tally::default());
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut due = 0;
    loop {
        tokio::select! {
            _ = &mut ended => break,
            Some(addr) = joining.recv() => {
                members.members.lock().unwrap().push(Member { addr, sender: None, connections: 0 });
                tokio::spawn(keep(Arc::clone(&members), addr));
            }
            Some(answered) = calls.join_next() => tally.add(answered.expect("no call panics")),
            _ = ticks.tick() => {
                due += rate_per_second;
                while due >= 1_000 {
                    due -= 1_000;
                    calls.spawn(send(Arc::clone(&members), message.clone()));
                }
            }
        }
    }
    while let Some(answered) = calls.join_next().await {
        tally.add(answered.expect("no call panics"));
    }
    tally
}

impl Tally {
    fn add(&mut self, answered: Result<(), String>) {
        match answered {
            Ok(()) => self.answered += 1,
            Err(lost) => self.lost.push(lost),
        }
    }

    /// Fails if a request is lost, or if the service took more requests (`taken`) than were
    /// answered.
    ///
    /// # Panics
    /// Then.
    pub fn assert_all_answered_once(&self, taken: u64) {
        let first = self.lost.first();
        assert!(self.lost.is_empty(), "{} of {} lost: {first:?}", self.lost.len(), self.answered);
        assert_eq!(self.answered, taken, "answered, taken by the service");
    }
}

/// Keeps a connection to a replica, and uses it while the replica reports healthy.
async fn keep(members: Members, addr: SocketAddr) {
    let set = |sender: Option<Sender>| {
        let mut list = members.members.lock().unwrap();
        let member = list.iter_mut().find(|member| member.addr == addr).expect("it joined");
        member.connections += usize::from(sender.is_some() && member.sender.is_none());
        member.sender = sender;
        members.joined.notify_waiters();
    };
    let mut tries = interval(RECONNECT);
    tries.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tries.tick().await;
        let Ok(stream) = TcpStream::connect(addr).await else { continue };
        let Ok((sender, connection)) = h2::client::Builder::new()
            .initial_connection_window_size(WINDOW)
            .handshake(stream)
            .await
        else {
            continue;
        };
        let mut connection = tokio::spawn(connection);
        let watching = async {
            let mut events = watch(sender.clone()).await?;
            while let Some(serving) = event(&mut events).await {
                set(serving.then(|| sender.clone()));
            }
            Some(())
        };
        tokio::select! {
            _ = watching => {}
            () = closed(sender.clone()) => {}
            _ = &mut connection => {}
        }
        set(None);
        // Its calls are finished by the connection's own task.
    }
}

/// Returns when the connection accepts no more requests.
async fn closed(mut sender: Sender) {
    let mut looks = interval(TICK);
    while poll_fn(|context| sender.poll_ready(context)).await.is_ok() {
        looks.tick().await;
    }
}

async fn watch(sender: Sender) -> Option<RecvStream> {
    let message = framed(&HealthCheckRequest { service: String::new() });
    Some(begin(sender, WATCH, message).await?.await.ok()?.into_body())
}

/// The next event of a watch: whether the replica serves.
async fn event(events: &mut RecvStream) -> Option<bool> {
    let frame = events.data().await?.ok()?;
    let _ = events.flow_control().release_capacity(frame.len());
    let event = HealthCheckResponse::decode(frame.get(5..)?).ok()?;
    Some(event.status == ServingStatus::Serving as i32)
}

async fn send(members: Members, message: Bytes) -> Result<(), String> {
    let ways = async {
        loop {
            // Before the check, so that no notification is missed.
            let joined = members.joined.notified();
            let lanes: Vec<_> = members
                .members
                .lock()
                .unwrap()
                .iter()
                .filter_map(|member| member.sender.clone())
                .collect();
            let first = fastrand::usize(..lanes.len().max(1));
            for at in 0..lanes.len() {
                let sender = lanes[(first + at) % lanes.len()].clone();
                // Never sent, or never taken: the next replica may take it.
                let Some(response) = begin(sender, CHECK, message.clone()).await else { continue };
                match response.await {
                    Ok(response) => return finish(response).await,
                    Err(error) if was_never_taken(&error) => {}
                    Err(error) => return Err(format!("no answer: {error}")),
                }
            }
            joined.await;
        }
    };
    timeout(CALL_DEADLINE, ways).await.unwrap_or_else(|_late| Err("not sent in time".to_owned()))
}

/// Whether the stream began after the last one that GOAWAY names.
fn was_never_taken(error: &h2::Error) -> bool {
    error.is_go_away() && error.is_remote() && error.reason() == Some(h2::Reason::NO_ERROR)
}

/// Sends a request if the connection accepts it.
async fn begin(mut sender: Sender, path: &str, message: Bytes) -> Option<ResponseFuture> {
    poll_fn(|context| sender.poll_ready(context)).await.ok()?;
    let mut head = HttpRequest::new(());
    *head.method_mut() = Method::POST;
    *head.uri_mut() = format!("http://replica{path}").parse().expect("a path");
    head.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
    head.headers_mut().insert("te", HeaderValue::from_static("trailers"));
    let (response, mut body) = sender.send_request(head, false).ok()?;
    body.send_data(message, true).ok()?;
    Some(response)
}

async fn finish(response: Response<RecvStream>) -> Result<(), String> {
    let (head, mut body) = response.into_parts();
    while let Some(chunk) = body.data().await {
        let chunk = chunk.map_err(|error| format!("half an answer: {error}"))?;
        let _ = body.flow_control().release_capacity(chunk.len());
    }
    let trailers = body.trailers().await.map_err(|error| format!("no trailers: {error}"))?;
    let trailers = trailers.unwrap_or(head.headers);
    match trailers.get("grpc-status") {
        Some(status) if status == "0" => Ok(()),
        status => Err(format!("status {status:?}, {:?}", trailers.get("grpc-message"))),
    }
}

/// A message in gRPC framing.
pub(super) fn framed(message: &impl Message) -> Bytes {
    let length = u32::try_from(message.encoded_len()).expect("a small message");
    let mut bytes = BytesMut::from(&[0][..]);
    bytes.extend_from_slice(&length.to_be_bytes());
    message.encode(&mut bytes).expect("there is room");
    bytes.freeze()
}
