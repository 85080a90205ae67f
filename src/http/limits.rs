//! `GET /limits`: the rules in force, as JSON.
//!
//! With a hundred thousand rules the page has 30 MB. It is made once for each version of the rules,
//! without a tree in memory, and shared by all readers.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Value, json};

use super::pages::{InForceVersion, Pages};
use super::shared_page;
use crate::clock::moment;
use crate::decision::Enforcement;
use crate::limit::display::FieldValue;
use crate::rules::{Domain, Rule, RuleLimit};
use crate::service::{Refusal, Snapshot};

pub(super) async fn show(State(pages): State<Arc<Pages>>) -> Response {
    let (snapshot, refusal) = (pages.service.snapshot(), pages.service.rules().refusal());
    let version = InForceVersion { number: snapshot.load.version, refusal: refusal.clone() };
    let write = move || serde_json::to_vec(&InForce { snapshot: &snapshot, refusal });
    match pages.limits.of(version, write).await {
        Some(page) => shared_page::respond(page, "application/json"),
        None => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

struct InForce<'a> {
    snapshot: &'a Snapshot,
    refusal: Option<Arc<Refusal>>,
}

impl Serialize for InForce<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let load = &self.snapshot.load;
        let files: Vec<_> = load.files.iter().map(|file| file.display().to_string()).collect();
        let mut map = serializer.serialize_map(Some(6))?;
        map.serialize_entry("domains", &Domains(self.snapshot))?;
        map.serialize_entry("files", &files)?;
        map.serialize_entry("hash", &load.hash)?;
        map.serialize_entry("loaded_at", &moment(load.at_ms))?;
        map.serialize_entry("refused", &self.refusal.as_deref().map(refused))?;
        map.serialize_entry("version", &load.version)?;
        map.end()
    }
}

struct Domains<'a>(&'a Snapshot);

impl Serialize for Domains<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.rules.domains().map(OneDomain))
    }
}

struct OneDomain<'a>(&'a Domain);

impl Serialize for OneDomain<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let domain = self.0;
        let sources: Vec<_> = domain.sources().map(|file| file.display().to_string()).collect();
        let mut map = serializer.serialize_map(Some(5))?;
        map.serialize_entry("domain", domain.name())?;
        let policy = domain.on_store_failure().map(|policy| policy.name());
        map.serialize_entry("on_store_failure", &policy)?;
        map.serialize_entry("rules", &DomainRules(domain))?;
        map.serialize_entry("slot_by", &domain.slot_by())?;
        map.serialize_entry("source", &sources.join(", "))?;
        map.end()
    }
}

struct DomainRules<'a>(&'a Domain);

impl Serialize for DomainRules<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.rules().map(rule))
    }
}

/// The limits files that were refused last, and why.
fn refused(refusal: &Refusal) -> Value {
    let mistakes = refusal.errors.iter().map(ToString::to_string).collect::<Vec<_>>();
    json!({ "at": moment(refusal.at_ms), "mistakes": mistakes })
}

/// A domain and its rules.
pub fn domain(domain: &Domain) -> Value {
    // Serializing texts and numbers cannot fail.
    serde_json::to_value(OneDomain(domain)).unwrap_or_default()
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
