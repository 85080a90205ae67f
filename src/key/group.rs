//! Groups of counters: all counters of one configured limit, for any values.
//!
//! The memory store shares its capacity between groups, so that a flood of values of one limit
//! evicts counters of that limit only. Groups are numbered when rules load, by the identity of a
//! limit in the limits files, so requests cannot add groups. A limit keeps its number over reloads.

use std::collections::HashMap;
use std::sync::LazyLock;

use parking_lot::Mutex;

use super::hash::HASHER;
use super::suffix::KeySuffix;

/// The counters of one limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Group(u16);

/// Assigned numbers, by the hash of the limit's identity. At most [`Group::COUNT`].
static NUMBERS: LazyLock<Mutex<HashMap<u128, u16>>> = LazyLock::new(Mutex::default);

impl Group {
    /// The number of groups; indexes are below it. Up to this number each limit has its own group;
    /// further limits share groups at random.
    pub const COUNT: usize = 1 << 14;

    /// The group of the limit with this key suffix at a rule's path.
    pub fn of_limit(domain: &str, path: &str, tail: &KeySuffix) -> Self {
        Self::of(&[domain.as_bytes(), path.as_bytes(), tail.as_bytes()])
    }

    /// The group of limits that requests to a domain bring where no rule has one.
    pub fn of_overrides(domain: &str) -> Self {
        Self::of(&[domain.as_bytes()])
    }

    /// Its number.
    pub const fn index(self) -> u16 {
        self.0
    }

    fn of(parts: &[&[u8]]) -> Self {
        // Lengths first, so that different lists of parts never give the same bytes.
        let mut name: Vec<u8> = parts.iter().flat_map(|part| part.len().to_le_bytes()).collect();
        name.extend(parts.concat());
        Self::numbered(HASHER.hash(&name).into())
    }

    #[allow(clippy::cast_possible_truncation)] // below COUNT
    fn numbered(hash: u128) -> Self {
        let mut numbers = NUMBERS.lock();
        // 0 is the group of keys without one.
        let next = numbers.len() + 1;
        if next < Self::COUNT {
            return Self(*numbers.entry(hash).or_insert(next as u16));
        }
        let shared = (hash % Self::COUNT as u128) as u16;
        Self(numbers.get(&hash).copied().unwrap_or(shared))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::{Limit, LimitSpec};

    fn tail(period_ms: u64) -> KeySuffix {
        let spec = LimitSpec { hits: 5, period_ms, ..LimitSpec::default() };
        KeySuffix::of(&Limit::new(&spec).unwrap(), 0)
    }

    #[test]
    fn limits_with_another_domain_path_or_period_have_their_own_groups() {
        let (second, minute) = (tail(1_000), tail(60_000));
        let groups = [
            Group::of_limit("edge", "user", &second),
            Group::of_limit("edge", "user", &minute),
            Group::of_limit("edge", "ip", &second),
            Group::of_limit("other", "user", &second),
            Group::of_overrides("edge"),
            Group::default(),
        ];
        for (at, group) in groups.iter().enumerate() {
            assert!(!groups[..at].contains(group), "{groups:?}");
        }
    }

    #[test]
    fn a_reloaded_limit_keeps_its_group() {
        let group = || Group::of_limit("edge", "again", &tail(1_000));
        assert_eq!(group(), group());
    }
}
