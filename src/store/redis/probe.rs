//! The request that shows whether a server decides again.

use crate::decide::{CounterRequest, Mode};
use crate::decision::{Enforcement, QuotaGroup};
use crate::key::{Key, KeyFormat, KeyParts, KeyPrefix, KeySuffix};
use crate::limit::{Limit, LimitSpec};

/// A request for a counter of Tidegate's own. It is an overdraft, so the script writes whether or not
/// the counter is in debt. Each number is another key.
pub(super) fn probe(number: u32) -> Result<CounterRequest, String> {
    let spec = LimitSpec { hits: 1, period_ms: 1_000, overdraft: true, ..LimitSpec::default() };
    let limit = Limit::new(&spec).map_err(|error| error.to_string())?;
    let value = if number == 0 { String::new() } else { number.to_string() };
    let key_parts = KeyParts {
        // No limits file has a domain without a name.
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
