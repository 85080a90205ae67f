//! The shape of a command's output: its words, without the times of one run, and where they differ
//! between runs without its numbers.

/// What of an output is compared.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Compared {
    /// Words.
    Words,
    /// Words, and numbers that are no times.
    WordsAndNumbers,
}

/// Whether the shown and the printed output have one shape. On a page, a line `...` replaces any
/// number of lines.
pub(super) fn agree(shown: &str, printed: &str, compared: Compared) -> bool {
    let (expected, found) = (shapes(shown, compared), shapes(printed, compared));
    if expected.iter().any(|line| line == "...") {
        expected.iter().all(|line| line == "..." || found.contains(line))
    } else {
        expected == found
    }
}

/// Compares lines without their order: output from a hash map differs between runs.
fn shapes(text: &str, compared: Compared) -> Vec<String> {
    let mut lines: Vec<_> =
        text.lines().map(|line| shape(line, compared)).filter(|line| !line.is_empty()).collect();
    lines.sort();
    lines
}

/// Numbers become `0` if they are not compared, times `0s`, hashes `#`, and many spaces one.
fn shape(line: &str, compared: Compared) -> String {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '.';
    let mut shape = String::new();
    for word in line.split_whitespace() {
        for part in word.split_inclusive(|c| !is_part(c)) {
            let text = part.trim_end_matches(|c| !is_part(c));
            shape += &masked(text, compared);
            shape += &part[text.len()..];
        }
        shape.push(' ');
    }
    shape.trim_end().to_owned()
}

fn masked(text: &str, compared: Compared) -> String {
    if !text.starts_with(|c: char| c.is_ascii_digit()) && !is_hash(text) {
        return text.to_owned();
    }
    let letters = text.trim_matches(|c: char| c.is_ascii_digit() || c == '.');
    let is_time = !letters.is_empty() && letters.chars().all(|c| "dhms.0123456789µ".contains(c))
        || text.ends_with(['d', 'h', 'm', 's']);
    if is_hash(text) {
        "#".to_owned()
    } else if is_time {
        "0s".to_owned()
    } else if compared == Compared::WordsAndNumbers {
        text.to_owned()
    } else {
        "0".to_owned()
    }
}

fn is_hash(text: &str) -> bool {
    text.len() >= 16 && text.chars().all(|c| c.is_ascii_hexdigit())
}

#[test]
fn numbers_and_times_are_masked_and_words_are_not() {
    let agree = |shown, printed| agree(shown, printed, Compared::Words);
    let shown = "user_id=42  100 per 1m  19  1m7s702ms  -\n";
    assert!(agree(shown, "user_id=7   99 per 30s  2  600ms  -\n"));
    assert!(!agree(shown, "user=42  100 per 1m  19  1m7s702ms  -\n"));
    assert!(!agree(shown, "user_id=42  100 per 1m  19  1m7s702ms  1s\n"));
    assert!(agree("a\n...\n", "a\nb\nc\n"));
    assert!(!agree("a\n...\n", "b\n"));
}

#[test]
fn numbers_are_compared_where_they_are_the_same_in_every_run() {
    let agree = |shown, printed| agree(shown, printed, Compared::WordsAndNumbers);
    let shown = "user_id=42  100 per 1m  19  1m7s702ms  -\n";
    assert!(agree(shown, "user_id=42  100 per 1m  19  600ms  -\n"));
    assert!(!agree(shown, "user_id=42  100 per 1m  18  1m7s702ms  -\n"));
}
