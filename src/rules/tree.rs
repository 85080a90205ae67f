//! One level of the tree: finds the rule for an entry by key, then by value.

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use rapidhash::fast::RandomState;

use super::wildcard::{Covered, Refused, Unfit, Wildcard, Wildcards};

type Map<V> = HashMap<Box<str>, V, RandomState>;

/// The rules of one level, as indexes into their domain's rules.
#[derive(Debug, Default)]
pub(super) struct Level {
    keys: Map<Values>,
}

/// The rules of one level for one key.
#[derive(Debug, Default)]
pub(super) struct Values {
    exact: Map<usize>,
    wildcards: Option<Box<Wildcards>>,
    any: Option<usize>,
}

/// The values that a rule matches.
#[derive(Debug)]
pub(super) enum Pattern {
    /// Any value.
    Any,
    /// Exactly this value.
    Exact(Box<str>),
    /// The values that this wildcard matches.
    Wildcard(Wildcard),
}

impl Level {
    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The rule for an entry: exact value, then wildcards in file order, then any value.
    pub(super) fn find(&self, key: &str, value: &str) -> Option<usize> {
        let values = self.keys.get(key)?;
        if let Some(&index) = values.exact.get(value) {
            return Some(index);
        }
        let wildcards = values.wildcards.as_deref();
        wildcards.and_then(|wildcards| wildcards.find(value)).or(values.any)
    }

    /// The keys of its rules, in no order.
    pub(super) fn keys(&self) -> impl Iterator<Item = &str> {
        self.keys.keys().map(|key| &**key)
    }

    /// The exact values of the rules of a key, in no order; `None` if no rule has the key.
    pub(super) fn values(&self, key: &str) -> Option<impl Iterator<Item = &str>> {
        Some(self.keys.get(key)?.exact.keys().map(|value| &**value))
    }

    /// Adds a rule after all others, unless there is one for the same values.
    pub(super) fn insert(
        &mut self,
        key: &str,
        pattern: Pattern,
        index: usize,
    ) -> Result<(), Refused> {
        let values = self.keys.entry(key.into()).or_default();
        match pattern {
            Pattern::Any => match values.any {
                Some(earlier) => return Err(Refused::Duplicate(earlier)),
                None => values.any = Some(index),
            },
            Pattern::Exact(value) => match values.exact.entry(value) {
                Entry::Occupied(earlier) => return Err(Refused::Duplicate(*earlier.get())),
                Entry::Vacant(free) => {
                    free.insert(index);
                }
            },
            Pattern::Wildcard(wildcard) => {
                values.wildcards.get_or_insert_default().add(wildcard, index)?;
            }
        }
        Ok(())
    }

    /// The keys of this level with their rules, in no order.
    pub(super) fn by_key(&self) -> impl Iterator<Item = (&str, &Values)> {
        self.keys.iter().map(|(key, values)| (&**key, values))
    }

    /// The rules for a key.
    pub(super) fn of_key(&self, key: &str) -> Option<&Values> {
        self.keys.get(key)
    }

    /// Prepares the wildcards for lookups, once all rules are added. For each key, returns the
    /// rules that no value reaches, or why an index is impossible.
    pub(super) fn finish(&mut self) -> impl Iterator<Item = Result<Vec<Covered>, Unfit>> {
        let wildcards = self.keys.values_mut().filter_map(|values| values.wildcards.as_deref_mut());
        wildcards.map(Wildcards::finish)
    }
}

impl Values {
    /// The rule for any value.
    pub(super) const fn any(&self) -> Option<usize> {
        self.any
    }

    /// The rules for exact values.
    pub(super) fn exact(&self) -> impl Iterator<Item = (&str, usize)> {
        self.exact.iter().map(|(value, rule)| (&**value, *rule))
    }

    /// The rules for wildcards. Known only until [`Level::finish`].
    pub(super) fn wildcards(&self) -> impl Iterator<Item = usize> {
        self.wildcards.iter().flat_map(|wildcards| wildcards.rules())
    }
}

impl Pattern {
    /// Parses a pattern of a limits file; an empty value matches any value.
    pub(super) fn new(value: &str) -> Self {
        if value.is_empty() {
            return Self::Any;
        }
        Wildcard::new(value).map_or_else(|| Self::Exact(value.into()), Self::Wildcard)
    }
}
