//! `tidegate query`: sends one check to a running service and prints the decision.
//!
//! The exit code says whether the request is allowed, so that scripts can branch on it. The service
//! decides; this command only prints. The default output is a table for people; `--json` prints one
//! object for programs, with times in milliseconds. TLS certificates are always verified.

mod answer;
mod print;

use std::time::Duration;

use http::Uri;
use hyper_util::rt::TokioIo;
use tonic::Code;
use tonic::transport::{Channel, Endpoint};

use self::answer::Answer;
pub(super) use self::print::columns;
use super::dial::{Port, Target};
use crate::proto::tidegate::v1::rate_limit_service_client::RateLimitServiceClient;
use crate::proto::tidegate::v1::{
    CheckRateLimitRequest, Decision, Descriptor, Entry, GetQuotaRequest, RefundHitsRequest,
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
    let text = if query.json {
        format!("{}\n", print::json(query, &answer))
    } else {
        print::text(query, &answer)
    };
    super::print(&text)?;
    Ok(answer.is_allowed())
}

async fn ask(query: &Query) -> Result<Answer, String> {
    let target = Target::new(&query.addr, &query.client, Port::Grpc)?;
    let mut client = RateLimitServiceClient::new(connect(&target).await?);
    let domain = query.domain.clone();
    let mut descriptors: Vec<_> = query.descriptors.iter().map(descriptor).collect();
    let hits = query.hits;
    let explained =
        GetQuotaRequest { domain: domain.clone(), descriptors: descriptors.clone(), explain: true };
    let answer = if query.peek {
        // The request has no hits of its own.
        descriptors.iter_mut().for_each(|descriptor| descriptor.hits = hits);
        let request = GetQuotaRequest { domain, descriptors, explain: true };
        client.get_quota(request).await.map(|quota| Answer::of_quota(quota.into_inner()))
    } else if query.refund {
        let request = RefundHitsRequest { domain, descriptors, hits };
        client.refund_hits(request).await.map(|refund| Answer::of_refund(refund.into_inner()))
    } else {
        let request = CheckRateLimitRequest { domain, descriptors, hits };
        client.check_rate_limit(request).await.map(|check| Answer::of_check(check.into_inner()))
    };
    let mut answer = match answer {
        Ok(answer) => answer,
        Err(status) => return Err(refusal(&target, &status).await),
    };
    if answer.check.decision() == Decision::Unspecified {
        let message = "the service answers without a decision: it is older than this program";
        return Err(message.to_owned());
    }
    if answer.explanations.is_empty() {
        // Only a help for people: the decision stands without it.
        let explained = client.get_quota(explained).await.map(tonic::Response::into_inner);
        answer.explanations = explained.map(|quota| quota.explanations).unwrap_or_default();
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
