//! One level of the tree: the rules that an entry can match, by key, then by value.

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use rapidhash::fast::RandomState;

/// The most wildcards for one key at one level: a request may have to look at each.
pub(super) const WILDCARDS_MAX: usize = 1_000;

type Map<V> = HashMap<Box<str>, V, RandomState>;

/// The rules of one level, as indexes into their domain's rules.
#[derive(Debug, Default)]
pub(super) struct Level {
    keys: Map<Values>,
}

/// The rules of one level for one key.
#[derive(Debug, Default)]
struct Values {
    exact: Map<usize>,
    wildcards: Vec<(Wildcard, usize)>,
    any: Option<usize>,
}

/// Which values a rule matches.
#[derive(Debug)]
pub(super) enum Pattern {
    /// Every value.
    Any,
    /// This value.
    Exact(Box<str>),
    /// The values of this shape.
    Wildcard(Wildcard),
}

/// Why a rule cannot stand at a level.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// The rule of this index matches the same values.
    Duplicate(usize),
    /// The key has [`WILDCARDS_MAX`] wildcards already.
    TooManyWildcards,
}

/// A text in which each `*` stands for any characters, also none.
///
/// Kept as the pieces between the stars: the first must begin the value, the last must end it,
/// and each one between is looked for behind the one before. The earliest find is always right,
/// because it leaves most to those that follow.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Wildcard {
    first: Box<str>,
    middle: Box<[Box<str>]>,
    last: Box<str>,
}

impl Level {
    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The rule for an entry: exact value, then wildcards in order, then any value.
    pub(super) fn find(&self, key: &str, value: &str) -> Option<usize> {
        let values = self.keys.get(key)?;
        if let Some(&index) = values.exact.get(value) {
            return Some(index);
        }
        let matching = values.wildcards.iter().find(|(wildcard, _)| wildcard.matches(value));
        matching.map(|&(_, index)| index).or(values.any)
    }

    /// Adds a rule, unless there is one for the same values. Returns an earlier wildcard's rule that
    /// leaves it no value.
    pub(super) fn insert(
        &mut self,
        key: &str,
        pattern: Pattern,
        index: usize,
    ) -> Result<Option<usize>, Refused> {
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
            Pattern::Wildcard(wildcard) => return values.insert_wildcard(wildcard, index),
        }
        Ok(None)
    }
}

impl Values {
    fn insert_wildcard(
        &mut self,
        wildcard: Wildcard,
        index: usize,
    ) -> Result<Option<usize>, Refused> {
        if let Some(&(_, earlier)) = self.wildcards.iter().find(|(same, _)| *same == wildcard) {
            return Err(Refused::Duplicate(earlier));
        }
        if self.wildcards.len() >= WILDCARDS_MAX {
            return Err(Refused::TooManyWildcards);
        }
        let covers = |(earlier, _): &&(Wildcard, usize)| earlier.covers(&wildcard);
        let covering = self.wildcards.iter().find(covers).map(|&(_, index)| index);
        self.wildcards.push((wildcard, index));
        Ok(covering)
    }
}

impl Pattern {
    /// The pattern that a limits file spells so; an empty value is every value.
    pub(super) fn new(value: &str) -> Self {
        if value.is_empty() {
            return Self::Any;
        }
        Wildcard::new(value).map_or_else(|| Self::Exact(value.into()), Self::Wildcard)
    }
}

impl Wildcard {
    /// `None` where the text has no star.
    fn new(text: &str) -> Option<Self> {
        let (first, rest) = text.split_once('*')?;
        let (middle, last) = rest.rsplit_once('*').unwrap_or(("", rest));
        let middle = middle.split('*').filter(|piece| !piece.is_empty()).map(Box::from).collect();
        Some(Self { first: first.into(), middle, last: last.into() })
    }

    /// Whether it matches all that `other` does: it does if it matches `other` as it is written, for
    /// a star of `other` can only meet a star here, which takes all that could stand there.
    fn covers(&self, other: &Self) -> bool {
        let ends = |piece: &str| piece.to_owned() + "*";
        let middle: String = other.middle.iter().map(|piece| ends(piece)).collect();
        self.matches(&(ends(&other.first) + &middle + &other.last))
    }

    fn matches(&self, value: &str) -> bool {
        let inner = value.strip_prefix(&*self.first).and_then(|v| v.strip_suffix(&*self.last));
        let Some(mut inner) = inner else { return false };
        for piece in &self.middle {
            match inner.split_once(&**piece) {
                Some((_, rest)) => inner = rest,
                None => return false,
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, value: &str) -> bool {
        Wildcard::new(pattern).unwrap().matches(value)
    }

    #[test]
    fn a_star_stands_for_any_characters_also_none() {
        for value in ["vip-", "vip-7", "vip-*", "vip-ö"] {
            assert!(matches("vip-*", value), "{value}");
        }
        for value in ["", "vip", "a-vip-7"] {
            assert!(!matches("vip-*", value), "{value}");
        }
        assert!(matches("*", ""));
    }

    #[test]
    fn stars_stand_anywhere() {
        assert!(matches("*.example.com", "a.example.com"));
        assert!(matches("/v*/users/*/posts", "/v1/users/7/posts"));
        assert!(!matches("/v*/users/*/posts", "/v1/users/posts"));
        assert!(matches("*b*c*", "abxc"));
        assert!(!matches("*b*c*", "acxb"));
    }

    #[test]
    fn pieces_never_share_characters() {
        assert!(!matches("ab*ba", "aba"));
        assert!(matches("ab*ba", "abba"));
        assert!(!matches("*aa*aa*", "aaa"));
        assert!(!matches("a*a*a", "aa"));
    }

    #[test]
    fn the_earliest_piece_leaves_most_to_the_next() {
        assert!(matches("*ab*b", "abab"));
        assert!(matches("a*bc*d", "abcbcxd"));
    }

    #[test]
    fn a_run_of_stars_is_one_star() {
        assert_eq!(Wildcard::new("a**b"), Wildcard::new("a*b"));
        assert_eq!(Wildcard::new("**"), Wildcard::new("*"));
    }

    #[test]
    fn many_wildcards_agree_with_a_plain_search() {
        fn plain(pattern: &[u8], value: &[u8]) -> bool {
            match pattern.split_first() {
                None => value.is_empty(),
                Some((b'*', rest)) => (0..=value.len()).any(|n| plain(rest, &value[n..])),
                Some((c, rest)) => {
                    value.split_first().is_some_and(|(v, r)| v == c && plain(rest, r))
                }
            }
        }
        let words = |letters: &'static [char]| {
            (0..4_usize.pow(5)).map(move |n| -> String {
                (0..5).map(|place| letters[n / 4_usize.pow(place) % letters.len()]).collect()
            })
        };
        for pattern in words(&['a', 'b', '*']).filter(|p| p.contains('*')).step_by(7) {
            for value in words(&['a', 'b']) {
                assert_eq!(
                    matches(&pattern, &value),
                    plain(pattern.as_bytes(), value.as_bytes()),
                    "{pattern} {value}"
                );
            }
        }
    }
}
