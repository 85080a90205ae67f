//! Wildcards: values with stars, and the first of a key's wildcards that matches a value.
//!
//! A few wildcards are tried one after the other. More of them get an [`Index`], whose lookup takes
//! time linear in the value, however many wildcards there are.

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

/// The most bytes of all wildcards for one key at one level. An index takes some 30 times as many.
pub(super) const WILDCARD_BYTES_MAX: usize = 4 << 20;

/// Up to here, trying them one by one is as fast as an index.
const TRIED_MAX: usize = 8;

/// The wildcards of one key at one level.
#[derive(Debug, Default)]
pub(super) struct Wildcards {
    /// In file order, with the rule of each; dropped where there is an index.
    list: Vec<(Wildcard, usize)>,
    index: Option<Index>,
    /// The rules by the wildcards' texts, while limits are read.
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

/// Wildcards that cannot be looked up together.
#[derive(Debug)]
pub(super) struct Unfit {
    /// The rule of the last of them.
    pub(super) rule: usize,
    /// Why, for people.
    pub(super) why: String,
}

/// A rule that no value reaches, because an earlier one matches all its values.
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

    /// Prepares lookups, once all wildcards are there. Returns the rules that no value reaches.
    ///
    /// # Errors
    /// An index cannot be made of them.
    pub(super) fn finish(&mut self) -> Result<Vec<Covered>, Unfit> {
        if self.list.len() > TRIED_MAX {
            let rule = self.list.last().map_or(0, |(_, rule)| *rule);
            self.index = Some(Index::of(&self.list).map_err(|why| Unfit { rule, why })?);
            self.list = Vec::new();
        }
        // A wildcard matches all that another one does if it matches that one's text: a star of the
        // text can only meet a star, which takes all that could stand there.
        let by_text = std::mem::take(&mut self.by_text);
        let covered = |(text, rule): (String, usize)| {
            self.find(&text).filter(|by| *by != rule).map(|by| Covered { rule, by })
        };
        Ok(by_text.into_iter().filter_map(covered).collect())
    }
}

#[cfg(test)]
mod tests;
