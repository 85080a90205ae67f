//! `tidegate query`: sends one check to a running service and prints the decision.
//!
//! The exit code says whether the request is allowed, so that scripts can branch on it. The service
//! decides; this command only prints. The default output is a table for people; `--json` prints one
//! object for programs, with times in milliseconds. TLS certificates are always verified.

use std::fmt::Write;
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use http::Uri;
use hyper_util::rt::TokioIo;
use prost_types::Duration as ProtoDuration;
use serde_json::{Value, json};
use tonic::Code;
use tonic::transport::{Channel, Endpoint};

use super::dial::{Port, Target};
use crate::entries;
use crate::limit::display::Rate;
use crate::period;
use crate::printable::printable;
use crate::proto::tidegate::v1::rate_limit_service_client::RateLimitServiceClient;
use crate::proto::tidegate::v1::{
    Algorithm, CheckRateLimitRequest, CheckRateLimitResponse, Decision, DecisionSource, Descriptor,
    Entry, GetQuotaRequest, GetQuotaResponse, LimitStatus,
};
use crate::settings::{Entries, Query};

/// The deadline for the answer.
const DEADLINE: Duration = Duration::from_secs(5);

/// Sends the request, prints the answer, and returns whether the request is allowed.
///
/// # Errors
/// The service could not be reached, or did not decide. The text gives the reason.
pub fn run(query: &Query) -> Result<bool, String> {
    let runtime = super::runtime()?;
    let answer = runtime.block_on(ask(query))?;
    let text =
        if query.json { format!("{}\n", json(query, &answer)) } else { table(query, &answer) };
    super::print(&text)?;
    Ok(answer.decision() == Decision::Allowed)
}

async fn ask(query: &Query) -> Result<CheckRateLimitResponse, String> {
    let target = Target::new(&query.addr, &query.client, Port::Grpc)?;
    let mut client = RateLimitServiceClient::new(connect(&target).await?);
    let domain = query.domain.clone();
    let descriptors = query.descriptors.iter().map(descriptor).collect();
    let answer = if query.peek {
        let quota = client.get_quota(GetQuotaRequest { domain, descriptors }).await;
        quota.map(|quota| of_quota(quota.into_inner()))
    } else {
        let (hits, refund) = (query.hits.unwrap_or(0), query.refund);
        let request = CheckRateLimitRequest { domain, descriptors, hits, refund };
        client.check_rate_limit(request).await.map(tonic::Response::into_inner)
    };
    let answer = match answer {
        Ok(answer) => answer,
        Err(status) => return Err(refusal(&target, &status).await),
    };
    if answer.decision() == Decision::Unspecified {
        let message = "the service answers without a decision: it is older than this program";
        return Err(message.to_owned());
    }
    Ok(answer)
}

/// Connects to a service.
pub(super) async fn connect(target: &Target) -> Result<Channel, String> {
    // The target's own name is used: the connection is made by the target.
    let endpoint = Endpoint::from_static("http://tidegate").timeout(DEADLINE);
    let dialed = target.clone();
    let connect = tower::service_fn(move |_: Uri| {
        let target = dialed.clone();
        async move { target.connect().await.map(TokioIo::new) }
    });
    // The cause is the target's own message.
    let connected = endpoint.connect_with_connector(connect).await;
    connected.map_err(|error| first_cause(&error).to_string())
}

/// Why a call has no answer.
pub(super) async fn refusal(target: &Target, status: &tonic::Status) -> String {
    let cause = std::error::Error::source(status).map(first_cause);
    let cause = cause.map_or_else(String::new, |cause| format!(": {cause}"));
    let text = format!("{:?}: {}{cause}", status.code(), status.message());
    if status.code() == Code::Unimplemented {
        return format!(
            "{target} does not offer this call ({text}): it is another port of Tidegate, or another service"
        );
    }
    // Without a cause it is the answer of a service.
    if cause.is_empty() { text } else { target.explain(&cause).await.unwrap_or(text) }
}

/// The innermost error has the specific cause, such as a refused connection.
fn first_cause(error: &dyn std::error::Error) -> &dyn std::error::Error {
    std::iter::successors(Some(error), |error| error.source()).last().unwrap_or(error)
}

pub(super) fn descriptor(entries: &Entries) -> Descriptor {
    let entry = |(key, value): &(String, String)| Entry { key: key.clone(), value: value.clone() };
    Descriptor { entries: entries.0.iter().map(entry).collect(), hits: None }
}

/// Converts a quota to an answer of a check, which has more fields.
fn of_quota(quota: GetQuotaResponse) -> CheckRateLimitResponse {
    let GetQuotaResponse { decision, statuses, source } = quota;
    CheckRateLimitResponse { decision, statuses, source, ..Default::default() }
}

fn ms(duration: ProtoDuration) -> u64 {
    let seconds = u64::try_from(duration.seconds).unwrap_or(0);
    seconds.saturating_mul(1_000) + u64::try_from(duration.nanos).unwrap_or(0) / 1_000_000
}

