//! Encodes the status of one descriptor as a `DescriptorStatus`.

use prost::Message;

use super::tightest::{rejects, seconds, tightest};
use super::wire::{field_len, number, number_len, push_head, push_number, push_sized, sized};
use crate::limit::Limit;
use crate::period;
use crate::proto::duration;
use crate::proto::envoy::service::ratelimit::v3::rate_limit_response::Code;
use crate::proto::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit;
use crate::service::{Answer, LimitAnswer};

const STATUSES: u8 = sized(2);

/// A `DescriptorStatus` before it is encoded.
#[derive(Clone, Copy, Debug)]
pub(super) struct DescriptorStatus<'a> {
    pub(super) code: Code,
    pub(super) limit: Option<CurrentLimit<'a>>,
    pub(super) remaining: u32,
    pub(super) reset_after_ms: Option<u64>,
}

/// The limit that a status reports.
#[derive(Clone, Copy, Debug)]
pub(super) struct CurrentLimit<'a> {
    pub(super) requests: u32,
    pub(super) unit: Unit,
    /// Units per period.
    pub(super) multiplier: u32,
    pub(super) name: &'a str,
}

impl DescriptorStatus<'_> {
    /// Appends the field `statuses` to a response.
    pub(super) fn push(&self, bytes: &mut Vec<u8>) {
        let reset = self.reset_after_ms.map(duration);
        let limit_len = self.limit.map_or(0, |limit| field_len(limit.len()));
        let reset_len = reset.map_or(0, |reset| field_len(reset.encoded_len()));
        let (code, remaining) = (self.code as u64, u64::from(self.remaining));
        let len = number_len(code) + limit_len + number_len(remaining) + reset_len;
        push_head(bytes, STATUSES, len);
        push_number(bytes, number(1), code);
        if let Some(limit) = self.limit {
            limit.push(bytes);
        }
        push_number(bytes, number(3), remaining);
        if let Some(reset) = reset {
            push_head(bytes, sized(4), reset.encoded_len());
            reset.encode_raw(bytes);
        }
    }
}

impl CurrentLimit<'_> {
    fn len(&self) -> usize {
        let name = if self.name.is_empty() { 0 } else { field_len(self.name.len()) };
        let numbers = number_len(self.requests.into()) + number_len(self.unit as u64);
        numbers + name + self.multiplier().map_or(0, |number| field_len(number_len(number)))
    }

    fn push(&self, bytes: &mut Vec<u8>) {
        push_head(bytes, sized(2), self.len());
        push_number(bytes, number(1), self.requests.into());
        push_number(bytes, number(2), self.unit as u64);
        push_sized(bytes, sized(3), self.name.as_bytes());
        if let Some(multiplier) = self.multiplier() {
            push_head(bytes, sized(4), number_len(multiplier));
            push_number(bytes, number(1), multiplier);
        }
    }

    /// A multiplier of one is left out.
    fn multiplier(&self) -> Option<u64> {
        Some(self.multiplier.into()).filter(|multiplier| *multiplier > 1)
    }
}

/// The status of one of the request's descriptors, by its index.
pub(super) fn of<'a>(answer: &Answer<'a>, descriptor: usize) -> DescriptorStatus<'a> {
    let met = answer.limits.iter().filter(|limit| limit.descriptor == descriptor);
    let Some(limit) = tightest(met.clone()) else {
        let remaining = if met.clone().next().is_some() { u32::MAX } else { 0 };
        return DescriptorStatus { code: Code::Ok, limit: None, remaining, reset_after_ms: None };
    };
    let remaining = u32::try_from(limit.status.remaining).unwrap_or(u32::MAX);
    let (code, reset_after_ms) = if rejects(limit) {
        // Envoy makes Retry-After of it.
        (Code::OverLimit, seconds(limit).saturating_mul(1_000))
    } else {
        (Code::Ok, limit.status.reset_after_ms)
    };
    let current = limit.definition.map(|definition| current_limit(&definition, limit));
    DescriptorStatus { code, limit: current, remaining, reset_after_ms: Some(reset_after_ms) }
}

fn current_limit<'a>(definition: &Limit, limit: &LimitAnswer<'a>) -> CurrentLimit<'a> {
    let (unit, multiplier) = unit_of(definition.period_ms()).unwrap_or((Unit::Unknown, 1));
    CurrentLimit {
        requests: u32::try_from(definition.hits()).unwrap_or(u32::MAX),
        unit,
        multiplier,
        name: if limit.named && is_quotable(limit.rule) { limit.rule } else { "" },
    }
}

/// Whether a name may be put between quotes in a header: Envoy writes it there unescaped. Limits
/// files accept no names with control characters.
fn is_quotable(name: &str) -> bool {
    !name.contains(['"', '\\'])
}

/// The longest unit of which the period is a whole multiple, and the multiplier.
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::proto::envoy::service::ratelimit::v3::RateLimitResponse;
    use crate::proto::envoy::service::ratelimit::v3::rate_limit_response::{
        DescriptorStatus as StatusMessage, RateLimit,
    };

    fn as_message(status: &DescriptorStatus<'_>) -> RateLimitResponse {
        let limit = |limit: CurrentLimit<'_>| RateLimit {
            requests_per_unit: limit.requests,
            unit: limit.unit.into(),
            name: limit.name.to_owned(),
            unit_multiplier: Some(limit.multiplier).filter(|multiplier| *multiplier > 1),
        };
        let message = StatusMessage {
            code: status.code.into(),
            current_limit: status.limit.map(limit),
            limit_remaining: status.remaining,
            duration_until_reset: status.reset_after_ms.map(duration),
        };
        RateLimitResponse { statuses: vec![message], ..RateLimitResponse::default() }
    }

    fn numbers() -> impl Strategy<Value = u32> {
        prop_oneof![Just(0), Just(1), Just(127), Just(128), any::<u32>()]
    }

    proptest! {
        #[test]
        fn the_bytes_are_those_of_the_message(
            limit in prop::option::of((numbers(), numbers(), 0..7_usize, "[a-zä]{0,200}")),
            remaining in numbers(),
            reset_after_ms in prop::option::of(prop_oneof![Just(0), 0..100_000_u64, 0..1_u64 << 53]),
            over in any::<bool>(),
        ) {
            let units = [Unit::Unknown, Unit::Second, Unit::Minute, Unit::Hour, Unit::Day, Unit::Week, Unit::Year];
            let limit = limit.as_ref().map(|(requests, multiplier, unit, name)| CurrentLimit {
                requests: *requests, unit: units[*unit], multiplier: *multiplier, name,
            });
            let code = if over { Code::OverLimit } else { Code::Ok };
            let status = DescriptorStatus { code, limit, remaining, reset_after_ms };
            let mut bytes = Vec::new();
            status.push(&mut bytes);
            prop_assert_eq!(bytes, as_message(&status).encode_to_vec());
        }
    }
}
