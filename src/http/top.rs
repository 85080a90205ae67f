//! `GET /top`: the values that are rejected most at the moment.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};

use super::pages::Pages;
use crate::entries;
use crate::metrics::OVERRIDE;
use crate::metrics::top::{Offender, Offenders, WINDOW_SECONDS};
use crate::rules::{Domain, Rule, RuleSet};

/// The rules to show; all unless set.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Filter {
    domain: Option<String>,
    /// A limit's name, or a rule's path.
    rule: Option<String>,
}

pub(super) async fn show(
    State(pages): State<Arc<Pages>>,
    Query(filter): Query<Filter>,
) -> Response {
    let service = &pages.service;
    let names = match filter.names(&service.snapshot().rules) {
        Ok(names) => names,
        Err(message) => return (StatusCode::NOT_FOUND, message).into_response(),
    };
    let top = Arc::clone(&service.metrics().top);
    let left_out = top.left_out();
    // Merging takes milliseconds: not on a thread that answers requests.
    let all = tokio::task::spawn_blocking(move || top.offenders()).await.unwrap_or_default();
    let is_wanted = |one: &&Offenders| {
        let in_domain = filter.domain.as_ref().is_none_or(|domain| *domain == one.domain);
        in_domain && names.as_ref().is_none_or(|names| names.contains(&one.rule))
    };
    let rules: Vec<_> = all.iter().filter(is_wanted).map(rule).collect();
    let seconds = [WINDOW_SECONDS, 2 * WINDOW_SECONDS];
    Json(json!({ "of_last_seconds": seconds, "left_out": left_out, "rules": rules }))
        .into_response()
}

impl Filter {
    /// The names under which the wanted limits are counted; `None` for all.
    ///
    /// # Errors
    /// The rules in force have no such domain or rule.
    fn names(&self, rules: &RuleSet) -> Result<Option<Vec<String>>, String> {
        let is_wanted = |domain: &&Domain| self.domain.as_ref().is_none_or(|d| d == domain.name());
        let domains: Vec<_> = rules.domains().filter(is_wanted).collect();
        if let (true, Some(domain)) = (domains.is_empty(), &self.domain) {
            return Err(format!("no limits of a domain {domain:?} are in force, see /limits\n"));
        }
        let Some(wanted) = &self.rule else { return Ok(None) };
        let rules = domains.iter().flat_map(|domain| domain.rules());
        let mut names: Vec<String> = rules.flat_map(|rule| names_of(rule, wanted)).collect();
        if wanted == OVERRIDE {
            names.push(wanted.clone());
        }
        if names.is_empty() {
            return Err(format!("no rule {wanted:?} is in force, see /limits\n"));
        }
        Ok(Some(names))
    }
}

fn names_of<'r>(rule: &'r Rule, wanted: &'r str) -> impl Iterator<Item = String> + 'r {
    let names = rule.limits().iter().map(|limit| limit.name());
    let unlimited = rule.unlimited().map(|unlimited| unlimited.name());
    let is_wanted = move |name: &&str| *name == wanted || rule.path() == wanted;
    names.chain(unlimited).filter(is_wanted).map(str::to_owned)
}

fn rule(one: &Offenders) -> Value {
    let value = |value: &Offender| {
        json!({
            "entries": pairs(&value.entries),
            "rejections": value.rejections,
            "error_max": value.error_max,
            "share": share(value.rejections, one.rejections),
        })
    };
    json!({
        "domain": one.domain,
        "rule": one.rule,
        "rejections": one.rejections,
        "values": one.values.iter().map(value).collect::<Vec<_>>(),
    })
}

/// The entries of their text form. A text that was too long is a hash, and stands in place of a key.
fn pairs(text: &str) -> Vec<(String, String)> {
    entries::parse(text).unwrap_or_else(|_hash| vec![(text.to_owned(), String::new())])
}

/// A share from 0 to 1, rounded to thousandths.
#[allow(clippy::cast_precision_loss)] // counts of seconds
fn share(part: u64, of: u64) -> f64 {
    (part as f64 * 1_000.0 / of.max(1) as f64).round() / 1_000.0
}
