//! Looks many wildcards up at once: finds the first in file order that matches a value.
//!
//! Wildcards with one fixed end (`vip-*`, `*.example.com`) are found from that end, in a few steps.
//! All others take one pass over the value, through an Aho-Corasick automaton.
//!
//! A lazily built automaton of `regex-automata` was rejected: with stars inside, each of its states
//! holds a position in every wildcard, so that it outgrows any cache, and a hostile value then
//! costs the number of wildcards per byte.

use super::ends::{Ends, NO_RULE, too_large};
use super::pattern::Wildcard;
use super::pieces::Pieces;

/// The wildcards of one key at one level.
#[derive(Debug)]
pub(super) struct Index {
    /// The rule of `*`.
    all: usize,
    prefixes: Ends,
    /// By the end of the value.
    suffixes: Ends,
    pieces: Pieces,
}

impl Index {
    /// An index of wildcards with their rules.
    ///
    /// # Errors
    /// Too many of their pieces are suffixes of one another. The text is for people.
    pub(super) fn of(list: &[(Wildcard, usize)]) -> Result<Self, String> {
        let (mut all, mut prefixes, mut suffixes) = (NO_RULE, vec![], vec![]);
        let mut others = vec![];
        for (wildcard, rule) in list {
            match (&*wildcard.first, &*wildcard.middle, &*wildcard.last) {
                ("", [], "") => all = all.min(*rule),
                (first, [], "") => prefixes.push((first.bytes().collect(), *rule)),
                ("", [], last) => suffixes.push((last.bytes().rev().collect(), *rule)),
                _ => others.push((wildcard, *rule)),
            }
        }
        let (prefixes, suffixes) = (Ends::of(&prefixes), Ends::of(&suffixes));
        let (prefixes, suffixes) = (prefixes.map_err(too_large)?, suffixes.map_err(too_large)?);
        Ok(Self { all, prefixes, suffixes, pieces: Pieces::of(&others)? })
    }

    pub(super) fn find(&self, value: &[u8]) -> Option<usize> {
        let rule = self.all.min(self.prefixes.find(value.iter().copied()));
        let rule = rule.min(self.suffixes.find(value.iter().rev().copied()));
        let rule = self.pieces.find(value, rule);
        (rule != NO_RULE).then_some(rule)
    }
}
