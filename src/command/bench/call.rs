//! A call of ShouldRateLimit over HTTP/2.

use std::borrow::Cow;
use std::future::poll_fn;

use bytes::Bytes;
use h2::client::{Builder, SendRequest};
use h2::{Reason, RecvStream};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri};
use tokio::task::spawn_local;
use tonic::Code;

use super::super::dial::{Port, Target};
use super::message::allows;
use crate::settings::Bench;

const PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// Flow-control windows. Answers are small: with these, no stream ever waits for a window update.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 1 << 30;

/// Why a request has no decision.
#[derive(Debug)]
pub(super) enum Failure {
    /// Only this request failed.
    Call(Cow<'static, str>),
    /// The connection failed.
    Lost(String),
    /// The service closed the connection before it took this request: it can be sent again.
    Closing,
}

/// The service, and the headers of each call.
pub(super) struct Service {
    target: Target,
    head: Request<()>,
}

impl Service {
    /// # Errors
    /// A setting is wrong.
    pub(super) fn new(settings: &Bench) -> Result<Self, String> {
        let target = Target::new(&settings.addr, &settings.client, Port::Grpc)?;
        let uri: Uri = format!("http://{}{PATH}", target.host())
            .parse()
            .map_err(|error| format!("--addr {target}: {error}"))?;
        let mut head = Request::new(());
        *head.method_mut() = Method::POST;
        *head.uri_mut() = uri;
        let headers = head.headers_mut();
        headers.insert("content-type", HeaderValue::from_static("application/grpc"));
        headers.insert("te", HeaderValue::from_static("trailers"));
        Ok(Self { target, head })
    }

    pub(super) const fn target(&self) -> &Target {
        &self.target
    }

    /// Opens a connection. It is driven in the background until its last handle is dropped.
    ///
    /// # Errors
    /// Nothing listens there. The message says what to do.
    pub(super) async fn connect(&self) -> Result<SendRequest<Bytes>, String> {
        let stream = self.target.connect().await?;
        let mut builder = Builder::new();
        builder.initial_window_size(STREAM_WINDOW_BYTES);
        builder.initial_connection_window_size(CONNECTION_WINDOW_BYTES);
        builder.enable_push(false);
        let shaken = builder.handshake(stream).await;
        let (sender, connection) = match shaken {
            Ok(both) => both,
            Err(error) => return Err(self.target.failure(&error).await),
        };
        // When the connection ends, every call on it fails.
        spawn_local(connection);
        Ok(sender)
    }

    /// Sends `message` and returns whether the service allows the request.
    pub(super) async fn call(
        &self,
        sender: &mut SendRequest<Bytes>,
        message: Bytes,
    ) -> Result<bool, Failure> {
        poll_fn(|context| sender.poll_ready(context)).await.map_err(failure)?;
        let (response, mut body) =
            sender.send_request(self.head.clone(), false).map_err(failure)?;
        body.send_data(message, true).map_err(failure)?;
        answer(response.await.map_err(failure)?).await
    }
}

async fn answer(response: Response<RecvStream>) -> Result<bool, Failure> {
    if response.status() != StatusCode::OK {
        return Err(Failure::Call(format!("HTTP {}", response.status()).into()));
    }
    let (head, mut body) = response.into_parts();
    let message = message(&mut body).await?;
    // A response without a message may have its trailers as headers.
    let trailers = body.trailers().await.map_err(failure)?;
    match grpc_status(trailers.as_ref().unwrap_or(&head.headers)) {
        Some(Code::Ok) => allows(&message).map_err(|why| Failure::Call(why.into())),
        Some(code) => Err(Failure::Call(name(code).into())),
        None => Err(Failure::Call("an answer without grpc-status".into())),
    }
}

/// Collects the body, which is nearly always one frame.
async fn message(body: &mut RecvStream) -> Result<Bytes, Failure> {
    let mut message = Bytes::new();
    while let Some(chunk) = body.data().await {
        let chunk = chunk.map_err(failure)?;
        body.flow_control().release_capacity(chunk.len()).map_err(failure)?;
        message = if message.is_empty() { chunk } else { [message, chunk].concat().into() };
    }
    Ok(message)
}

fn grpc_status(headers: &HeaderMap) -> Option<Code> {
    headers.get("grpc-status").map(|status| Code::from_bytes(status.as_bytes()))
}

/// A status code as the gRPC specification spells it.
const fn name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}

fn failure(error: h2::Error) -> Failure {
    match error.reason() {
        Some(Reason::NO_ERROR) if error.is_go_away() && error.is_remote() => Failure::Closing,
        Some(Reason::REFUSED_STREAM) => Failure::Closing,
        Some(reason) if error.is_reset() => Failure::Call(format!("reset: {reason:?}").into()),
        _ => Failure::Lost(error.to_string()),
    }
}
