//! The probe: a counter request that shows whether a server decides again.
//!
//! A ping is not enough, because a server may answer it and still refuse to write: a replica, or a
//! server whose memory is full.

use crate::decide::{CounterRequest, Mode};
use crate::decision::{Enforcement, QuotaGroup};
use crate::key::{Key, KeyFormat, KeyParts, KeyPrefix, KeySuffix};
use crate::limit::{Limit, LimitSpec};

/// A request for a counter of Tidegate's own. It has an overdraft, so that the script writes
/// whether or not the counter is in debt. Each number has another key.
pub(super) fn probe(number: u32) -> Result<CounterRequest, String> {
    let spec = LimitSpec { hits: 1, period_ms: 1_000, overdraft: true, ..LimitSpec::default() };
    let limit = Limit::new(&spec).map_err(|error| error.to_string())?;
    let value = if number == 0 { String::new() } else { number.to_string() };
    let key_parts = KeyParts {
        // The empty domain cannot collide, because the domains of limits files have names.
        head: &KeyPrefix::of(&KeyFormat::readable("tg"), ""),
        slot_by: &[],
        entries: std::iter::once(("probe", &*value)),
        shared: &[],
        tail: &KeySuffix::of(&limit, 0),
    };
    let (key, enforcement) = (Key::of(&key_parts), Enforcement::Shadow);
    let quota_group = QuotaGroup::default();
    Ok(CounterRequest { key, limit, hits: 1, mode: Mode::Take, enforcement, quota_group })
}
