//! The declaration of each RPC of the rate limit services: its path, how its message is read, and
//! how its answer is written.
//!
//! To add one, declare it here, and add its line in `routes`.

use prost::Message;
use tonic_health::pb::health_server::SERVICE_NAME as HEALTH;

use crate::decision::{Enforcement, Source};
use crate::envoy::{Reply, Style};
use crate::proto::duration;
use crate::proto::tidegate::v1 as api;
use crate::request::{Bounds, Request, RequestError};
use crate::service::{Answer, Explanation, LimitAnswer, Match};

/// An RPC whose answer is a decision.
pub(crate) trait Rpc {
    /// `/service/method`, which also names it in traces.
    const PATH: &'static str;

    /// The message that answers.
    type Response: Message + 'static;

    /// Parses the caller's message.
    fn read(message: &[u8], bounds: &Bounds) -> Result<Request, RequestError>;

    /// Makes the message that answers. `style` applies to answers to Envoy.
    fn write(request: &Request, answer: &Answer<'_>, style: Style) -> Self::Response;
}

/// Envoy's check.
pub(crate) struct ShouldRateLimit;

/// Tidegate's check.
pub(crate) struct CheckRateLimit;

/// Reads counters and takes nothing.
pub(crate) struct GetQuota;

/// Gives hits back.
pub(crate) struct RefundHits;

/// Reflection, and the same by the name that older clients and Python's call. tonic does not export
/// these names.
const REFLECTION: &str = "grpc.reflection.v1.ServerReflection";
const REFLECTION_ALPHA: &str = "grpc.reflection.v1alpha.ServerReflection";

/// The services of the gRPC port. Those of the admin port are not included.
pub(crate) const SERVICES: [&str; 5] = [
    service(CheckRateLimit::PATH),
    service(ShouldRateLimit::PATH),
    HEALTH,
    REFLECTION,
    REFLECTION_ALPHA,
];

impl Rpc for ShouldRateLimit {
    const PATH: &'static str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
    type Response = Reply;

    fn read(message: &[u8], bounds: &Bounds) -> Result<Request, RequestError> {
        Request::from_envoy(message, bounds)
    }

    fn write(request: &Request, answer: &Answer<'_>, style: Style) -> Reply {
        Reply::of(request, answer, style)
    }
}

impl Rpc for CheckRateLimit {
    const PATH: &'static str = "/tidegate.v1.RateLimitService/CheckRateLimit";
    type Response = api::CheckRateLimitResponse;

    fn read(message: &[u8], bounds: &Bounds) -> Result<Request, RequestError> {
        Request::from_check(message, bounds)
    }

    fn write(_: &Request, answer: &Answer<'_>, _: Style) -> api::CheckRateLimitResponse {
        check_response(answer)
    }
}

impl Rpc for GetQuota {
    const PATH: &'static str = "/tidegate.v1.RateLimitService/GetQuota";
    type Response = api::GetQuotaResponse;

    fn read(message: &[u8], bounds: &Bounds) -> Result<Request, RequestError> {
        Request::from_quota(message, bounds)
    }

    fn write(_: &Request, answer: &Answer<'_>, _: Style) -> api::GetQuotaResponse {
        api::GetQuotaResponse {
            decision: decision(answer).into(),
            statuses: answer.limits.iter().map(limit_status).collect(),
            source: source(answer).into(),
            explanations: answer.explanations.iter().map(explanation).collect(),
        }
    }
}

impl Rpc for RefundHits {
    const PATH: &'static str = "/tidegate.v1.RateLimitService/RefundHits";
    type Response = api::RefundHitsResponse;

    fn read(message: &[u8], bounds: &Bounds) -> Result<Request, RequestError> {
        Request::from_refund(message, bounds)
    }

