//! Parses requests from protobuf, without building the messages of `proto/` first.
//!
//! Tidegate's own messages number their fields like Envoy's, so that one parser reads both; they
//! differ only in the fields of a descriptor besides its entries. Unknown fields are skipped, and
//! the last value of a repeated scalar wins, as protobuf requires. The tests compare with prost,
//! which writes and reads the same messages.

use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};
use prost::{DecodeError, Message};

use super::{Bounds, DescriptorRange, Request, RequestBuilder, RequestError, refuse};
use crate::decide::Mode;
use crate::limit::{Algorithm, HITS_MAX, Limit, LimitSpec};
use crate::period::Unit;
use crate::proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor as envoy;
use crate::proto::envoy::r#type::v3::RateLimitUnit;

/// The message that is read. The messages differ in the fields after the descriptors, and Envoy's
/// in the fields of a descriptor.
#[derive(Clone, Copy)]
enum Dialect {
    Envoy,
    Check,
    Quota,
    Refund,
    Reset,
}

/// The fields of one message.
struct Fields<'m> {
    rest: &'m [u8],
}

enum Value<'m> {
    Varint(u64),
    Bytes(&'m [u8]),
    Other,
}

/// The bytes are not a valid protobuf message.
struct Broken;

impl Request {
    /// Parses a `CheckRateLimitRequest` of Tidegate's own API.
    ///
    /// # Errors
    /// Names the field that is missing, out of bounds or malformed.
    pub fn from_check(message: &[u8], bounds: &Bounds) -> Result<Self, RequestError> {
        read(message, Dialect::Check, bounds)?.finish()
    }

    /// Parses a `GetQuotaRequest`, whose hits are tested and not taken.
    ///
    /// # Errors
    /// Names the field that is missing, out of bounds or malformed.
    pub fn from_quota(message: &[u8], bounds: &Bounds) -> Result<Self, RequestError> {
        let mut builder = read(message, Dialect::Quota, bounds)?;
        builder.mode(Mode::Peek);
        builder.finish()
    }

    /// Parses a `RefundHitsRequest`, whose hits are given back.
    ///
    /// # Errors
    /// Names the field that is missing, out of bounds or malformed.
    pub fn from_refund(message: &[u8], bounds: &Bounds) -> Result<Self, RequestError> {
        let mut builder = read(message, Dialect::Refund, bounds)?;
        builder.mode(Mode::Refund);
        builder.finish()
    }

    /// Parses a `ResetQuotaRequest`, which gives back the largest possible number of hits.
    ///
    /// # Errors
    /// Names the field that is missing, out of bounds or malformed.
    pub fn from_reset(message: &[u8], bounds: &Bounds) -> Result<Self, RequestError> {
        let mut builder = read(message, Dialect::Reset, bounds)?;
        builder.mode(Mode::Refund);
        builder.hits(HITS_MAX);
        builder.request.descriptors.iter_mut().for_each(|descriptor| descriptor.hits = None);
        builder.finish()
    }

    /// Parses a `RateLimitRequest` of Envoy's rate limit service.
    ///
    /// # Errors
    /// Names the field, or the field of the override, that is missing, out of bounds or malformed.
    pub fn from_envoy(message: &[u8], bounds: &Bounds) -> Result<Self, RequestError> {
        read(message, Dialect::Envoy, bounds)?.finish()
    }
}

fn read<'b>(
    message: &[u8],
    dialect: Dialect,
    bounds: &'b Bounds,
) -> Result<RequestBuilder<'b>, RequestError> {
    let mut builder = RequestBuilder::new(message.len(), bounds);
    let mut fields = Fields { rest: message };
    while let Some((number, value)) = fields.next().map_err(|broken| broken.in_field("message"))? {
        match (dialect, number, value) {
            (_, 1, Value::Bytes(domain)) => {
                builder.domain(utf8(domain, || "domain".to_owned())?)?
            }
            (_, 2, Value::Bytes(descriptor)) => {
                read_descriptor(&mut builder, descriptor, dialect)
                    .map_err(|error| with_count(error, "descriptors", message, 2))?;
            }
            // 32 bits; 0 means 1.
            (Dialect::Envoy, 3, Value::Varint(hits)) => builder.hits((hits & 0xffff_ffff).max(1)),
            (Dialect::Check | Dialect::Refund, 3, Value::Varint(hits)) => builder.hits(hits),
            (Dialect::Quota, 3, Value::Varint(explain)) => builder.explain(explain != 0),
            // Callers of an earlier version would take hits that they mean to give back.
            (Dialect::Check, 4, Value::Varint(1..)) => {
                return refuse("refund", "is no field any more; call RefundHits");
            }
            (_, 1 | 2, Value::Varint(_) | Value::Other) => {
                return Err(Broken.in_field("message"));
            }
            _ => {}
        }
    }
    Ok(builder)
}

