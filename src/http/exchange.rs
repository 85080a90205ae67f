//! Decides the request of a body, for the routes that RPCs have on the HTTP port.
//!
//! JSON becomes the message's bytes and the bytes become the request, so that one parser bounds and
//! refuses whatever callers send.

use axum::body::Body;
use axum::extract::Request as Post;
use axum::http::StatusCode;
use axum::response::Response;
use bytes::BytesMut;
use http_body_util::BodyExt;
use tonic::{Code, Status};

use super::pages::Pages;
use super::proto_json::{Form, Messages};
use crate::body::{BodyError, MESSAGE_BYTES_MAX};
use crate::grpc::refusal::{Reason, refuse, refuse_request, refuse_undecided};
use crate::grpc::rpc::{CheckRateLimit, GetQuota, Rpc, ShouldRateLimit};
use crate::request::{Request, RequestError};
use crate::service::Answer;
use crate::store::DecideContext;
use crate::trace::{CallSpan, Operation};

/// An RPC that has a route on the HTTP port.
pub(super) trait Route: Rpc {
    /// The path of the route.
    const ROUTE: &'static str;

    /// Which JSON it speaks.
    const FORM: Form;
}

impl Route for ShouldRateLimit {
    const ROUTE: &'static str = "/json";
    const FORM: Form = Form::Envoy;
}

impl Route for CheckRateLimit {
    const ROUTE: &'static str = "/v1/check";
    const FORM: Form = Form::Own;
}

impl Route for GetQuota {
    const ROUTE: &'static str = "/v1/quota";
    const FORM: Form = Form::Own;
}

/// One request over HTTP.
pub(super) struct Exchange<'a> {
    pages: &'a Pages,
    span: Option<&'a CallSpan>,
    body: Body,
}

/// What a route adds to the message that answers.
pub(super) struct Answered<T> {
    /// The message in JSON.
    pub(super) json: String,
    pub(super) more: T,
}

/// Responds to a request, in a span if it is traced.
pub(super) async fn respond<R: Route>(
    pages: &Pages,
    post: Post,
    respond: impl AsyncFnOnce(Exchange<'_>) -> Response,
) -> Response {
    let (head, body) = post.into_parts();
    let tracing = pages.service.tracing();
    let span = tracing.and_then(|tracing| tracing.call(Operation::Post(R::ROUTE), &head.headers));
    let response = respond(Exchange { pages, span: span.as_deref(), body }).await;
    if let Some(span) = span {
        span.end_http(response.status());
    }
    response
}

impl Exchange<'_> {
    /// Decides the request, and returns the message that answers with what `more` makes of the
    /// answer.
    pub(super) async fn decide<R: Route, T>(
        self,
        more: impl FnOnce(&Answer<'_>) -> T,
    ) -> Result<Answered<T>, Status> {
        let Self { pages, span, body } = self;
        let broken = || refuse(Reason::MalformedCall, "cannot read own messages");
        let messages = Messages::of(R::PATH).ok_or_else(broken)?;
        let body = whole(body).await?;
        let message = messages.parse(&body, R::FORM);
        drop(body);
        let request = message.and_then(|message| R::read(&message, &pages.bounds));
        let context = DecideContext { span: span.map(CallSpan::parent), ..DecideContext::now() };
        let write = |request: &Request, answer: &Answer<'_>| {
            if let Some(span) = span {
                answer.annotate(span);
            }
            (R::write(request, answer, pages.style), more(answer))
        };
        let decided = pages.service.process(request, context, write).await;
        let (message, more) = decided.map_err(|error| refuse_undecided(&error))?;
        let json = messages.format(&message, R::FORM).ok_or_else(broken)?;
        Ok(Answered { json, more })
    }
}

/// The HTTP statuses for errors of the caller, and for those that pass. The rest are faults.
const STATUS_CODES: [(Code, StatusCode); 5] = [
    (Code::InvalidArgument, StatusCode::BAD_REQUEST),
    (Code::DeadlineExceeded, StatusCode::REQUEST_TIMEOUT),
    (Code::OutOfRange, StatusCode::PAYLOAD_TOO_LARGE),
    (Code::ResourceExhausted, StatusCode::SERVICE_UNAVAILABLE),
    (Code::Unavailable, StatusCode::SERVICE_UNAVAILABLE),
];

/// The HTTP status for an error.
pub(super) fn status_code(error: &Status) -> StatusCode {
    let code = |(code, _): &&(Code, StatusCode)| *code == error.code();
    let found = STATUS_CODES.iter().find(code);
    found.map_or(StatusCode::INTERNAL_SERVER_ERROR, |(_, status)| *status)
}

/// The body in one piece: many small ones would take more memory than they have bytes.
async fn whole(mut body: Body) -> Result<BytesMut, Status> {
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(not_whole)?;
        let Ok(bytes) = frame.into_data() else { continue };
        if whole.len() + bytes.len() > MESSAGE_BYTES_MAX {
            let message = format!("the body is longer than {MESSAGE_BYTES_MAX} bytes");
            return Err(refuse(Reason::MessageTooLong, message));
        }
        whole.extend_from_slice(&bytes);
    }
    Ok(whole)
}

fn not_whole(error: axum::Error) -> Status {
    let error = error.into_inner();
    match error.downcast_ref() {
        Some(BodyError::Full) => refuse(Reason::Overloaded, error.to_string()),
        Some(BodyError::Late) => refuse(Reason::MessageTooSlow, error.to_string()),
        Some(BodyError::Broken(_)) | None => {
            refuse_request(&RequestError { field: "body".to_owned(), message: error.to_string() })
        }
    }
}
