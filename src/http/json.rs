//! `POST /json`: Envoy's `ShouldRateLimit` in proto JSON, for callers without gRPC.
//!
//! JSON becomes the message's bytes and the bytes become the request, so that one parser bounds
//! and refuses whatever callers send.

use std::convert::Infallible;
use std::sync::{Arc, LazyLock};

use axum::body::Body;
use axum::extract::{FromRequestParts, State};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use prost::Message;
use prost_reflect::{
    DescriptorPool, DeserializeOptions, DynamicMessage, MessageDescriptor, SerializeOptions,
};
use serde_json::Serializer;
use serde_json::de::Deserializer;
use tokio::sync::Semaphore;

use super::json_bounds::has_too_many_values;
use super::pages::Pages;
use crate::body::{BodyError, MESSAGE_BYTES_MAX};
use crate::envoy::Reply;
use crate::proto::DESCRIPTORS;
use crate::request::{Bounds, Request, RequestError};
use crate::service::DecideError;
use crate::store::DecideContext;
use crate::trace::{CallSpan, Operation};

/// The descriptors of the request and its answer.
static MESSAGES: LazyLock<Option<(MessageDescriptor, MessageDescriptor)>> = LazyLock::new(|| {
    let pool = DescriptorPool::decode(DESCRIPTORS).ok()?;
    let of = |name| pool.get_message_by_name(&format!("envoy.service.ratelimit.v3.{name}"));
    Some((of("RateLimitRequest")?, of("RateLimitResponse")?))
});

/// Bytes of a body that is parsed on the thread that accepts connections, which takes 0.1 ms.
const PARSED_AT_ONCE_MAX: usize = 16 << 10;

/// Large bodies that are parsed at the same time.
static PARSING: Semaphore = Semaphore::const_new(2);

/// Why there is no decision, and for whom that is a fault.
type Failure = (StatusCode, String);

/// 200 if the request passes, 429 if it is rejected.
pub(super) async fn handle(
    State(pages): State<Arc<Pages>>,
    Traced(span): Traced,
    body: Body,
) -> Response {
    let answer = respond(&pages, span.as_deref(), body).await;
    if let Some(span) = span {
        span.end_http(answer.status());
    }
    answer
}

/// The span of a request that is traced.
pub(super) struct Traced(Option<Box<CallSpan>>);

impl FromRequestParts<Arc<Pages>> for Traced {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, pages: &Arc<Pages>) -> Result<Self, Infallible> {
        let tracing = pages.service.tracing();
        Ok(Self(tracing.and_then(|tracing| tracing.call(Operation::Post("/json"), &parts.headers))))
    }
}

async fn respond(pages: &Pages, span: Option<&CallSpan>, body: Body) -> Response {
    match exchange(pages, span, body).await {
        Ok((status, json)) => {
            (status, [(header::CONTENT_TYPE, "application/json")], json).into_response()
        }
        Err((status, message)) => (status, message + "\n").into_response(),
    }
}

async fn exchange(
    pages: &Pages,
    span: Option<&CallSpan>,
    body: Body,
) -> Result<(StatusCode, String), Failure> {
    let broken = || (StatusCode::INTERNAL_SERVER_ERROR, "cannot read own messages".to_owned());
    let (request, response) = MESSAGES.as_ref().ok_or_else(broken)?;
    let mut body = body;
    let text = whole(&mut body).await?;
    let message = parse(text.freeze(), request.clone(), &pages.bounds).await;
    // It holds the memory that it reserved if it arrived slowly.
    drop(body);
    let request =
        message.and_then(|message| Request::from_envoy(&message.encode_to_vec(), &pages.bounds));
    let context = DecideContext { span: span.map(CallSpan::parent), ..DecideContext::now() };
    let reply = pages.service.process(request, context, |request, answer| {
        if let Some(span) = span {
            answer.annotate(span);
        }
        Reply::of(request, answer, pages.style)
    });
    let reply = reply.await.map_err(failure)?;
    let status = if reply.is_over_limit() { StatusCode::TOO_MANY_REQUESTS } else { StatusCode::OK };
    json(&reply, response.clone()).map(|json| (status, json)).ok_or_else(broken)
}

fn failure(error: DecideError) -> Failure {
    match error {
        DecideError::Request(_) => (StatusCode::BAD_REQUEST, error.to_string()),
        DecideError::Overloaded => (StatusCode::SERVICE_UNAVAILABLE, error.to_string()),
        // What the store said may name hosts and keys: that is for the log.
        DecideError::Store(_) => {
            (StatusCode::SERVICE_UNAVAILABLE, "the store cannot decide".to_owned())
        }
    }
}

/// The body in one piece: many small ones would take more memory than they have bytes.
async fn whole(body: &mut Body) -> Result<BytesMut, Failure> {
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(not_whole)?;
        let Ok(bytes) = frame.into_data() else { continue };
        if whole.len() + bytes.len() > MESSAGE_BYTES_MAX {
            let message = format!("the body is longer than {MESSAGE_BYTES_MAX} bytes");
            return Err((StatusCode::PAYLOAD_TOO_LARGE, message));
        }
        whole.extend_from_slice(&bytes);
    }
    Ok(whole)
}

fn not_whole(error: axum::Error) -> Failure {
    let error = error.into_inner();
    let status = match error.downcast_ref() {
        Some(BodyError::Full) => StatusCode::SERVICE_UNAVAILABLE,
        Some(BodyError::Late) => StatusCode::REQUEST_TIMEOUT,
        Some(BodyError::Broken(_)) | None => StatusCode::BAD_REQUEST,
    };
    (status, error.to_string())
}

/// Parses a body within bounds. A large one is parsed on a thread of its own, a few at a time, so that it
/// does not delay probes.
async fn parse(
    json: Bytes,
    descriptor: MessageDescriptor,
    bounds: &Bounds,
) -> Result<DynamicMessage, RequestError> {
    if has_too_many_values(&json, bounds) {
        return Err(wrong("has more values than a request may have".to_owned()));
    }
    if json.len() <= PARSED_AT_ONCE_MAX {
        return message(&json, descriptor);
    }
    // It is never closed.
    let _permit = PARSING.acquire().await;
    let parsed = tokio::task::spawn_blocking(move || message(&json, descriptor)).await;
    parsed.unwrap_or_else(|error| Err(wrong(error.to_string())))
}

fn wrong(message: String) -> RequestError {
    RequestError { field: "body".to_owned(), message }
}

/// Fields that nobody knows are skipped, as in gRPC.
fn message(body: &[u8], descriptor: MessageDescriptor) -> Result<DynamicMessage, RequestError> {
    let mut json = Deserializer::from_slice(body);
    let options = DeserializeOptions::new().deny_unknown_fields(false);
    let read = DynamicMessage::deserialize_with_options(descriptor, &mut json, &options);
    let message = read.map_err(|error| wrong(format!("is no RateLimitRequest: {error}")))?;
    json.end().map_err(|error| wrong(format!("goes on after the request: {error}")))?;
    Ok(message)
}

fn json(reply: &Reply, descriptor: MessageDescriptor) -> Option<String> {
    let message = DynamicMessage::decode(descriptor, reply.encode_to_vec().as_slice()).ok()?;
    let mut json = Serializer::new(Vec::new());
    // Numbers as numbers and codes by name, as other services of this kind answer.
    let options = SerializeOptions::new().stringify_64_bit_integers(false);
    message.serialize_with_options(&mut json, &options).ok()?;
    String::from_utf8(json.into_inner()).ok()
}