fn read_descriptor(
    builder: &mut RequestBuilder<'_>,
    message: &[u8],
    dialect: Dialect,
) -> Result<(), RequestError> {
    builder.descriptor(None)?;
    let at = builder.request.descriptors.len() - 1;
    let broken = |broken: Broken| broken.in_field(&format!("descriptors[{at}]"));
    let mut fields = Fields { rest: message };
    let mut limit: Option<envoy::RateLimitOverride> = None;
    while let Some((number, value)) = fields.next().map_err(broken)? {
        match (dialect, number, value) {
            (_, 1, Value::Bytes(entry)) => read_entry(builder, entry, at).map_err(|error| {
                let entries = format!("descriptors[{at}].entries");
                with_count(error, &entries, message, 1)
            })?,
            (Dialect::Envoy, 2, Value::Bytes(message)) => {
                let merged = limit.get_or_insert_default().merge(message);
                merged.map_err(|error| {
                    Broken::from(error).in_field(&format!("descriptors[{at}].limit"))
                })?;
            }
            (Dialect::Envoy, 3, Value::Bytes(message)) => {
                let hits = u64::decode(message);
                let hits = hits
                    .map_err(|error| Broken::from(error).in_field(&format!("descriptors[{at}]")))?;
                last(builder).hits = Some(hits);
            }
            (Dialect::Envoy, 4, Value::Varint(refund)) => last(builder).refund = refund != 0,
            (_, 4, Value::Varint(hits)) => last(builder).hits = Some(hits),
            (_, 1, Value::Varint(_) | Value::Other) => return Err(broken(Broken)),
            _ => {}
        }
    }
    if let Some(limit) = limit {
        builder.request.limits.push((at, override_limit(&limit, at)?));
    }
    Ok(())
}

fn last<'d>(builder: &'d mut RequestBuilder<'_>) -> &'d mut DescriptorRange {
    let at = builder.request.descriptors.len() - 1;
    &mut builder.request.descriptors[at]
}

fn read_entry(
    builder: &mut RequestBuilder<'_>,
    message: &[u8],
    at: usize,
) -> Result<(), RequestError> {
    let entry = builder.request.entries.len() - last(builder).first_entry();
    let name = |part: &str| format!("descriptors[{at}].entries[{entry}]{part}");
    let (mut key, mut value) = ("", "");
    let mut fields = Fields { rest: message };
    while let Some(field) = fields.next().map_err(|broken| broken.in_field(&name("")))? {
        match field {
            (1, Value::Bytes(text)) => key = utf8(text, || name(".key"))?,
            (2, Value::Bytes(text)) => value = utf8(text, || name(".value"))?,
            (1 | 2, _) => return Err(Broken.in_field(&name(""))),
            _ => {}
        }
    }
    builder.entry(key, value)
}

/// For a repeated field over its bound: adds the number of its elements.
fn with_count(error: RequestError, field: &str, message: &[u8], number: u32) -> RequestError {
    if error.field != field || !error.message.starts_with("are over") {
        return error;
    }
    let mut fields = Fields { rest: message };
    let numbers = std::iter::from_fn(|| fields.next().ok().flatten());
    let count = numbers.filter(|(other, _)| *other == number).count();
    RequestError { message: format!("{count} {}", error.message), ..error }
}

fn utf8(bytes: &[u8], field: impl Fn() -> String) -> Result<&str, RequestError> {
    std::str::from_utf8(bytes).or_else(|_| refuse(field(), "is not UTF-8"))
}

impl<'m> Fields<'m> {
    fn next(&mut self) -> Result<Option<(u32, Value<'m>)>, Broken> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let (number, kind) = decode_key(&mut self.rest)?;
        let value = match kind {
            WireType::Varint => Value::Varint(decode_varint(&mut self.rest)?),
            WireType::LengthDelimited => Value::Bytes(self.bytes()?),
            WireType::SixtyFourBit
            | WireType::ThirtyTwoBit
            | WireType::StartGroup
            | WireType::EndGroup => {
                skip_field(kind, number, &mut self.rest, DecodeContext::default())?;
                Value::Other
            }
        };
        Ok(Some((number, value)))
    }

    fn bytes(&mut self) -> Result<&'m [u8], Broken> {
        let len = decode_varint(&mut self.rest)?;
        let len = usize::try_from(len).ok().filter(|len| *len <= self.rest.len()).ok_or(Broken)?;
        let (bytes, rest) = self.rest.split_at(len);
        self.rest = rest;
        Ok(bytes)
    }
}

impl From<DecodeError> for Broken {
    fn from(_: DecodeError) -> Self {
        Self
    }
}

impl Broken {
    fn in_field(self, field: &str) -> RequestError {
        RequestError { field: field.to_owned(), message: "is not readable protobuf".to_owned() }
    }
}

