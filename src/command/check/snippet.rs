//! Shows a mistake in its line, with a caret, as rustc does.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use annotate_snippets::{AnnotationKind, Element, Level, Origin, Renderer, Snippet};

use crate::printable::{self, printable};
use crate::rules::parse::{Files, LoadError};

/// Longer lines are not shown: files that programs write may be one line.
const LINE_BYTES_MAX: usize = 4_096;

/// The lines of limits files, found once per file.
pub(super) struct Sources<'f> {
    files: &'f Files,
    lines: HashMap<PathBuf, Vec<&'f str>>,
}

/// A line, and the bytes of it to underline.
struct Excerpt<'f> {
    text: Cow<'f, str>,
    marked: Range<usize>,
}

impl<'f> Sources<'f> {
    pub(super) fn of(files: &'f Files) -> Self {
        Self { files, lines: HashMap::new() }
    }

    /// The mistake with its line, and an empty line below it.
    pub(super) fn show(&mut self, level: Level<'static>, error: &LoadError) -> String {
        let path = error.file.to_string_lossy();
        let path = printable(&path);
        let help = error.message.help.as_deref();
        let mut elements: Vec<Element<'_>> = Vec::new();
        match self.line(&error.file, error.line).and_then(|line| Excerpt::of(line, error)) {
            Some(Excerpt { text, marked }) => {
                let mark = AnnotationKind::Primary.span(marked).label(help);
                let snippet = Snippet::source(text).line_start(error.line).path(path);
                elements.push(snippet.annotation(mark).into());
            }
            None => {
                elements.push(origin(path, error).into());
                elements.extend(help.map(|help| Level::HELP.message(help).into()));
            }
        }
        let allowed = error.message.allowed.as_deref();
        elements.extend(allowed.map(|allowed| Level::NOTE.message(allowed).into()));
        let report = level.primary_title(error.message.text.as_str()).elements(elements);
        Renderer::styled().render(&[report]) + "\n\n"
    }

    fn line(&mut self, file: &Path, number: usize) -> Option<&'f str> {
        if !self.lines.contains_key(file) {
            self.lines.insert(file.to_owned(), lines(self.files.text(file)?));
        }
        self.lines.get(file)?.get(number.checked_sub(1)?).copied()
    }
}

fn origin<'p>(path: Cow<'p, str>, error: &LoadError) -> Origin<'p> {
    match error.line {
        0 => Origin::path(path),
        line => Origin::path(path).line(line).char_column(error.column),
    }
}

/// A line of its own, such as the last one.
pub(super) fn title(level: Level<'_>, text: &str) -> String {
    Renderer::styled().render(&[annotate_snippets::Group::with_title(level.primary_title(text))])
}

/// The lines as YAML counts them: CR, LF or both end one.
fn lines(text: &str) -> Vec<&str> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lines = Vec::new();
    let mut rest = text;
    while let Some(end) = rest.find(['\r', '\n']) {
        lines.push(&rest[..end]);
        rest = rest[end..].strip_prefix("\r\n").unwrap_or(&rest[end + 1..]);
    }
    lines.push(rest);
    lines
}

impl<'f> Excerpt<'f> {
    /// `None` if the line is too long, or the position is not in it.
    fn of(line: &'f str, error: &LoadError) -> Option<Self> {
        if line.len() > LINE_BYTES_MAX {
            return None;
        }
        let text = harmless(line);
        let mut places = text.char_indices().map(|(at, _)| at).chain([text.len()]);
        let start = places.nth(error.column.checked_sub(1)?)?;
        let end = places.nth(error.width.max(1) - 1).unwrap_or(text.len());
        Some(Self { marked: start..end, text })
    }
}

/// The line with as many characters, all of which a terminal may print.
fn harmless(line: &str) -> Cow<'_, str> {
    let is_unsafe = |c: char| c != '\t' && printable::is_unsafe(c);
    if !line.contains(is_unsafe) {
        return line.into();
    }
    line.replace(is_unsafe, "\u{fffd}").into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::Switches;
    use crate::rules::parse::rules_of;

    /// The rendered mistakes of a file, without colours.
    fn shown(text: &str) -> String {
        let files = Files::read_from(Path::new("edge.yaml"), text.as_bytes());
        let errors = rules_of(&files, Switches::default()).unwrap_err();
        let mut sources = Sources::of(&files);
        let shown: String = errors.iter().map(|error| sources.show(Level::ERROR, error)).collect();
        anstream::adapter::strip_str(&shown).to_string()
    }

    #[test]
    fn a_mistake_is_shown_in_its_line() {
        let text =
            "domain: edge\ndescriptors:\n- key: user\n  rate_limit: { limit: 1, unit: secnd }\n";
        assert_eq!(
            shown(text),
            "error: limit for \"user\": unit \"secnd\" is not one of second, minute, hour, day, week, \
             month, year\n --> edge.yaml:4:33\n  |\n4 |   rate_limit: { limit: 1, unit: secnd }\n  |\
             \x20                                ^^^^^ did you mean second\n\n"
        );
    }

    #[test]
    fn any_line_end_and_any_letter_are_shown_at_the_right_place() {
        for (text, marked) in [
            (
                "domain: d\r\nx: 1\r\ndescriptors: []\r\n",
                " --> edge.yaml:2:1\n  |\n2 | x: 1\n  | ^\n",
            ),
            (
                "{domain: \"äöü\", x: 1, descriptors: []}",
                " --> edge.yaml:1:17\n  |\n1 | {domain: \"äöü\", x: 1, descriptors: []}\n  |                 ^\n",
            ),
        ] {
            let shown = shown(text);
            assert!(shown.contains(marked), "{shown}");
        }
    }

    #[test]
    fn a_mistake_in_a_very_long_line_is_shown_by_its_position() {
        let text = format!("{{domain: d, {}descriptr: 1, descriptors: []}}", " ".repeat(5_000));
        let shown = shown(&text);
        assert!(
            shown.starts_with("error: unknown key \"descriptr\"\n--> edge.yaml:1:5013\n"),
            "{shown}"
        );
        assert!(shown.contains("help: did you mean descriptors\n") && shown.len() < 300, "{shown}");
    }

    #[test]
    fn control_characters_of_a_file_do_not_reach_the_terminal() {
        let shown = shown("{domain: d, \"x\u{202e}\u{9b}31m\": 1, descriptors: []}");
        assert!(!shown.contains(|c| c != '\n' && crate::printable::is_unsafe(c)), "{shown:?}");
    }
}
