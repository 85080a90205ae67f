//! Finds texts at the beginning of a value, or reading backwards at its end.

use aho_corasick::automaton::Automaton;
use aho_corasick::nfa::contiguous::NFA;
use aho_corasick::{Anchored, BuildError};

/// Stands for no rule: it comes after all rules.
pub(super) const NO_RULE: usize = usize::MAX;

/// Texts, each with a rule.
#[derive(Debug)]
pub(super) struct Ends {
    /// `None` without texts.
    automaton: Option<NFA>,
    /// By the number of the text in the automaton.
    rules: Box<[usize]>,
}

impl Ends {
    /// An automaton of different, non-empty texts with their rules.
    ///
    /// # Errors
    /// They are too large.
    pub(super) fn of(texts: &[(Vec<u8>, usize)]) -> Result<Self, BuildError> {
        let build = || NFA::new(texts.iter().map(|(text, _)| text));
        let automaton = (!texts.is_empty()).then(build).transpose()?;
        Ok(Self { automaton, rules: texts.iter().map(|(_, rule)| *rule).collect() })
    }

    /// The first rule of the texts that begin these bytes. Reads no more than the longest of them.
    pub(super) fn find(&self, bytes: impl Iterator<Item = u8>) -> usize {
        let Some(automaton) = &self.automaton else { return NO_RULE };
        let Ok(mut state) = automaton.start_state(Anchored::Yes) else { return NO_RULE };
        let mut rule = NO_RULE;
        for (byte, length) in bytes.zip(1..) {
            state = automaton.next_state(Anchored::Yes, state, byte);
            if automaton.is_dead(state) {
                break;
            }
            if automaton.is_match(state) {
                // Matches are reported longest first; one may begin after the start of the bytes.
                let longest = automaton.match_pattern(state, 0);
                if automaton.pattern_len(longest) == length {
                    rule = rule.min(self.rules[longest.as_usize()]);
                }
            }
        }
        rule
    }
}

/// Why there is no automaton, for people.
pub(super) fn too_large(error: BuildError) -> String {
    format!("the wildcards of one key are too large: {error}")
}
