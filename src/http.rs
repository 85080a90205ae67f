//! The HTTP port: probes, metrics, what is in force, and decisions in JSON.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};

use crate::clock::moment;
use crate::envoy::Style;
use crate::limit::{Limit, Shape};
use crate::metrics::InUse;
use crate::period;
use crate::request::Bounds;
use crate::rules::{Domain, Role, Rule, RuleLimit};
use crate::service::{Readiness, Refusal, Service};

mod json;
mod top;

/// Whether the service is on its way to its end.
pub type IsLeaving = Box<dyn Fn() -> bool + Send + Sync>;

/// How many calls are being decided, and how many connections there are on the gRPC port.
pub type CountInUse = Box<dyn Fn() -> InUse + Send + Sync>;

/// What the pages show, and how they decide.
pub struct Pages {
    /// Decides.
    pub service: Arc<Service>,
    /// How much a request may bring.
    pub bounds: Bounds,
    /// What decisions carry.
    pub style: Style,
    /// The service is not ready while it is.
    pub is_leaving: IsLeaving,
    /// For metrics.
    pub in_use: CountInUse,
}

/// The router over all pages.
pub fn router(pages: Arc<Pages>) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .route("/limits", get(limits))
        .route("/top", get(top::show))
        .route("/json", post(json::decide))
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
    // Decisions go on by the limits before, so this is none of the probe's reasons to fail.
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
    let memory = service.store().memory();
    service.metrics().memory(memory.keys(), memory.evicted());
    let metrics = service.metrics().clone();
    // Thousands of series take milliseconds: not on a thread that answers requests.
    let text = tokio::task::spawn_blocking(move || metrics.render()).await.unwrap_or_default();
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text)
}

async fn limits(State(pages): State<Arc<Pages>>) -> Json<Value> {
    // A hundred thousand rules take their time: not on a thread that answers requests.
    Json(tokio::task::spawn_blocking(move || in_force(&pages)).await.unwrap_or_default())
}

fn in_force(pages: &Pages) -> Value {
    let refused = pages.service.rules().refusal().map(|refusal| refused(&refusal));
    let snapshot = pages.service.snapshot();
    let load = &snapshot.load;
    let domains: Vec<_> = snapshot.rules.domains().map(domain).collect();
    json!({
        "version": load.version,
        "hash": load.hash,
        "loaded_at": moment(load.at_ms),
        "files": load.files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>(),
        "refused": refused,
        "domains": domains,
    })
}

/// Limits files that are not in force, and why.
fn refused(refusal: &Refusal) -> Value {
    let mistakes = refusal.errors.iter().map(ToString::to_string).collect::<Vec<_>>();
    json!({ "at": moment(refusal.at_ms), "mistakes": mistakes })
}

fn domain(domain: &Domain) -> Value {
    json!({
        "domain": domain.name(),
        "source": domain.sources().map(|file| file.display().to_string()).collect::<Vec<_>>().join(", "),
        "slot_by": domain.slot_by(),
        "on_store_failure": domain.on_store_failure().map(|policy| policy.name()),
        "rules": domain.rules().map(rule).collect::<Vec<_>>(),
    })
}

fn rule(rule: &Rule) -> Value {
    json!({
        "rule": rule.path(),
        "shadow": rule.role() == Role::Shadow,
        "quota": rule.role() == Role::Quota,
        "share_threshold": rule.shares(),
        "unlimited": rule.unlimited().is_some(),
        "limits": rule.limits().iter().map(rule_limit).collect::<Vec<_>>(),
    })
}

fn rule_limit(rule_limit: &RuleLimit) -> Value {
    let limit: &Limit = rule_limit.limit();
    let mut value = json!({
        "name": rule_limit.name(),
        "limit": limit.hits(),
        "period": period::format(limit.period_ms()),
        "algorithm": limit.algorithm().name(),
        "overdraft": limit.overdraft(),
    });
    match limit.shape() {
        Shape::Bucket(bucket) => value["burst"] = bucket.burst.into(),
        Shape::SlidingWindowCounter(windows) => {
            value["sub_windows"] = windows.count.into();
            value["weighted"] = windows.weighted.into();
        }
        Shape::FixedWindow | Shape::SlidingWindowLog => {}
    }
    value
}
