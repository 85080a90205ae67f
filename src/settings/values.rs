//! Parsers of flag values. An error says what is allowed, for clap to print beside the flag's name.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::envoy::Headers;
use crate::on_store_failure::OnStoreFailure;
use crate::period::{self, Unit};

/// The entries of one descriptor on the command line.
#[derive(Clone, Debug)]
pub struct Entries(pub Vec<(String, String)>);

pub(super) fn entries(text: &str) -> Result<Entries, String> {
    crate::entries::parse(text).map(Entries)
}

pub(super) fn duration(text: &str) -> Result<Duration, String> {
    duration_within(text, 1..=Unit::Minute.ms())
}

pub(super) fn duration_within(
    text: &str,
    allowed_ms: RangeInclusive<u64>,
) -> Result<Duration, String> {
    let ms = period::parse(text).ok_or_else(|| {
        let has_no_unit = text.ends_with(|last: char| last.is_ascii_digit());
        let wrong = if has_no_unit { "has no unit" } else { "is not a duration" };
        format!("{wrong}; write whole numbers of d, h, m, s, ms in this order, such as 15ms or 2s")
    })?;
    if allowed_ms.contains(&ms) {
        return Ok(Duration::from_millis(ms));
    }
    let [min, max] = [*allowed_ms.start(), *allowed_ms.end()].map(period::format);
    Err(format!("must be from {min} to {max}"))
}

/// A number of bytes, with or without a unit.
pub(super) fn bytes(text: &str) -> Result<u64, String> {
    let units = [("KiB", 10), ("MiB", 20), ("GiB", 30), ("Ki", 10), ("Mi", 20), ("Gi", 30)];
    let unit = units.iter().find_map(|(unit, bits)| Some((text.strip_suffix(unit)?, *bits)));
    let (number, bits) = unit.unwrap_or((text, 0));
    let number = number.parse().ok().filter(|number: &u64| *number <= u64::MAX >> bits);
    let bytes = number.map(|number| number << bits);
    let allowed = bytes.filter(|bytes| *bytes == 0 || *bytes >= MEMORY_MIN);
    allowed.ok_or_else(|| "must be at least 64MiB, written like 256MiB or 1GiB; or 0".into())
}

/// The process needs about 20 MiB before the first connection.
const MEMORY_MIN: u64 = 64 << 20;

pub(super) fn within(text: &str, max: usize) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (1..=max).contains(number));
    number.ok_or_else(|| format!("must be a whole number from 1 to {max}"))
}

pub(super) fn count(text: &str) -> Result<usize, String> {
    within(text, 1_000_000)
}

pub(super) fn policy(text: &str) -> Result<OnStoreFailure, String> {
    OnStoreFailure::from_name(text).ok_or_else(|| "is not one of local, allow, deny, error".into())
}

pub(super) fn replicas(text: &str) -> Result<u32, String> {
    let number = within(text, 10_000)?;
    u32::try_from(number).map_err(|error| error.to_string())
}

/// More than ever wait together at any rate that one Redis can decide.
pub(super) fn batch_max(text: &str) -> Result<usize, String> {
    within(text, 1_024)
}

pub(super) fn deny_max(text: &str) -> Result<usize, String> {
    if text == "0" { Ok(0) } else { within(text, 1_000_000_000) }
}

pub(super) fn headers(text: &str) -> Result<Headers, String> {
    Headers::from_name(text).ok_or_else(|| "is not one of off, x-ratelimit, draft".into())
}

pub(super) fn on_or_off(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("is neither on nor off".into()),
    }
}

pub(super) fn series_max(text: &str) -> Result<usize, String> {
    if text == "0" { Ok(0) } else { count(text) }
}

pub(super) fn threads_max(text: &str) -> Result<usize, String> {
    within(text, 1_024)
}

/// More than a proxy sends. How many limits they match is bounded separately.
pub(super) fn descriptors_max(text: &str) -> Result<usize, String> {
    within(text, 2_000)
}

pub(super) fn keys_max(text: &str) -> Result<usize, String> {
    within(text, 1_000_000_000)
}
