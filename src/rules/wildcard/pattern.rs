//! One wildcard: its pieces between the stars, and whether it matches a value.

/// A text in which each `*` matches any number of characters, including none.
///
/// Stored as the pieces between the stars: the value must begin with the first, end with the last,
/// and contain the others in order. Taking the earliest occurrence of each is always correct,
/// because it leaves the longest rest for the pieces after it.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::rules) struct Wildcard {
    pub(super) first: Box<str>,
    pub(super) middle: Box<[Box<str>]>,
    pub(super) last: Box<str>,
}

impl Wildcard {
    /// `None` where the text has no star.
    pub(in crate::rules) fn new(text: &str) -> Option<Self> {
        let (first, rest) = text.split_once('*')?;
        let (middle, last) = rest.rsplit_once('*').unwrap_or(("", rest));
        let middle = middle.split('*').filter(|piece| !piece.is_empty()).map(Box::from).collect();
        Some(Self { first: first.into(), middle, last: last.into() })
    }

    /// As it is written, with one star where there were several in a row.
    pub(super) fn text(&self) -> String {
        let ends = |piece: &str| piece.to_owned() + "*";
        let middle: String = self.middle.iter().map(|piece| ends(piece)).collect();
        ends(&self.first) + &middle + &self.last
    }

    pub(super) fn matches(&self, value: &str) -> bool {
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
