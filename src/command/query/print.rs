//! Prints the answer to a query, for people or as JSON.

use std::fmt::Write;

use anstyle::{AnsiColor, Style};
use prost_types::Duration as ProtoDuration;
use serde_json::{Value, json};

use super::answer::Answer;
use crate::entries;
use crate::limit::display::Rate;
use crate::period;
use crate::printable::printable;
use crate::proto::tidegate::v1::{Algorithm, DecisionSource, Explanation, LimitStatus, Match};
use crate::settings::{Entries, Query};

/// The decision in one line, a table of the limits, and a line for each descriptor that has none.
pub(super) fn text(query: &Query, answer: &Answer) -> String {
    let allowed = answer.is_allowed();
    let colour = if allowed { AnsiColor::Green } else { AnsiColor::Red };
    let style = Style::new().bold().fg_color(Some(colour.into()));
    let mut text = format!("{style}{}{style:#}", if allowed { "allowed" } else { "rejected" });
    let is_fallback = answer.check.source() == DecisionSource::Fallback;
    if let Some(wait) = answer.check.retry_after {
        let _ = write!(text, ", would pass in {}", period(Some(wait)));
    } else if !allowed && !query.peek && !is_fallback {
        text.push_str(", and would never be allowed under this limit");
    }
    if let Some(delay) = answer.check.delay {
        let _ = write!(text, ", hold it for {}", period(Some(delay)));
    }
    if is_fallback {
        text.push_str("; the store did not answer, so --on-store-failure decided");
    }
    text.push('\n');
    if answer.check.statuses.is_empty() {
        text.push_str("no limit applies to these descriptors\n");
    } else {
        text += &table(&query.descriptors, &answer.check.statuses, &answer.explanations);
    }
    text + &explained(query, &answer.explanations)
}

/// Why descriptors have no limit, or not their own.
fn explained(query: &Query, explanations: &[Explanation]) -> String {
    let mut lines: Vec<String> = Vec::new();
    for explanation in explanations {
        let Explanation { descriptor_index, path, detail, .. } = explanation;
        let descriptor = name(&query.descriptors, *descriptor_index);
        let line = match explanation.r#match() {
            Match::UnknownDomain => detail.clone(),
            Match::NoRule if path.is_empty() => format!("{descriptor}: {detail}"),
            Match::NoRule => format!("{descriptor}: after the rule {path}, {detail}"),
            Match::Exempt => format!("{descriptor}: exempt by the rule {path}: {detail}"),
            Match::Limited | Match::Unspecified if detail.is_empty() => continue,
            Match::Limited | Match::Unspecified => format!("{descriptor}: {detail}"),
        };
        let line = printable(&line).into_owned() + "\n";
        // An unknown domain is the same for all descriptors.
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines.concat()
}

/// The statuses in columns, one per line.
pub(in crate::command) fn columns(descriptors: &[Entries], statuses: &[LimitStatus]) -> String {
    table(descriptors, statuses, &[])
}

fn table(
    descriptors: &[Entries],
    statuses: &[LimitStatus],
    explanations: &[Explanation],
) -> String {
    let header = ["DESCRIPTOR", "RULE", "WITHIN", "LIMIT", "REMAINING", "FULL IN", "RETRY IN"];
    let rows = statuses.iter().map(|status| row(descriptors, status, explanations));
    let rows: Vec<_> = std::iter::once(header.map(String::from)).chain(rows).collect();
    super::super::columns(&rows)
}

fn row(descriptors: &[Entries], status: &LimitStatus, explanations: &[Explanation]) -> [String; 7] {
    let within = match (status.within_limit, status.shadow) {
        (true, _) => "yes",
        (false, false) => "no",
        (false, true) => "no (shadow)",
    };
    let rate = |period| Rate { hits: status.limit, period_ms: ms(period) }.to_string();
    let limit = status.period.map_or_else(|| "unlimited".to_owned(), rate);
    let remaining = status.remaining.map_or_else(|| "-".to_owned(), |hits| hits.to_string());
    let retry = period(status.retry_after);
    let reset = period(status.reset_after);
    let descriptor = printable(&name(descriptors, status.descriptor_index)).into_owned();
    let rule = printable(&rule(status, explanations)).into_owned();
    [descriptor, rule, within.into(), limit, remaining, reset, retry]
}

/// The limit's name, with the path of its rule where that differs.
fn rule(status: &LimitStatus, explanations: &[Explanation]) -> String {
    let of = |explanation: &&Explanation| explanation.descriptor_index == status.descriptor_index;
    match explanations.iter().find(of) {
        Some(explained) if explained.path != status.rule && !explained.path.is_empty() => {
            format!("{} ({})", status.rule, explained.path)
        }
        Some(_) | None => status.rule.clone(),
    }
}

pub(super) fn json(query: &Query, answer: &Answer) -> Value {
    let status = |status: &LimitStatus| {
        json!({
            "entries": entries(&query.descriptors, status.descriptor_index),
            "rule": status.rule,
            "within_limit": status.within_limit,
            "limit": status.limit,
            "remaining": status.remaining,
            "reset_after_ms": status.reset_after.map(ms),
            "retry_after_ms": status.retry_after.map(ms),
            "period_ms": status.period.map(ms),
            "algorithm": short(Algorithm::as_str_name(&status.algorithm()), "ALGORITHM_"),
            "burst": status.burst,
            "shadow": status.shadow,
            "unlimited": status.unlimited,
        })
    };
    let explanation = |explanation: &Explanation| {
        json!({
            "entries": entries(&query.descriptors, explanation.descriptor_index),
            "match": short(explanation.r#match().as_str_name(), "MATCH_"),
            "path": explanation.path,
            "detail": explanation.detail,
        })
    };
    let check = &answer.check;
    json!({
        "allowed": answer.is_allowed(),
        "delay_ms": check.delay.map_or(0, ms),
        // Null: the request is allowed, or would never be.
        "retry_after_ms": check.retry_after.map(ms),
        "source": short(check.source().as_str_name(), "DECISION_SOURCE_"),
        "statuses": check.statuses.iter().map(status).collect::<Vec<_>>(),
        "explanations": answer.explanations.iter().map(explanation).collect::<Vec<_>>(),
    })
}

fn entries(descriptors: &[Entries], index: u32) -> Value {
    json!(descriptors.get(index as usize).map_or(&[][..], |entries| &entries.0))
}

fn name(descriptors: &[Entries], index: u32) -> String {
    let mut text = String::new();
    for (key, value) in descriptors.get(index as usize).into_iter().flat_map(|entries| &entries.0) {
        entries::push(&mut text, key, value);
    }
    text
}

fn ms(duration: ProtoDuration) -> u64 {
    let seconds = u64::try_from(duration.seconds).unwrap_or(0);
    seconds.saturating_mul(1_000) + u64::try_from(duration.nanos).unwrap_or(0) / 1_000_000
}

fn period(duration: Option<ProtoDuration>) -> String {
    duration.map_or_else(|| "-".to_owned(), |duration| period::format(ms(duration)))
}

fn short(name: &str, prefix: &str) -> String {
    name.strip_prefix(prefix).unwrap_or(name).to_lowercase()
}
