//! A mistake in a limits file, and its place.

use std::fmt;
use std::path::PathBuf;

/// A place in a file; both count from 1, columns in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::rules) struct Position {
    pub(in crate::rules) line: usize,
    pub(in crate::rules) column: usize,
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
    /// The mistake, and the allowed values.
    pub message: String,
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
