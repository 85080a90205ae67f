//! Environment variables, of this process or from a file.
//!
//! The file may be the output of `env`, an env file of Compose, Docker or Kubernetes, or
//! `/proc/PID/environ`, whose records end with a zero byte and are taken literally. In lines,
//! values may be quoted, and ` #` begins a comment, as in Compose. Values may be passwords, so
//! error messages name lines by number and never repeat them.

use std::collections::BTreeMap;
use std::env;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// The largest file, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The most bad lines that an error names.
const NAMED_MAX: usize = 10;

/// Variables by name.
#[derive(Default)]
pub struct Vars {
    by_name: BTreeMap<String, Var>,
}

/// One variable.
pub struct Var {
    /// The value, which may contain a password.
    pub value: String,
    /// Where it is set.
    pub source: Source,
}

/// Where a variable is set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// In the environment of this process.
    Environment,
    /// In a line of a file, or a record, counted from 1.
    Line(String, usize),
}

impl Vars {
    /// The variables of this process whose names and values are UTF-8.
    pub fn of_this_process() -> Self {
        let pairs = env::vars_os().filter_map(|(name, value)| {
            let var = Var { value: value.into_string().ok()?, source: Source::Environment };
            Some((name.into_string().ok()?, var))
        });
        Self { by_name: pairs.collect() }
    }

    /// The variables of a file; `-` is standard input.
    ///
    /// # Errors
    /// It cannot be read, or has lines that are not variables. The message names the lines and
    /// repeats none.
    pub fn read(path: &Path) -> Result<Self, String> {
        let (name, bytes) = if path == Path::new("-") {
            ("standard input".to_owned(), bytes(io::stdin().lock()))
        } else {
            (path.display().to_string(), File::open(path).and_then(bytes))
        };
        let bytes = bytes.map_err(|error| format!("{name}: cannot be read: {error}"))?;
        if u64::try_from(bytes.len()).is_ok_and(|length| length > FILE_BYTES_MAX) {
            return Err(format!("{name}: larger than the maximum, {FILE_BYTES_MAX} bytes"));
        }
        let text = String::from_utf8(bytes).ok().ok_or_else(|| format!("{name}: not UTF-8"))?;
        Self::parse(&name, &text)
    }

    /// The variables of a text, which messages call `name`.
    ///
    /// # Errors
    /// It has lines that are not variables. The message names the lines and repeats none.
    pub fn parse(name: &str, text: &str) -> Result<Self, String> {
        type Read = fn(&str) -> Result<Option<(&str, String)>, &'static str>;
        let (end, read): (char, Read) =
            if text.contains('\0') { ('\0', record) } else { ('\n', line) };
        let (mut vars, mut mistakes) = (Self::default(), vec![]);
        for (number, line) in (1..).zip(text.split(end)) {
            let source = Source::Line(name.to_owned(), number);
            let added = read(line).map_err(str::to_owned).and_then(|pair| match pair {
                None => Ok(()),
                Some((name, value)) => vars.add(name, Var { value, source: source.clone() }),
            });
            mistakes.extend(added.err().map(|error| format!("{source}: {error}")));
        }
        if mistakes.is_empty() { Ok(vars) } else { Err(shortened(mistakes)) }
    }

    /// All variables, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Var)> {
        self.by_name.iter().map(|(name, var)| (name.as_str(), var))
    }

    fn add(&mut self, name: &str, var: Var) -> Result<(), String> {
        if let Some(earlier) = self.by_name.get(name).filter(|earlier| earlier.value != var.value) {
            let source = &earlier.source;
            return Err(format!("{name} is set again, to something else than at {source}"));
        }
        self.by_name.insert(name.to_owned(), var);
        Ok(())
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Environment => f.write_str("environment"),
            Self::Line(file, line) => write!(f, "{file}:{line}"),
        }
    }
}

fn bytes(file: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = vec![];
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn shortened(mut mistakes: Vec<String>) -> String {
    let more = mistakes.len().saturating_sub(NAMED_MAX);
    mistakes.truncate(NAMED_MAX);
    let rest = if more == 0 { String::new() } else { format!("\nand {more} more") };
    mistakes.join("\n") + &rest
}

fn record(text: &str) -> Result<Option<(&str, String)>, &'static str> {
    if text.trim().is_empty() {
        return Ok(None);
    }
    let pair = text.split_once('=').map(|(name, value)| Some((name, value.to_owned())));
    pair.ok_or("is not NAME=value")
}

