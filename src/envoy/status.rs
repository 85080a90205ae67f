//! The answer for one descriptor, as the bytes of a `DescriptorStatus`.

use prost::Message;

use super::wire::{field_len, number, number_len, push_head, push_number, push_sized, sized};
use crate::proto::duration;
use crate::proto::envoy::service::ratelimit::v3::rate_limit_response::Code;
use crate::proto::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit;

const STATUSES: u8 = sized(2);

/// What is told.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told<'a> {
    pub(super) code: Code,
    pub(super) limit: Option<ToldLimit<'a>>,
    pub(super) remaining: u32,
    pub(super) reset_after_ms: Option<u64>,
}

/// The limit that it is about.
#[derive(Clone, Copy, Debug)]
pub(super) struct ToldLimit<'a> {
    pub(super) requests: u32,
    pub(super) unit: Unit,
    /// Units in a period.
    pub(super) multiplier: u32,
    pub(super) name: &'a str,
}

impl Told<'_> {
    /// Appends it to a response.
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

impl ToldLimit<'_> {
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

    /// One is not told.
    fn multiplier(&self) -> Option<u64> {
        Some(self.multiplier.into()).filter(|multiplier| *multiplier > 1)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::proto::envoy::service::ratelimit::v3::RateLimitResponse;
    use crate::proto::envoy::service::ratelimit::v3::rate_limit_response::{
        DescriptorStatus, RateLimit,
    };

    fn as_message(told: &Told<'_>) -> RateLimitResponse {
        let limit = |limit: ToldLimit<'_>| RateLimit {
            requests_per_unit: limit.requests,
            unit: limit.unit.into(),
            name: limit.name.to_owned(),
            unit_multiplier: Some(limit.multiplier).filter(|multiplier| *multiplier > 1),
        };
        let status = DescriptorStatus {
            code: told.code.into(),
            current_limit: told.limit.map(limit),
            limit_remaining: told.remaining,
            duration_until_reset: told.reset_after_ms.map(duration),
        };
        RateLimitResponse { statuses: vec![status], ..RateLimitResponse::default() }
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
            let limit = limit.as_ref().map(|(requests, multiplier, unit, name)| ToldLimit {
                requests: *requests, unit: units[*unit], multiplier: *multiplier, name,
            });
            let code = if over { Code::OverLimit } else { Code::Ok };
            let told = Told { code, limit, remaining, reset_after_ms };
            let mut bytes = Vec::new();
            told.push(&mut bytes);
            prop_assert_eq!(bytes, as_message(&told).encode_to_vec());
        }
    }
}
