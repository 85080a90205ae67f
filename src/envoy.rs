//! Answers in the words of Envoy's rate limit service, over gRPC and over HTTP.

use bytes::{Buf, BufMut};
use prost::encoding::{DecodeContext, WireType, skip_field};
use prost::{DecodeError, Message};

use crate::decision::Enforcement;
use crate::limit::Limit;
use crate::period;
use crate::proto::envoy::service::ratelimit::v3::rate_limit_response::Code;
use crate::proto::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit;
use crate::request::Request;
use crate::service::{Answer, LimitStatus};

mod headers;
mod metadata;
mod status;
mod wire;

use status::{Told, ToldLimit};
use wire::{push_head, push_number, push_sized, sized};

pub use headers::Headers;

const OVERALL_CODE: u8 = wire::number(1);
const RESPONSE_HEADERS: u8 = sized(3);
const RAW_BODY: u8 = sized(5);

/// Bytes of most statuses, and of what else there is.
const USUAL_STATUS_BYTES: usize = 64;
const USUAL_BYTES: usize = 128;

/// What answers carry beside the decision.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// Headers for the caller behind the proxy.
    pub headers: Headers,
    /// Whether to tell the proxy the rules met, those that reject, and what is configured for them.
    pub dynamic_metadata: bool,
}

/// The answer to one request: a `RateLimitResponse` as the bytes that it is on the wire.
#[derive(Clone, Debug, Default)]
pub struct Reply {
    bytes: Vec<u8>,
    is_over_limit: bool,
}

impl Reply {
    /// The answer with a status for each of the request's descriptors, in order.
    pub fn of(request: &Request, answer: &Answer<'_>, style: Style) -> Self {
        let code = if answer.allowed { Code::Ok } else { Code::OverLimit };
        let descriptors = request.descriptors().len();
        let mut bytes = Vec::with_capacity(USUAL_BYTES + descriptors * USUAL_STATUS_BYTES);
        push_number(&mut bytes, OVERALL_CODE, code as u64);
        for descriptor in 0..descriptors {
            told(answer, descriptor).push(&mut bytes);
        }
        for header in headers::of(answer, style.headers) {
            push_head(&mut bytes, RESPONSE_HEADERS, header.encoded_len());
            header.encode_raw(&mut bytes);
        }
        if let Some(body) = raw_body(answer) {
            push_sized(&mut bytes, RAW_BODY, body.as_bytes());
        }
        if style.dynamic_metadata {
            metadata::push(&mut bytes, request.domain(), answer);
        }
        Self { bytes, is_over_limit: !answer.allowed }
    }

    /// Whether the request is rejected.
    pub const fn is_over_limit(&self) -> bool {
        self.is_over_limit
    }
}

impl Message for Reply {
    fn encode_raw(&self, buffer: &mut impl BufMut) {
        buffer.put_slice(&self.bytes);
    }

    /// Nobody reads one.
    fn merge_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        buffer: &mut impl Buf,
        context: DecodeContext,
    ) -> Result<(), DecodeError> {
        skip_field(wire_type, tag, buffer, context)
    }

    fn encoded_len(&self) -> usize {
        self.bytes.len()
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

fn told<'a>(answer: &Answer<'a>, descriptor: usize) -> Told<'a> {
    let met = answer.statuses.iter().filter(|status| status.descriptor == descriptor);
    let Some(status) = tightest(met.clone()) else {
        let remaining = if met.clone().next().is_some() { u32::MAX } else { 0 };
        return Told { code: Code::Ok, limit: None, remaining, reset_after_ms: None };
    };
    let limit = status.limit.map(|limit| told_limit(&limit, status));
    let remaining = u32::try_from(status.status.remaining).unwrap_or(u32::MAX);
    let (code, reset_after_ms) = if rejects(status) {
        // Envoy makes Retry-After of it.
        (Code::OverLimit, seconds(status).saturating_mul(1_000))
    } else {
        (Code::Ok, status.status.reset_after_ms)
    };
    Told { code, limit, remaining, reset_after_ms: Some(reset_after_ms) }
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

fn told_limit<'a>(limit: &Limit, status: &LimitStatus<'a>) -> ToldLimit<'a> {
    let (unit, multiplier) = unit_of(limit.period_ms()).unwrap_or((Unit::Unknown, 1));
    ToldLimit {
        requests: u32::try_from(limit.hits()).unwrap_or(u32::MAX),
        unit,
        multiplier,
        name: if status.named && is_quotable(status.rule) { status.rule } else { "" },
    }
}

/// Whether a name can stand between quotes in a header: Envoy writes it there as it is. Limits files
/// have no names with control characters.
fn is_quotable(name: &str) -> bool {
    !name.contains(['"', '\\'])
}

/// The longest unit that a period is whole ones of, and how many.
fn unit_of(period_ms: u64) -> Option<(Unit, u32)> {
    let (unit, count) = period::Unit::longest_of(period_ms)?;
    let unit = match unit {
        period::Unit::Second => Unit::Second,
        period::Unit::Minute => Unit::Minute,
        period::Unit::Hour => Unit::Hour,
        period::Unit::Day => Unit::Day,
        period::Unit::Week => Unit::Week,
        period::Unit::Month => Unit::Month,
        period::Unit::Year => Unit::Year,
    };
    Some((unit, u32::try_from(count).ok()?))
}
