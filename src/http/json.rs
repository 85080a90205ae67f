//! `POST /json`: Envoy's `ShouldRateLimit` in proto JSON, for callers without gRPC.

use std::sync::Arc;

use axum::extract::{Request as Post, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::exchange::{Answered, respond, status_code};
use super::pages::Pages;
use crate::grpc::rpc::ShouldRateLimit;

/// 200 if the request passes, 429 if it is rejected. An error is a line of text.
pub(super) async fn handle(State(pages): State<Arc<Pages>>, post: Post) -> Response {
    respond::<ShouldRateLimit>(&pages, post, async |exchange| {
        match exchange.decide::<ShouldRateLimit, _>(|answer| answer.allowed).await {
            Ok(Answered { json, more: allowed }) => {
                let status = if allowed { StatusCode::OK } else { StatusCode::TOO_MANY_REQUESTS };
                (status, [(header::CONTENT_TYPE, "application/json")], json).into_response()
            }
            Err(error) => (status_code(&error), format!("{}\n", error.message())).into_response(),
        }
    })
    .await
}