fn line(text: &str) -> Result<Option<(&str, String)>, &'static str> {
    let text = text.trim();
    if text.is_empty() || text.starts_with('#') {
        return Ok(None);
    }
    let text = text.strip_prefix("export ").map_or(text, str::trim_start);
    let (name, value) = text.split_once('=').ok_or("is not NAME=value")?;
    let in_names = |c: char| !c.is_whitespace() && !"'\"#:{}[]".contains(c);
    if name.is_empty() || !name.chars().all(in_names) {
        return Err("has no name of a variable before the `=`; write NAME=value");
    }
    Ok(Some((name, unquoted(value)?)))
}

fn unquoted(text: &str) -> Result<String, &'static str> {
    let mut chars = text.trim_start().chars();
    match chars.next() {
        Some('\'') => {
            let (value, rest) =
                chars.as_str().split_once('\'').ok_or("has a quote that does not end")?;
            nothing_after(rest).map(|()| value.to_owned())
        }
        Some('"') => {
            let value = double_quoted(&mut chars).ok_or("has a quote that does not end")?;
            nothing_after(chars.as_str()).map(|()| value)
        }
        _ => {
            let comment = text.match_indices('#').map(|(at, _)| &text[..at]);
            let before = comment.into_iter().find(|before| before.ends_with([' ', '\t']));
            Ok(before.unwrap_or(text).trim().to_owned())
        }
    }
}

/// The text up to the closing quote, which is consumed.
fn double_quoted(chars: &mut std::str::Chars<'_>) -> Option<String> {
    let mut value = String::new();
    loop {
        match chars.next()? {
            '"' => return Some(value),
            '\\' => match chars.next()? {
                'n' => value.push('\n'),
                't' => value.push('\t'),
                other => value.push(other),
            },
            other => value.push(other),
        }
    }
}

fn nothing_after(rest: &str) -> Result<(), &'static str> {
    let rest = rest.trim_start();
    let free = rest.is_empty() || rest.starts_with('#');
    if free { Ok(()) } else { Err("goes on after the quote that ends its value") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<(String, String)> {
        let vars = Vars::parse("f", text).unwrap();
        vars.iter().map(|(name, var)| (name.to_owned(), var.value.clone())).collect()
    }

    fn value(text: &str) -> String {
        let pairs = read(text);
        assert_eq!(pairs.len(), 1, "{pairs:?}");
        pairs[0].1.clone()
    }

    fn refused(text: &str) -> String {
        Vars::parse("f", text).err().unwrap()
    }

    #[test]
    fn values_are_bare_or_quoted_and_comments_may_follow() {
        for (line, wanted) in [
            ("A=b", "b"),
            ("export A=b\r", "b"),
            ("A=b=c", "b=c"),
            ("A=", ""),
            ("A= # nothing", ""),
            ("A=b # comment", "b"),
            ("A=b#no-comment", "b#no-comment"),
            ("A=#b", "#b"),
            ("A='b # c' # comment", "b # c"),
            (r#"A="b \"c\" \\ d\n""#, "b \"c\" \\ d\n"),
            ("A=''", ""),
        ] {
            assert_eq!(value(line), wanted, "{line}");
        }
        assert_eq!(read("\n # A=b\n\t\n"), []);
    }

    #[test]
    fn records_that_end_with_a_zero_byte_are_literal() {
        let pairs = read("A='b # c'\0B=x\ny\0");
        let pairs: Vec<_> = pairs.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        assert_eq!(pairs, [("A", "'b # c'"), ("B", "x\ny")]);
        assert_eq!(refused("A=b\0hunter2\0"), "f:2: is not NAME=value");
    }

    #[test]
    fn lines_that_are_not_variables_are_named_and_not_repeated() {
        for (text, wanted) in [
            ("A=b\nhunter2", "f:2: is not NAME=value"),
            (
                "- name: A=hunter2",
                "f:1: has no name of a variable before the `=`; write NAME=value",
            ),
            ("=hunter2", "f:1: has no name of a variable before the `=`; write NAME=value"),
            ("A='hunter2", "f:1: has a quote that does not end"),
            ("A=\"hunter2\\\"", "f:1: has a quote that does not end"),
            ("A='b'hunter2", "f:1: goes on after the quote that ends its value"),
            ("A=b\nA=hunter2", "f:2: A is set again, to something else than at f:1"),
        ] {
            assert_eq!(refused(text), wanted, "{text}");
        }
        assert_eq!(read("A=b\nA=b").len(), 1);
    }

    #[test]
    fn of_many_bad_lines_the_first_are_named() {
        let error = refused(&"bad\n".repeat(25));
        assert_eq!(error.lines().count(), NAMED_MAX + 1, "{error}");
        assert!(error.ends_with("and 15 more"), "{error}");
    }
}
