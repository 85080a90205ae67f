//! The HTTP port: probes, metrics, the rules in force, and decisions in JSON.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::{get, post};

use crate::clock::moment;
use crate::grpc::rpc::{CheckRateLimit, GetQuota, ShouldRateLimit};
use crate::service::Readiness;

mod browser;
mod exchange;
mod json;
mod json_bounds;
mod limits;
mod pages;
mod proto_json;
mod shared_page;
mod top;
mod unknown_field;
mod v1;

pub use browser::refusal;
use exchange::Route;
pub use limits::domain as describe_domain;
pub use pages::{CountInUse, IsLeaving, Pages};
pub use shared_page::{IsShared, SharedPage};

/// The router over all pages.
pub fn router(pages: Arc<Pages>) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .route("/limits", get(limits::show))
        .route("/top", get(top::show))
        .route(ShouldRateLimit::ROUTE, post(json::handle))
        .route(CheckRateLimit::ROUTE, post(v1::handle::<CheckRateLimit>))
        .route(GetQuota::ROUTE, post(v1::handle::<GetQuota>))
        .with_state(pages)
}

async fn readyz(State(pages): State<Arc<Pages>>) -> impl IntoResponse {
    if (pages.is_leaving)() {
        return (StatusCode::SERVICE_UNAVAILABLE, "not ready: the service is ending\n".to_owned());
    }
    let service = &pages.service;
    let (status, mut text) = match service.ready().await {
        Ok(Readiness::Store) => {
            let warning = service.store().warning().await;
            let warning = warning.map_or_else(String::new, |text| format!("warning: {text}\n"));
            (StatusCode::OK, format!("ready\n{warning}"))
        }
        Ok(Readiness::Fallback(error)) => {
            (StatusCode::OK, format!("ready, by --on-store-failure: {error}\n"))
        }
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {error}\n")),
    };
    text += &service.store().outage().unwrap_or_default();
    // Decisions continue with the previous limits, so the probe does not fail for it.
    if let Some(refusal) = service.rules().refusal() {
        let (at, version) = (moment(refusal.at_ms), service.snapshot().load.version);
        text +=
            &format!("warning: limits of {at} were refused, version {version} stays: {refusal}\n");
    }
    (status, text)
}

async fn metrics(State(pages): State<Arc<Pages>>) -> impl IntoResponse {
    let service = &pages.service;
    service.metrics().in_use((pages.in_use)());
    if let Some(memory) = service.store().memory() {
        service.metrics().memory(memory.keys(), memory.evicted());
    }
    let metrics = service.metrics().clone();
    // Rendering thousands of series takes milliseconds: not on a thread that answers requests.
    let text = tokio::task::spawn_blocking(move || metrics.render()).await.unwrap_or_default();
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text)
}
