//! `GET /limits`: the rules in force, as JSON.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};

use super::pages::Pages;
use crate::clock::moment;
use crate::decision::Enforcement;
use crate::limit::display::FieldValue;
use crate::rules::{Domain, Rule, RuleLimit};
use crate::service::Refusal;

pub(super) async fn show(State(pages): State<Arc<Pages>>) -> Json<Value> {
    // Rendering a hundred thousand rules takes long: not on a thread that answers requests.
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

/// The limits files that were refused last, and why.
fn refused(refusal: &Refusal) -> Value {
    let mistakes = refusal.errors.iter().map(ToString::to_string).collect::<Vec<_>>();
    json!({ "at": moment(refusal.at_ms), "mistakes": mistakes })
}

/// A domain and its rules.
pub fn domain(domain: &Domain) -> Value {
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
        "shadow": rule.enforcement() == Enforcement::Shadow,
        "quota": rule.enforcement() == Enforcement::Quota,
        "share_threshold": rule.shares(),
        "unlimited": rule.unlimited().is_some(),
        "limits": rule.limits().iter().map(rule_limit).collect::<Vec<_>>(),
    })
}

fn rule_limit(rule_limit: &RuleLimit) -> Value {
    let mut value = json!({ "name": rule_limit.name() });
    for (name, field) in rule_limit.limit().fields() {
        value[name] = match field {
            FieldValue::Number(number) => number.into(),
            FieldValue::Flag(flag) => flag.into(),
            FieldValue::Text(text) => text.into(),
        };
    }
    value
}
