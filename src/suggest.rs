//! Texts for messages: a value in quotes, and the known name that a wrong one is nearest to.

use crate::printable::is_unsafe;

/// The most characters of a value that a message shows.
const QUOTED_MAX: usize = 64;

/// A value in a message: quoted, cut short, control characters escaped.
pub(crate) fn quoted(text: &str) -> String {
    format!("\"{}\"", shortened(text))
}

/// The same without quotes, for numbers.
pub(crate) fn shortened(text: &str) -> String {
    let mut shown = String::new();
    for character in text.chars().take(QUOTED_MAX) {
        match character {
            unsafe_one if is_unsafe(unsafe_one) => shown.extend(unsafe_one.escape_default()),
            other => shown.push(other),
        }
    }
    if text.chars().nth(QUOTED_MAX).is_some() {
        shown.push('…');
    }
    shown
}

/// The nearest known name, if its distance to `name` is at most a third of its own letters.
pub(crate) fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if name.len() > QUOTED_MAX {
        return None;
    }
    let known = known.into_iter().filter(|known| known.len() <= 2 * QUOTED_MAX);
    let distances = known.map(|known| (strsim::osa_distance(name, known), known));
    let near = distances.filter(|(distance, known)| *distance <= known.len().div_ceil(3));
    // Of several at the same distance the first in the alphabet: the order may be random.
    near.min().map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_unlike_all_known_ones_has_no_suggestion() {
        assert_eq!(nearest("colour", ["key", "value"]), None);
        assert_eq!(nearest("valeu", ["key", "value"]), Some("value"));
        assert_eq!(nearest("kye", ["key", "value"]), Some("key"), "two letters in the wrong order");
        assert_eq!(
            nearest("user", ["free", "user_id"]),
            Some("user_id"),
            "free is as far, and short"
        );
        assert_eq!(nearest("ab", ["ac", "aa"]), Some("aa"));
        assert_eq!(nearest(&"v".repeat(10_000), ["value"]), None);
    }

    #[test]
    fn a_value_is_shown_cut_and_in_one_line() {
        assert_eq!(quoted("a\nb"), r#""a\nb""#);
        assert_eq!(quoted(&"x".repeat(100)), format!("\"{}…\"", "x".repeat(64)));
    }
}
