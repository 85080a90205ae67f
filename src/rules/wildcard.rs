//! Wildcards: values with stars, and lookup of the first wildcard of a key that matches a value.
//!
//! A few wildcards are tried one by one. More than [`TRIED_MAX`] get an [`Index`], whose lookup takes
//! time linear in the length of the value, for any number of wildcards. Each text is kept as pieces
//! between its stars, so matching needs no backtracking: a hostile value cannot make it slow.

use hashbrown::HashMap;
use rapidhash::fast::RandomState;

mod ends;
mod index;
mod pattern;
mod pieces;

use index::Index;
pub(super) use pattern::Wildcard;

/// The most wildcards for one key at one level.
pub(super) const WILDCARDS_MAX: usize = 10_000;

/// The most bytes of all wildcards for one key at one level. An index needs some 30 times as many.
pub(super) const WILDCARD_BYTES_MAX: usize = 4 << 20;

/// Up to this number, trying them one by one is as fast as an index.
const TRIED_MAX: usize = 8;

/// The wildcards of one key at one level.
#[derive(Debug, Default)]
pub(super) struct Wildcards {
    /// In file order, with the rule of each; empty if there is an index.
    list: Vec<(Wildcard, usize)>,
    index: Option<Index>,
    /// The rules by wildcard text, while limits are read.
    by_text: HashMap<String, usize, RandomState>,
    text_bytes: usize,
}

/// Why a wildcard cannot be added.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// The rule of this index matches the same values.
    Duplicate(usize),
    /// The key has [`WILDCARDS_MAX`] wildcards already.
    TooMany,
    /// The wildcards of the key would have more than [`WILDCARD_BYTES_MAX`] bytes.
    TooLong,
}

/// Wildcards that cannot be combined into an index.
#[derive(Debug)]
pub(super) struct Unfit {
    /// The rule of the last of them.
    pub(super) rule: usize,
    /// The reason, for people.
    pub(super) why: String,
}

/// A rule that is never used, because an earlier one matches all its values.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Covered {
    pub(super) rule: usize,
    pub(super) by: usize,
}

impl Wildcards {
    /// The rule of the first wildcard in file order that matches.
    pub(super) fn find(&self, value: &str) -> Option<usize> {
        match &self.index {
            Some(index) => index.find(value.as_bytes()),
            None => self.list.iter().find(|(one, _)| one.matches(value)).map(|&(_, rule)| rule),
        }
    }

    /// Adds a wildcard after all others; its rule comes after theirs.
    pub(super) fn add(&mut self, wildcard: Wildcard, rule: usize) -> Result<(), Refused> {
        let text = wildcard.text();
        if let Some(&earlier) = self.by_text.get(&text) {
            return Err(Refused::Duplicate(earlier));
        }
        if self.list.len() >= WILDCARDS_MAX {
            return Err(Refused::TooMany);
        }
        if self.text_bytes + text.len() > WILDCARD_BYTES_MAX {
            return Err(Refused::TooLong);
        }
        self.text_bytes += text.len();
        self.by_text.insert(text, rule);
        self.list.push((wildcard, rule));
        Ok(())
    }

    /// The rules of all wildcards. Empty after [`Self::finish`].
    pub(super) fn rules(&self) -> impl Iterator<Item = usize> {
        self.by_text.values().copied()
    }

    /// Prepares lookups, once all wildcards are added. Returns the rules that no value reaches.
    ///
    /// # Errors
    /// They cannot be combined into an index.
    pub(super) fn finish(&mut self) -> Result<Vec<Covered>, Unfit> {
        if self.list.len() > TRIED_MAX {
            let rule = self.list.last().map_or(0, |(_, rule)| *rule);
            self.index = Some(Index::of(&self.list).map_err(|why| Unfit { rule, why })?);
            self.list = Vec::new();
        }
        // A wildcard matches all values of another one if it matches that one's text: a star in the
        // text can only be matched by a star.
        let by_text = std::mem::take(&mut self.by_text);
        let covered = |(text, rule): (String, usize)| {
            self.find(&text).filter(|by| *by != rule).map(|by| Covered { rule, by })
        };
        Ok(by_text.into_iter().filter_map(covered).collect())
    }
}

#[cfg(test)]
mod tests;
