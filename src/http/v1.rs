//! `POST /v1/check` and `POST /v1/quota`: Tidegate's own API in proto JSON, for callers without
//! gRPC.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request as Post, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use tonic::Status;
use tonic_types::StatusExt;

use super::exchange::{Answered, Route, respond, status_code};
use super::pages::Pages;
use crate::envoy;
use crate::service::Answer;

/// What the head of a response says.
struct Head {
    status: StatusCode,
    headers: HeaderMap,
}

/// 200 if the request passes, 429 if it is rejected. An error is a `google.rpc.Status` in JSON.
pub(super) async fn handle<R: Route>(State(pages): State<Arc<Pages>>, post: Post) -> Response {
    respond::<R>(&pages, post, async |exchange| match exchange.decide::<R, _>(head).await {
        Ok(Answered { json, more: Head { status, headers } }) => {
            (status, headers, [(header::CONTENT_TYPE, "application/json")], json).into_response()
        }
        Err(error) => failed(&error),
    })
    .await
}

fn head(answer: &Answer<'_>) -> Head {
    let mut headers = HeaderMap::new();
    for (name, value) in envoy::rate_limit_headers(answer).into_iter().flatten() {
        if let Ok(value) = HeaderValue::try_from(value) {
            headers.insert(name, value);
        }
    }
    if let Some(wait_ms) = answer.retry_after_ms {
        headers.insert(header::RETRY_AFTER, seconds(Duration::from_millis(wait_ms)));
    }
    let status = if answer.allowed { StatusCode::OK } else { StatusCode::TOO_MANY_REQUESTS };
    Head { status, headers }
}

fn failed(error: &Status) -> Response {
    let mut response = (status_code(error), axum::Json(body(error))).into_response();
    let retry = error.get_details_retry_info().and_then(|retry| retry.retry_delay);
    if let Some(wait) = retry {
        response.headers_mut().insert(header::RETRY_AFTER, seconds(wait));
    }
    response
}

/// Whole seconds, rounded up and at least 1: sooner would be too soon.
fn seconds(wait: Duration) -> HeaderValue {
    u64::try_from(wait.as_millis().div_ceil(1_000)).unwrap_or(u64::MAX).max(1).into()
}

fn body(error: &Status) -> Value {
    let typed = |name: &str, mut detail: Value| {
        detail["@type"] = format!("type.googleapis.com/google.rpc.{name}").into();
        detail
    };
    let mut details = vec![];
    if let Some(info) = error.get_details_error_info() {
        details.push(typed("ErrorInfo", json!({ "reason": info.reason, "domain": info.domain })));
    }
    if let Some(bad) = error.get_details_bad_request() {
        let violations = bad.field_violations.iter();
        let violation = |violation: &tonic_types::FieldViolation| json!({ "field": violation.field, "description": violation.description });
        let violations: Vec<_> = violations.map(violation).collect();
        details.push(typed("BadRequest", json!({ "fieldViolations": violations })));
    }
    if let Some(wait) = error.get_details_retry_info().and_then(|retry| retry.retry_delay) {
        let delay = format!("{}.{:03}s", wait.as_secs(), wait.subsec_millis());
        details.push(typed("RetryInfo", json!({ "retryDelay": delay })));
    }
    json!({ "code": error.code() as i32, "message": error.message(), "details": details })
}