/// The unit of an override.
fn unit(unit: i32) -> Option<Unit> {
    match RateLimitUnit::try_from(unit).ok()? {
        RateLimitUnit::Unknown => None,
        RateLimitUnit::Second => Some(Unit::Second),
        RateLimitUnit::Minute => Some(Unit::Minute),
        RateLimitUnit::Hour => Some(Unit::Hour),
        RateLimitUnit::Day => Some(Unit::Day),
        RateLimitUnit::Month => Some(Unit::Month),
        RateLimitUnit::Year => Some(Unit::Year),
    }
}

fn override_limit(limit: &envoy::RateLimitOverride, at: usize) -> Result<Limit, RequestError> {
    let field = |name: &str| format!("descriptors[{at}].limit.{name}");
    let Some(unit) = unit(limit.unit) else {
        let message = format!(
            "{} is not one of SECOND (1), MINUTE (2), HOUR (3), DAY (4), MONTH (5), YEAR (6)",
            limit.unit
        );
        return refuse(field("unit"), message);
    };
    let multiplier = limit.unit_multiplier.unwrap_or(1);
    if multiplier == 0 {
        return refuse(field("unit_multiplier"), "must be at least 1");
    }
    let spec = LimitSpec {
        algorithm: Algorithm::FixedWindow,
        hits: u64::from(limit.requests_per_unit),
        period_ms: unit.ms().saturating_mul(u64::from(multiplier)),
        ..LimitSpec::default()
    };
    Limit::new(&spec)
        .map_err(|error| RequestError { field: field("unit_multiplier"), message: error.message })
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::option;
    use proptest::prelude::*;

    use super::*;
    use crate::limit::HITS_MAX;
    use crate::proto::envoy::extensions::common::ratelimit::v3 as common;
    use crate::proto::envoy::service::ratelimit::v3::RateLimitRequest;
    use crate::proto::tidegate::v1 as api;

    /// Entries, hits, whether they are given back, and a limit per second.
    type Parts = (Vec<(String, String)>, Option<u64>, bool, Option<u32>);

    fn parts() -> impl Strategy<Value = (String, Vec<Parts>, u32)> {
        let entries = vec(("[a-zé]{1,9}", "[ -~é𝄞]{0,20}"), 1..4);
        let hits = option::of(prop_oneof![0..4_u64, any::<u64>()]);
        let descriptor = (entries, hits, any::<bool>(), option::of(any::<u32>()));
        ("[a-z]{1,8}", vec(descriptor, 1..6), prop_oneof![0..3_u32, any::<u32>()])
    }

    type Read<'a> = (Vec<(&'a str, &'a str)>, u64, Mode, Option<u64>);

    fn read_back(request: &Request) -> (&str, Vec<Read<'_>>) {
        let descriptors = request.descriptors().map(|descriptor| {
            let limit = descriptor.limit.map(Limit::hits);
            (descriptor.entries.collect(), descriptor.hits, descriptor.mode, limit)
        });
        (request.domain(), descriptors.collect())
    }

    proptest! {
        #[test]
        fn envoy_messages_are_parsed_as_prost_encoded_them((domain, all, hits_addend) in parts()) {
            let descriptor = |(entries, hits, refund, limit): &Parts| common::RateLimitDescriptor {
                entries: entries
                    .iter()
                    .cloned()
                    .map(|(key, value)| envoy::Entry { key, value })
                    .collect(),
                limit: limit.map(|requests_per_unit| envoy::RateLimitOverride {
                    requests_per_unit,
                    unit: RateLimitUnit::Second.into(),
                    unit_multiplier: None,
                }),
                hits_addend: *hits,
                is_negative_hits: *refund,
            };
            let descriptors = all.iter().map(descriptor).collect();
            let message = RateLimitRequest { domain: domain.clone(), descriptors, hits_addend };
            let request = Request::from_envoy(&message.encode_to_vec(), &Bounds::default()).unwrap();
            let takes = |(_, hits, refund, _): &Parts| !*refund && *hits != Some(0);
            let refunds = all.iter().any(|(_, _, refund, _)| *refund) && !all.iter().any(takes);
            let expected = all.iter().map(|(entries, hits, refund, limit)| {
                let entries = entries.iter().map(|(key, value)| (key.as_str(), value.as_str()));
                let hits = hits.unwrap_or(u64::from(hits_addend.max(1))).min(HITS_MAX);
                let mode = if *refund || refunds { Mode::Refund } else { Mode::Take };
                (entries.collect(), hits, mode, limit.map(u64::from))
            });
            prop_assert_eq!(read_back(&request), (domain.as_str(), expected.collect()));
        }

        #[test]
        fn own_messages_are_parsed_as_prost_encoded_them((domain, all, hits) in parts()) {
            let hits = all[0].3.map(|_| u64::from(hits));
            let descriptor = |(entries, hits, ..): &Parts| api::Descriptor {
                entries: entries
                    .iter()
                    .cloned()
                    .map(|(key, value)| api::Entry { key, value })
                    .collect(),
                hits: *hits,
            };
            let descriptors: Vec<_> = all.iter().map(descriptor).collect();
            let explain = all[0].2;
            let quota = api::GetQuotaRequest {
                domain: domain.clone(),
                descriptors: descriptors.clone(),
                explain,
            };
            let refund = api::RefundHitsRequest {
                domain: domain.clone(),
                descriptors: descriptors.clone(),
                hits,
            };
            let check = api::CheckRateLimitRequest { domain, descriptors, hits };
            let bounds = Bounds::default();
            let expected = |mode, unset: u64| {
                let read = |(entries, own, ..): &Parts| {
                    let entries = entries.iter().map(|(key, value)| (key.clone(), value.clone()));
                    (entries.collect::<Vec<_>>(), own.unwrap_or(unset).min(HITS_MAX), mode)
                };
                all.iter().map(read).collect::<Vec<_>>()
            };
            let got = |request: &Request| {
                let read = |(entries, hits, mode, _): Read<'_>| {
                    let owned = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
                    (entries.into_iter().map(owned).collect::<Vec<_>>(), hits, mode)
                };
                read_back(request).1.into_iter().map(read).collect::<Vec<_>>()
            };
            let check = Request::from_check(&check.encode_to_vec(), &bounds).unwrap();
            prop_assert_eq!(got(&check), expected(Mode::Take, hits.unwrap_or(1)));
            let refund = Request::from_refund(&refund.encode_to_vec(), &bounds).unwrap();
            prop_assert_eq!(got(&refund), expected(Mode::Refund, hits.unwrap_or(1)));
            let quota = Request::from_quota(&quota.encode_to_vec(), &bounds).unwrap();
            prop_assert_eq!(got(&quota), expected(Mode::Peek, 1));
            prop_assert_eq!(quota.explains(), explain);
        }

        #[test]
        fn any_bytes_are_parsed_or_refused(message in vec(any::<u8>(), 0..64)) {
            let reads = [
                Request::from_check,
                Request::from_quota,
                Request::from_refund,
                Request::from_reset,
                Request::from_envoy,
            ];
            for read in reads {
                drop(read(&message, &Bounds::default()));
            }
        }
    }

    #[test]
    fn a_refund_by_the_flag_of_earlier_versions_is_refused_and_takes_nothing() {
        let message = |refund| [0x0a, 1, b'd', 0x12, 5, 0x0a, 3, 0x0a, 1, b'k', 0x20, refund];
        let read = |refund| Request::from_check(&message(refund), &Bounds::default());
        let refused = read(1).unwrap_err().to_string();
        assert_eq!(refused, "refund: is no field any more; call RefundHits");
        assert!(read(0).is_ok());
    }

    #[test]
    fn errors_name_the_malformed_field() {
        let refused = |message: &[u8]| {
            Request::from_envoy(message, &Bounds::default()).unwrap_err().to_string()
        };
        let unreadable = "is not readable protobuf";
        assert_eq!(refused(&[0x0a, 9, b'd']), format!("message: {unreadable}"), "cut short");
        assert_eq!(refused(&[0x08, 1]), format!("message: {unreadable}"), "a number for a text");
        assert_eq!(refused(&[0x0a, 1, 0xff]), "domain: is not UTF-8");
        let in_descriptor = [0x0a, 1, b'd', 0x12, 2, 0x0a, 9];
        assert_eq!(refused(&in_descriptor), format!("descriptors[0]: {unreadable}"));
        let in_value = [0x0a, 1, b'd', 0x12, 8, 0x0a, 6, 0x0a, 1, b'k', 0x12, 1, 0xff];
        assert_eq!(refused(&in_value), "descriptors[0].entries[0].value: is not UTF-8");
    }

    #[test]
    fn unknown_fields_are_skipped() {
        let mut message = RateLimitRequest { domain: "d".into(), ..RateLimitRequest::default() };
        let entry = envoy::Entry { key: "k".into(), value: "v".into() };
        let entries = vec![entry];
        message.descriptors.push(common::RateLimitDescriptor { entries, ..Default::default() });
        let mut bytes = message.encode_to_vec();
        // Field 100 as a number, as text, as 4 bytes and as 8.
        bytes.extend([0xa0, 6, 1, 0xa2, 6, 1, b'x', 0xa5, 6, 1, 2, 3, 4, 0xa1, 6]);
        bytes.extend([0; 8]);
        let request = Request::from_envoy(&bytes, &Bounds::default()).unwrap();
        assert_eq!(read_back(&request), ("d", vec![(vec![("k", "v")], 1, Mode::Take, None)]));
    }
}
