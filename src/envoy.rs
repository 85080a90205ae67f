//! Answers in the words of Envoy's rate limit service, over gRPC and over HTTP.

use bytes::{Buf, BufMut};
use prost::encoding::{DecodeContext, WireType};
use prost::{DecodeError, Message};

use crate::decide::Enforcement;
use crate::limit::Limit;
use crate::proto::duration;
use crate::proto::envoy::service::ratelimit::v3::RateLimitResponse;
use crate::proto::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit;
use crate::proto::envoy::service::ratelimit::v3::rate_limit_response::{
    Code, DescriptorStatus, RateLimit,
};
use crate::request::Request;
use crate::service::{Answer, LimitStatus};

mod headers;
mod metadata;

pub use headers::Headers;

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

/// What answers carry beside the decision.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// Headers for the caller behind the proxy.
    pub headers: Headers,
    /// Whether to tell the proxy the rules met, those that reject, and what is configured for them.
    pub dynamic_metadata: bool,
}

/// The answer to one request.
///
/// The dynamic metadata are kept as the bytes that they are on the wire: as messages they would cost
/// an allocation for each word.
#[derive(Clone, Debug, Default)]
pub struct Reply {
    response: RateLimitResponse,
    metadata: Vec<u8>,
}

impl Reply {
    /// The answer with a status for each of the request's descriptors, in order.
    pub fn of(request: &Request, answer: &Answer<'_>, style: Style) -> Self {
        let descriptors = 0..request.descriptors().len();
        let code = if answer.allowed { Code::Ok } else { Code::OverLimit };
        let response = RateLimitResponse {
            overall_code: code.into(),
            statuses: descriptors.map(|at| descriptor_status(answer, at)).collect(),
            response_headers_to_add: headers::of(answer, style.headers),
            raw_body: raw_body(answer).map_or_else(Default::default, |body| body.to_owned().into()),
            ..RateLimitResponse::default()
        };
        let metadata = if style.dynamic_metadata {
            metadata::encoded(request.domain(), answer)
        } else {
            Vec::new()
        };
        Self { response, metadata }
    }

    /// Whether the request is rejected.
    pub fn is_over_limit(&self) -> bool {
        self.response.overall_code() == Code::OverLimit
    }
}

impl Message for Reply {
    fn encode_raw(&self, buffer: &mut impl BufMut) {
        self.response.encode_raw(buffer);
        buffer.put_slice(&self.metadata);
    }

    fn merge_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        buffer: &mut impl Buf,
        context: DecodeContext,
    ) -> Result<(), DecodeError> {
        self.response.merge_field(tag, wire_type, buffer, context)
    }

    fn encoded_len(&self) -> usize {
        self.response.encoded_len() + self.metadata.len()
    }

    fn clear(&mut self) {
        *self = Self::default();
    }
}

/// The body that the rule that rejects wants shown, or its domain.
fn raw_body<'a>(answer: &Answer<'a>) -> Option<&'a str> {
    if answer.allowed {
        return None;
    }
    let own = answer.statuses.iter().filter(|status| rejects(status));
    let own = own.filter_map(|status| status.matched?.raw_body()).next();
    own.or_else(|| answer.domain?.raw_body())
}

const fn rejects(status: &LimitStatus<'_>) -> bool {
    !status.status.within_limit && !matches!(status.enforcement, Enforcement::Shadow)
}

/// Of several limits the one that rejects, the longest to wait for first; else the one with
/// least remaining.
fn tightest<'a, 's>(
    statuses: impl Iterator<Item = &'a LimitStatus<'s>> + Clone,
) -> Option<&'a LimitStatus<'s>>
where
    's: 'a,
{
    let wait = |status: &&LimitStatus<'_>| status.status.retry_after_ms.unwrap_or(u64::MAX);
    let rejecting = statuses.clone().filter(|status| rejects(status)).max_by_key(wait);
    let limited = statuses.filter(|status| status.limit.is_some());
    rejecting.or_else(|| limited.min_by_key(|status| status.status.remaining))
}

fn descriptor_status(answer: &Answer<'_>, descriptor: usize) -> DescriptorStatus {
    let met = answer.statuses.iter().filter(|status| status.descriptor == descriptor);
    match tightest(met.clone()) {
        Some(status) if rejects(status) => over_limit(status),
        Some(status) => within_limit(status),
        None => DescriptorStatus {
            code: Code::Ok.into(),
            limit_remaining: if met.clone().next().is_some() { u32::MAX } else { 0 },
            ..DescriptorStatus::default()
        },
    }
}

/// Seconds until the request could pass where it is over the limit, at least one; one that never
/// could is told when the limit is full again. Else until the limit is full again.
fn seconds(status: &LimitStatus<'_>) -> u64 {
    let reset_after_ms = status.status.reset_after_ms;
    if rejects(status) {
        status.status.retry_after_ms.unwrap_or(reset_after_ms).div_ceil(1_000).max(1)
    } else {
        reset_after_ms.div_ceil(1_000)
    }
}

fn within_limit(status: &LimitStatus<'_>) -> DescriptorStatus {
    DescriptorStatus {
        code: Code::Ok.into(),
        current_limit: status.limit.map(|limit| current_limit(&limit, status)),
        limit_remaining: remaining(status),
        duration_until_reset: Some(duration(status.status.reset_after_ms)),
    }
}

/// Envoy makes Retry-After of the duration.
fn over_limit(status: &LimitStatus<'_>) -> DescriptorStatus {
    DescriptorStatus {
        code: Code::OverLimit.into(),
        current_limit: status.limit.map(|limit| current_limit(&limit, status)),
        limit_remaining: remaining(status),
        duration_until_reset: Some(duration(seconds(status).saturating_mul(1_000))),
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
