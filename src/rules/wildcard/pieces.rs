//! Wildcards with several pieces, or with one piece anywhere: one pass over a value finds all.
//!
//! A wildcard is a sequence of pieces to be found in order. `a*b*c` is `^a`, `b`, `c$`, where `^`
//! and `$` are bytes that no text contains and that enclose the value. Wildcards that begin with
//! the same pieces share them: the sequences are a tree, and a search reaches a node when its piece
//! first ends after the piece of its parent.
//!
//! An automaton tells where pieces end. There a search looks at the nodes with that piece:
//! at a [few](node::EDGES_FEW) each time, whether their parents are reached; where there are more, only at
//! those whose parents are, each of which waits in the queue of its piece. So a byte costs at most
//! [`NESTED_MAX`] * ([`EDGES_FEW`](node::EDGES_FEW) + 2) steps, and a node one more in the whole search.

use std::collections::BTreeMap;

use aho_corasick::automaton::Automaton;
use aho_corasick::nfa::contiguous::NFA;
use aho_corasick::{Anchored, BuildError};

use super::ends::{Ends, NO_RULE, too_large};
use super::pattern::Wildcard;
use node::{Edge, Piece, Sequences};
use search::Search;
use tree::Tree;

mod node;
mod search;
mod tree;

/// Precedes a value. UTF-8 has no such byte.
const START: u8 = 0xfe;

/// Follows a value. UTF-8 has no such byte.
const END: u8 = 0xff;

/// The most pieces of longer sequences that may be suffixes of one piece.
const NESTED_MAX: usize = 16;

/// Sequences of pieces, each with a rule.
#[derive(Debug)]
pub(super) struct Pieces {
    /// `None` without pieces. Its patterns are the pieces, in order.
    automaton: Option<NFA>,
    /// The beginnings of all sequences, if all have a fixed beginning.
    beginnings: Option<Ends>,
    sequences: Sequences,
    /// The lowest rule.
    first_rule: usize,
}

impl Pieces {
    /// An index of wildcards that are more than one fixed end, with their rules.
    ///
    /// # Errors
    /// Too many of their pieces are suffixes of one another, or they are too large. The text is for
    /// people.
    pub(super) fn of(list: &[(&Wildcard, usize)]) -> Result<Self, String> {
        let mut tree = Tree::new();
        list.iter().for_each(|(wildcard, rule)| tree.add(pieces_of(wildcard), *rule));
        let beginnings = beginnings(list).map_err(too_large)?;
        let first_rule = list.iter().map(|(_, rule)| *rule).min().unwrap_or(NO_RULE);
        let automaton = (!tree.texts.is_empty()).then(|| NFA::new(&tree.texts)).transpose();
        let automaton = automaton.map_err(too_large)?;
        let (longer, alone) = (tree.is_in_longer(), tree.alone());
        let piece = |text: &Vec<u8>, edges: Vec<Edge>| {
            let ending = automaton.iter().flat_map(|automaton| ending_in(automaton, text));
            let ending: Vec<usize> = ending.collect();
            Piece {
                length: text.len(),
                alone: ending.iter().map(|piece| alone[*piece]).min().unwrap_or(NO_RULE),
                nested: ending.into_iter().filter(|piece| longer[*piece]).collect(),
                edges: edges.into(),
            }
        };
        let edges = tree.take_edges();
        let pieces: Box<[Piece]> = tree.texts.iter().zip(edges).map(|(t, e)| piece(t, e)).collect();
        if let Some(at) = pieces.iter().position(|piece| piece.nested.len() > NESTED_MAX) {
            let text = String::from_utf8_lossy(&tree.texts[at]).into_owned();
            return Err(format!(
                "more than {NESTED_MAX} texts between stars of one key's wildcards end in one \
                 another, the longest in {text:?}"
            ));
        }
        let sequences = Sequences { pieces, nodes: tree.nodes.into() };
        Ok(Self { automaton, beginnings, sequences, first_rule })
    }

    /// The lowest rule of the wildcards that match, or `before` if that is lower.
    pub(super) fn find(&self, value: &[u8], before: usize) -> usize {
        match &self.automaton {
            Some(automaton) if self.may_match(value, before) => {
                search::with(&self.sequences, before, |search| self.scan(automaton, value, search))
            }
            Some(_) | None => before,
        }
    }

    /// Whether the beginning of the value allows a rule below `before`.
    fn may_match(&self, value: &[u8], before: usize) -> bool {
        let begins = |ends: &Ends| ends.find(value.iter().copied()) < before;
        self.first_rule < before && self.beginnings.as_ref().is_none_or(begins)
    }

    fn scan(&self, automaton: &NFA, value: &[u8], search: &mut Search<'_>) {
        let Ok(mut state) = automaton.start_state(Anchored::No) else { return };
        let mut step = |byte, end| {
            state = automaton.next_state(Anchored::No, state, byte);
            if automaton.is_match(state) {
                // Matches are reported longest first.
                search.meet(automaton.match_pattern(state, 0).as_usize(), end);
            }
            search.rule() == self.first_rule
        };
        if step(START, 1) {
            return;
        }
        for (byte, end) in value.iter().zip(2..) {
            if step(*byte, end) {
                return;
            }
        }
        step(END, value.len() + 2);
    }
}

/// The beginnings of all wildcards, each with the lowest of its rules; `None` if a wildcard has
/// none.
fn beginnings(list: &[(&Wildcard, usize)]) -> Result<Option<Ends>, BuildError> {
    let mut rules: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
    for (wildcard, rule) in list {
        if wildcard.first.is_empty() {
            return Ok(None);
        }
        let first = rules.entry(wildcard.first.bytes().collect()).or_insert(*rule);
        *first = (*first).min(*rule);
    }
    Ends::of(&rules.into_iter().collect::<Vec<_>>()).map(Some)
}

/// The pieces that are suffixes of a text, the text itself first.
fn ending_in(automaton: &NFA, text: &[u8]) -> Vec<usize> {
    let Ok(start) = automaton.start_state(Anchored::No) else { return vec![] };
    let step = |state, byte: &u8| automaton.next_state(Anchored::No, state, *byte);
    let state = text.iter().fold(start, step);
    let piece = |at| automaton.match_pattern(state, at).as_usize();
    (0..automaton.match_len(state)).map(piece).collect()
}

/// The pieces to find in an enclosed value, each behind the one before.
fn pieces_of(wildcard: &Wildcard) -> impl Iterator<Item = Vec<u8>> {
    let first = [&[START], wildcard.first.as_bytes()].concat();
    let last = [wildcard.last.as_bytes(), &[END]].concat();
    let first = (!wildcard.first.is_empty()).then_some(first);
    let middle = wildcard.middle.iter().map(|piece| piece.as_bytes().to_vec());
    first.into_iter().chain(middle).chain((!wildcard.last.is_empty()).then_some(last))
}