fn period(duration: Option<ProtoDuration>) -> String {
    duration.map_or_else(|| "-".to_owned(), |duration| period::format(ms(duration)))
}

fn name(descriptors: &[Entries], status: &LimitStatus) -> String {
    let entries = usize::try_from(status.descriptor).ok().and_then(|at| descriptors.get(at));
    let mut text = String::new();
    for (key, value) in entries.into_iter().flat_map(|entries| &entries.0) {
        entries::push(&mut text, key, value);
    }
    text
}

fn table(query: &Query, answer: &CheckRateLimitResponse) -> String {
    let allowed = answer.decision() == Decision::Allowed;
    let colour = if allowed { AnsiColor::Green } else { AnsiColor::Red };
    let style = Style::new().bold().fg_color(Some(colour.into()));
    let mut text = format!("{style}{}{style:#}", if allowed { "allowed" } else { "rejected" });
    if let Some(wait) = answer.retry_after {
        let _ = write!(text, ", would pass in {}", period(Some(wait)));
    } else if !allowed && !query.peek && is_of_limits(answer) {
        text.push_str(", and would never be allowed under this limit");
    }
    if let Some(delay) = answer.delay {
        let _ = write!(text, ", hold it for {}", period(Some(delay)));
    }
    text.push('\n');
    if answer.statuses.is_empty() {
        text.push_str("no limit applies to these descriptors\n");
        return text;
    }
    text + &columns(&query.descriptors, &answer.statuses)
}

/// The statuses in columns, one per line.
pub(super) fn columns(descriptors: &[Entries], statuses: &[LimitStatus]) -> String {
    let header = ["DESCRIPTOR", "RULE", "WITHIN", "LIMIT", "REMAINING", "FULL IN", "RETRY IN"];
    let rows = statuses.iter().map(|status| row(descriptors, status));
    let rows: Vec<_> = std::iter::once(header.map(String::from)).chain(rows).collect();
    super::columns(&rows)
}

fn row(descriptors: &[Entries], status: &LimitStatus) -> [String; 7] {
    let within = match (status.within_limit, status.shadow) {
        (true, _) => "yes",
        (false, false) => "no",
        (false, true) => "no (shadow)",
    };
    let (limit, remaining) = if status.unlimited {
        ("unlimited".to_owned(), "-".to_owned())
    } else {
        let rate = |period| Rate { hits: status.limit, period_ms: ms(period) }.to_string();
        let limit = status.period.map_or_else(|| "-".to_owned(), rate);
        (limit, status.remaining.to_string())
    };
    let retry = period(status.retry_after);
    let reset = period(status.reset_after);
    let descriptor = printable(&name(descriptors, status)).into_owned();
    let rule = printable(&status.rule).into_owned();
    [descriptor, rule, within.into(), limit, remaining, reset, retry]
}

/// Whether limits decided: while Redis does not answer, the failure policy may reject regardless of
/// limits.
fn is_of_limits(answer: &CheckRateLimitResponse) -> bool {
    answer.source() != DecisionSource::Fallback
}

/// Milliseconds until a rejected request would be allowed, -1 if that is never; null if it is
/// allowed or if the time is unknown.
fn retry_ms(is_known: bool, retry_after: Option<ProtoDuration>) -> Value {
    match retry_after {
        Some(wait) => json!(ms(wait)),
        None if is_known => json!(-1),
        None => Value::Null,
    }
}

fn json(query: &Query, answer: &CheckRateLimitResponse) -> Value {
    let allowed = answer.decision() == Decision::Allowed;
    let is_of_limits = is_of_limits(answer);
    let status = |status: &LimitStatus| {
        json!({
            "descriptor": name(&query.descriptors, status),
            "rule": status.rule,
            "within_limit": status.within_limit,
            "limit": status.limit,
            "remaining": status.remaining,
            "reset_after_ms": status.reset_after.map(ms),
            "retry_after_ms": retry_ms(is_of_limits && !status.within_limit, status.retry_after),
            "period_ms": status.period.map(ms),
            "algorithm": short(Algorithm::as_str_name(&status.algorithm()), "ALGORITHM_"),
            "shadow": status.shadow,
            "unlimited": status.unlimited,
        })
    };
    json!({
        "allowed": allowed,
        "delay_ms": answer.delay.map_or(0, ms),
        // A quota has no such value for the whole request.
        "retry_after_ms": retry_ms(is_of_limits && !allowed && !query.peek, answer.retry_after),
        "source": short(answer.source().as_str_name(), "DECISION_SOURCE_"),
        "statuses": answer.statuses.iter().map(status).collect::<Vec<_>>(),
    })
}

fn short(name: &str, prefix: &str) -> String {
    name.strip_prefix(prefix).unwrap_or(name).to_lowercase()
}
