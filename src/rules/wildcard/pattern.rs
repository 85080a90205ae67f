//! One wildcard: its pieces between the stars, and whether it matches a value.

/// A text in which each `*` stands for any characters, also none.
///
/// Kept as the pieces between the stars: the first must begin the value, the last must end it,
/// and each one between is looked for behind the one before. The earliest find is always right,
/// because it leaves most to those that follow.
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
