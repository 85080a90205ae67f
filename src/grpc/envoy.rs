//! Answers in the words of Envoy's rate limit service.

use prost_types::Duration;

use crate::limit::Limit;
use crate::proto::envoy::service::ratelimit::v3::RateLimitResponse;
use crate::proto::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit;
use crate::proto::envoy::service::ratelimit::v3::rate_limit_response::{
    Code, DescriptorStatus, RateLimit,
};
use crate::service::{Answer, LimitStatus};

/// Units by length, longest first: a period is told in the longest that divides it.
const UNITS: [(Unit, u64); 7] = [
    (Unit::Year, 365 * 86_400_000),
    (Unit::Month, 30 * 86_400_000),
    (Unit::Week, 7 * 86_400_000),
    (Unit::Day, 86_400_000),
    (Unit::Hour, 3_600_000),
    (Unit::Minute, 60_000),
    (Unit::Second, 1_000),
];

/// The answer with a status for each of `descriptors`, in order.
pub(super) fn response(answer: &Answer<'_>, descriptors: usize) -> RateLimitResponse {
    let statuses = (0..descriptors).map(|at| descriptor_status(answer, at)).collect();
    let code = if answer.allowed { Code::Ok } else { Code::OverLimit };
    RateLimitResponse { overall_code: code.into(), statuses, ..RateLimitResponse::default() }
}

const fn rejects(status: &LimitStatus<'_>) -> bool {
    !status.status.within_limit && !status.shadow
}

/// Of several limits the one that rejects, the longest to wait for first; else the one with
/// least remaining.
fn descriptor_status(answer: &Answer<'_>, descriptor: usize) -> DescriptorStatus {
    let met = || answer.statuses.iter().filter(|status| status.descriptor == descriptor);
    let wait = |status: &&LimitStatus<'_>| status.status.retry_after_ms.unwrap_or(u64::MAX);
    if let Some(status) = met().filter(|status| rejects(status)).max_by_key(wait) {
        return over_limit(status);
    }
    let limited = met().filter(|status| status.limit.is_some());
    match limited.min_by_key(|status| status.status.remaining) {
        Some(status) => within_limit(status),
        None => DescriptorStatus {
            code: Code::Ok.into(),
            limit_remaining: if met().next().is_some() { u32::MAX } else { 0 },
            ..DescriptorStatus::default()
        },
    }
}

fn within_limit(status: &LimitStatus<'_>) -> DescriptorStatus {
    DescriptorStatus {
        code: Code::Ok.into(),
        current_limit: status.limit.map(|limit| current_limit(&limit, status)),
        limit_remaining: remaining(status),
        duration_until_reset: Some(super::duration(status.status.reset_after_ms)),
    }
}

/// Envoy makes Retry-After of the duration: until this request could pass, in whole seconds. One
/// that never could is told when the limit is full again.
fn over_limit(status: &LimitStatus<'_>) -> DescriptorStatus {
    let wait_ms = status.status.retry_after_ms.unwrap_or(status.status.reset_after_ms);
    let seconds = i64::try_from(wait_ms.div_ceil(1_000).max(1)).unwrap_or(i64::MAX);
    DescriptorStatus {
        code: Code::OverLimit.into(),
        current_limit: status.limit.map(|limit| current_limit(&limit, status)),
        limit_remaining: remaining(status),
        duration_until_reset: Some(Duration { seconds, nanos: 0 }),
    }
}

fn remaining(status: &LimitStatus<'_>) -> u32 {
    u32::try_from(status.status.remaining).unwrap_or(u32::MAX)
}

fn current_limit(limit: &Limit, status: &LimitStatus<'_>) -> RateLimit {
    let period_ms = limit.period_ms();
    let fits = |(_, unit_ms): &&(Unit, u64)| {
        period_ms.is_multiple_of(*unit_ms) && u32::try_from(period_ms / *unit_ms).is_ok()
    };
    let unit = UNITS.iter().find(fits);
    let multiplier = unit.and_then(|(_, unit_ms)| u32::try_from(period_ms / unit_ms).ok());
    RateLimit {
        requests_per_unit: u32::try_from(limit.hits()).unwrap_or(u32::MAX),
        unit: unit.map_or(Unit::Unknown, |(unit, _)| *unit).into(),
        name: if status.named { status.rule.to_owned() } else { String::new() },
        unit_multiplier: multiplier.filter(|multiplier| *multiplier > 1),
    }
}
