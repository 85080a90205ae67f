//! Characters that must not reach a terminal as they are.
//!
//! Control characters move the cursor. Format characters reorder, join or hide text, so that a line
//! reads as something that it does not say. Both come from callers and from limits files.

use std::borrow::Cow;

/// Whether a character must be escaped: it is a control character, a separator of lines, or an
/// invisible character that formats others (Unicode's categories Cc, Cf, Zl and Zp).
pub(crate) fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{180e}'
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0001}'..='\u{e007f}')
}

/// Escapes unsafe characters as Rust writes them: `\u{202e}`.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(is_unsafe) {
        return text.into();
    }
    let mut escaped = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if is_unsafe(c) { escaped.extend(c.escape_default()) } else { escaped.push(c) }
    }
    escaped.into()
}

/// Escapes unsafe characters of a line of a log as JSON writes them: `\u202e`. Line feeds and tabs stay,
/// and so do the escape sequences of colours if `keeps_colours`.
pub(crate) fn printable_line(line: &[u8], keeps_colours: bool) -> Cow<'_, [u8]> {
    let is_plain = |byte: &u8| matches!(byte, b'\t' | b'\n' | b' '..=b'~');
    if line.iter().all(|byte| is_plain(byte) || keeps_colours && *byte == 0x1b) {
        return line.into();
    }
    let text = String::from_utf8_lossy(line);
    let mut escaped = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if !is_unsafe(c) || matches!(c, '\t' | '\n') || keeps_colours && c == '\u{1b}' {
            escaped.push(c);
        } else {
            let units = &mut [0; 2];
            for unit in c.encode_utf16(units) {
                escaped.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
    escaped.into_bytes().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_and_format_characters_are_escaped_and_others_are_not() {
        assert_eq!(printable("user=zoë, 日本, \"x\\y\""), "user=zoë, 日本, \"x\\y\"");
        assert_eq!(printable("a\u{1b}[2Jb"), "a\\u{1b}[2Jb");
        assert_eq!(printable("a\nb\tc"), "a\\nb\\tc");
        for c in ["\u{202e}", "\u{2066}", "\u{200f}", "\u{61c}", "\u{2028}", "\u{feff}", "\u{9b}"] {
            assert!(printable(c).starts_with("\\u{"), "{}", printable(c));
        }
    }

    #[test]
    fn a_line_of_a_log_stays_one_line_of_json() {
        let line = |text: &str, colours| {
            String::from_utf8(printable_line(text.as_bytes(), colours).into_owned()).unwrap()
        };
        assert_eq!(line("{\"a\":\"x\u{202e}y\"}\n", false), "{\"a\":\"x\\u202ey\"}\n");
        assert_eq!(line("\u{e0041}", false), "\\udb40\\udc41");
        assert_eq!(line("\u{1b}[31mzoë", false), "\\u001b[31mzoë");
        assert_eq!(line("\u{1b}[31mzoë\u{202e}", true), "\u{1b}[31mzoë\\u202e");
    }
}
