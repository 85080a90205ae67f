//! The shape of a command's output: its words, without the numbers and times of one run.

/// Whether the shown and the printed output have one shape. On a page, a line `...` replaces any
/// number of lines.
pub(super) fn agree(shown: &str, printed: &str) -> bool {
    let (expected, found) = (shapes(shown), shapes(printed));
    if expected.iter().any(|line| line == "...") {
        expected.iter().all(|line| line == "..." || found.contains(line))
    } else {
        expected == found
    }
}

/// Compares lines without their order: output from a hash map differs between runs.
fn shapes(text: &str) -> Vec<String> {
    let mut lines: Vec<_> = text.lines().map(shape).filter(|line| !line.is_empty()).collect();
    lines.sort();
    lines
}

/// Numbers become `0`, times `0s`, hashes `#`, and many spaces one.
fn shape(line: &str) -> String {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '.';
    let mut shape = String::new();
    for word in line.split_whitespace() {
        for part in word.split_inclusive(|c| !is_part(c)) {
            let text = part.trim_end_matches(|c| !is_part(c));
            shape += &masked(text);
            shape += &part[text.len()..];
        }
        shape.push(' ');
    }
    shape.trim_end().to_owned()
}

fn masked(text: &str) -> String {
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
    } else {
        "0".to_owned()
    }
}

fn is_hash(text: &str) -> bool {
    text.len() >= 16 && text.chars().all(|c| c.is_ascii_hexdigit())
}

#[test]
fn numbers_and_times_are_masked_and_words_are_not() {
    let shown = "user_id=42  100 per 1m  19  1m7s702ms  -\n";
    assert!(agree(shown, "user_id=7   99 per 30s  2  600ms  -\n"));
    assert!(!agree(shown, "user=42  100 per 1m  19  1m7s702ms  -\n"));
    assert!(!agree(shown, "user_id=42  100 per 1m  19  1m7s702ms  1s\n"));
    assert!(agree("a\n...\n", "a\nb\nc\n"));
    assert!(!agree("a\n...\n", "b\n"));
}
