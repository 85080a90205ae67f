//! The HTTP port: probes, metrics, and what is in force. Nothing here decides.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use axum::{Json, Router};
use serde_json::{Value, json};

use crate::limit::{Limit, Shape, format_period};
use crate::rules::{Domain, Rule, RuleLimit};
use crate::service::{Readiness, Service};
use crate::store::Store;

/// The pages over one service.
pub fn router(service: Arc<Service>) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .route("/limits", get(limits))
        .with_state(service)
}

async fn readyz(State(service): State<Arc<Service>>) -> impl IntoResponse {
    match service.ready().await {
        Ok(Readiness::Store) => {
            let warning = service.store().warning().await;
            let warning = warning.map_or_else(String::new, |text| format!("warning: {text}\n"));
            (StatusCode::OK, format!("ready\n{warning}"))
        }
        Ok(Readiness::Fallback(error)) => {
            (StatusCode::OK, format!("ready, by --on-store-failure: {error}\n"))
        }
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {error}\n")),
    }
}

async fn metrics(State(service): State<Arc<Service>>) -> impl IntoResponse {
    if let Store::Memory(memory) = service.store() {
        service.metrics().memory(memory.keys(), memory.evicted());
    }
    let metrics = service.metrics().clone();
    // Thousands of series take milliseconds: not on a thread that answers requests.
    let text = tokio::task::spawn_blocking(move || metrics.render()).await.unwrap_or_default();
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text)
}

async fn limits(State(service): State<Arc<Service>>) -> Json<Value> {
    let snapshot = service.snapshot();
    let domains: Vec<_> = snapshot.rules.domains().map(domain).collect();
    Json(json!({ "domains": domains }))
}

fn domain(domain: &Domain) -> Value {
    json!({
        "domain": domain.name(),
        "source": domain.source().display().to_string(),
        "slot_by": domain.slot_by(),
        "on_store_failure": domain.on_store_failure().map(|policy| policy.name()),
        "rules": domain.rules().map(rule).collect::<Vec<_>>(),
    })
}

fn rule(rule: &Rule) -> Value {
    json!({
        "rule": rule.path(),
        "shadow": rule.shadow(),
        "unlimited": rule.unlimited().is_some(),
        "limits": rule.limits().iter().map(rule_limit).collect::<Vec<_>>(),
    })
}

fn rule_limit(rule_limit: &RuleLimit) -> Value {
    let limit: &Limit = rule_limit.limit();
    let mut value = json!({
        "name": rule_limit.name(),
        "limit": limit.hits(),
        "period": format_period(limit.period_ms()),
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