    fn write(_: &Request, answer: &Answer<'_>, _: Style) -> api::RefundHitsResponse {
        api::RefundHitsResponse {
            statuses: answer.limits.iter().map(limit_status).collect(),
            source: source(answer).into(),
        }
    }
}

/// The service in `/service/method`.
const fn service(path: &'static str) -> &'static str {
    let (_slash, rest) = path.split_at(1);
    let mut end = 0;
    while rest.as_bytes()[end] != b'/' {
        end += 1;
    }
    rest.split_at(end).0
}

/// Whether a call's path is that of a health check or watch.
pub(super) fn is_health(path: &str) -> bool {
    is_of(HEALTH, path)
}

/// Whether a call's path is that of reflection.
pub(super) fn is_reflection(path: &str) -> bool {
    is_of(REFLECTION, path) || is_of(REFLECTION_ALPHA, path)
}

fn is_of(service: &str, path: &str) -> bool {
    let rest = path.strip_prefix('/').and_then(|path| path.strip_prefix(service));
    rest.is_some_and(|rest| rest.starts_with('/'))
}

/// The message that answers a check.
pub fn check_response(answer: &Answer<'_>) -> api::CheckRateLimitResponse {
    api::CheckRateLimitResponse {
        decision: decision(answer).into(),
        delay: Some(answer.delay_ms).filter(|ms| *ms > 0).map(duration),
        retry_after: answer.retry_after_ms.map(duration),
        source: source(answer).into(),
        statuses: answer.limits.iter().map(limit_status).collect(),
    }
}

const fn decision(answer: &Answer<'_>) -> api::Decision {
    if answer.allowed { api::Decision::Allowed } else { api::Decision::Rejected }
}

const fn source(answer: &Answer<'_>) -> api::DecisionSource {
    match answer.source {
        Source::Store => api::DecisionSource::Store,
        Source::DenyCache => api::DecisionSource::DenyCache,
        Source::Fallback => api::DecisionSource::Fallback,
        Source::NoLimit => api::DecisionSource::NoLimit,
    }
}

pub(super) fn limit_status(limit: &LimitAnswer<'_>) -> api::LimitStatus {
    let definition = limit.definition;
    api::LimitStatus {
        descriptor_index: u32::try_from(limit.descriptor).unwrap_or(u32::MAX),
        rule: limit.rule.to_owned(),
        within_limit: limit.status.within_limit,
        limit: definition.map_or(0, |definition| definition.hits()),
        remaining: definition.map(|_| limit.status.remaining),
        reset_after: definition.map(|_| duration(limit.status.reset_after_ms)),
        retry_after: limit.status.retry_after_ms.map(duration),
        period: definition.map(|definition| duration(definition.period_ms())),
        algorithm: definition.map_or(0, |definition| definition.algorithm() as i32),
        shadow: limit.enforcement == Enforcement::Shadow,
        unlimited: definition.is_none(),
        burst: definition.map_or(0, |definition| definition.capacity()),
    }
}

fn explanation(explanation: &Explanation) -> api::Explanation {
    let matches = match explanation.matches {
        Match::Limited => api::Match::Limited,
        Match::Exempt => api::Match::Exempt,
        Match::NoRule => api::Match::NoRule,
        Match::UnknownDomain => api::Match::UnknownDomain,
    };
    api::Explanation {
        descriptor_index: u32::try_from(explanation.descriptor).unwrap_or(u32::MAX),
        r#match: matches.into(),
        path: explanation.path.clone(),
        detail: explanation.detail.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::Algorithm;

    #[test]
    fn the_services_are_those_of_the_rpcs_and_of_tonic() {
        let names = [
            "tidegate.v1.RateLimitService",
            "envoy.service.ratelimit.v3.RateLimitService",
            "grpc.health.v1.Health",
            "grpc.reflection.v1.ServerReflection",
            "grpc.reflection.v1alpha.ServerReflection",
        ];
        assert_eq!(SERVICES, names);
        assert!(is_health("/grpc.health.v1.Health/Check"));
        assert!(!is_health("/grpc.health.v1.HealthX/Check") && !is_health("grpc.health.v1"));
    }

    #[test]
    fn an_algorithm_has_its_number_in_the_protobuf_enum() {
        for algorithm in Algorithm::ALL {
            let sent = api::Algorithm::try_from(algorithm as i32).unwrap();
            let name = format!("ALGORITHM_{}", algorithm.name().to_uppercase());
            assert_eq!(sent.as_str_name(), name);
        }
    }
}
