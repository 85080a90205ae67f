//! How far a descriptor leads down a domain's tree: explains why it matches no rule.

use super::domain::Domain;
use super::rule::Rule;
use super::tree::Level;

/// The place where a descriptor leaves the tree.
#[derive(Debug)]
pub struct DeadEnd<'d> {
    /// The rule of the entry before, if there is one.
    pub last: Option<&'d Rule>,
    /// Index of the entry that no rule has.
    pub entry: usize,
    level: &'d Level,
}

impl Domain {
    /// The same rule as [`Domain::find`], or the place where the entries leave the tree.
    ///
    /// # Errors
    /// No rule matches.
    pub fn walk<'a>(
        &self,
        entries: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<&Rule, DeadEnd<'_>> {
        let mut end = DeadEnd { last: None, entry: 0, level: &self.root };
        for (key, value) in entries {
            let Some(rule) = end.level.find(key, value).and_then(|index| self.rules.get(index))
            else {
                return Err(end);
            };
            end = DeadEnd { last: Some(rule), entry: end.entry + 1, level: &rule.below };
        }
        end.last.ok_or(end)
    }
}

impl<'d> DeadEnd<'d> {
    /// The keys that rules have at this place.
    pub fn keys(&self) -> impl Iterator<Item = &'d str> {
        self.level.keys()
    }

    /// The values that rules of this key name, except in wildcards; `None` if no rule has the key.
    pub fn values(&self, key: &str) -> Option<impl Iterator<Item = &'d str>> {
        self.level.values(key)
    }
}

impl Rule {
    /// The keys of the rules nested below it.
    pub fn keys_below(&self) -> impl Iterator<Item = &str> {
        self.below.keys()
    }
}
