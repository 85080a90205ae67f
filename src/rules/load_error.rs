//! A mistake in a limits file, and its place.

use std::fmt;
use std::path::PathBuf;

/// A place in a file; both count from 1, columns in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::rules) struct Position {
    pub(in crate::rules) line: usize,
    pub(in crate::rules) column: usize,
    /// Characters to underline, from 1; only the first line of a longer text.
    pub(in crate::rules) width: usize,
}

/// One mistake in a limits file, or a warning.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LoadError {
    /// The file, or the folder if the mistake is about the folder.
    pub file: PathBuf,
    /// The line, from 1; 0 if the mistake is about the whole file.
    pub line: usize,
    /// The column in characters, from 1; 0 if the mistake is about the whole file.
    pub column: usize,
    /// The number of characters that are wrong, in that line.
    pub width: usize,
    /// What is wrong, and what to do about it.
    pub message: Message,
}

/// What is wrong, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Message {
    /// What is wrong, in one line.
    pub text: String,
    /// The allowed names or values.
    pub allowed: Option<String>,
    /// What was probably meant.
    pub help: Option<String>,
}

impl Message {
    /// The same message about a part of the file, which `subject` names.
    pub(in crate::rules) fn about(self, subject: impl fmt::Display) -> Self {
        Self { text: format!("{subject}{}", self.text), ..self }
    }
}

impl<T: Into<String>> From<T> for Message {
    fn from(text: T) -> Self {
        Self { text: text.into(), allowed: None, help: None }
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)?;
        for more in [&self.allowed, &self.help].into_iter().flatten() {
            write!(f, "; {more}")?;
        }
        Ok(())
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.file.display();
        if self.line == 0 {
            return write!(f, "{file}: {}", self.message);
        }
        write!(f, "{file}:{}:{}: {}", self.line, self.column, self.message)
    }
}

impl std::error::Error for LoadError {}
