//! Collects the mistakes of limits files.
//!
//! A mistake has a file, a line, a column and a message that says what is wrong and what is
//! allowed. At most [`MISTAKES_MAX`] are kept and the rest is counted, so that a large broken file
//! cannot use unbounded memory. Values in messages are quoted, escaped and cut, because they end up
//! in terminals, logs and the HTTP port. [`super::names`] writes the messages about unknown names.

use std::fmt;
use std::path::Path;

pub(super) use crate::rules::load_error::Position;
pub use crate::rules::load_error::{LoadError, Message};
pub(super) use crate::suggest::{quoted, shortened};

/// The most mistakes that are kept; further ones are only counted.
pub const MISTAKES_MAX: usize = 1_000;

/// All mistakes of all files, sorted by file, line and column.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadErrors {
    errors: Vec<LoadError>,
    omitted: usize,
    warnings: Vec<LoadError>,
}

impl LoadErrors {
    /// The mistakes, at most [`MISTAKES_MAX`].
    pub fn iter(&self) -> impl Iterator<Item = &LoadError> {
        self.errors.iter()
    }

    /// The warnings about the same files.
    pub fn warnings(&self) -> impl Iterator<Item = &LoadError> {
        self.warnings.iter()
    }

    /// The number of mistakes, including those that are not kept.
    pub fn count(&self) -> usize {
        self.errors.len() + self.omitted
    }

    pub(super) fn add(&mut self, error: LoadError) {
        if self.errors.len() < MISTAKES_MAX {
            self.errors.push(error);
        } else {
            self.omitted += 1;
        }
    }

    /// Adds a mistake about a whole file.
    pub(super) fn add_whole(&mut self, file: &Path, message: impl Into<Message>) {
        let file = file.to_owned();
        self.add(LoadError { file, line: 0, column: 0, width: 0, message: message.into() });
    }

    /// The result of `value` for the warnings; or all mistakes and warnings in order, if there are
    /// mistakes.
    pub(super) fn or_else<T>(mut self, value: impl FnOnce(Vec<LoadError>) -> T) -> Result<T, Self> {
        self.warnings.sort();
        if self.errors.is_empty() {
            return Ok(value(self.warnings));
        }
        self.errors.sort();
        self.errors.dedup();
        Err(self)
    }
}

/// One mistake a line.
impl fmt::Display for LoadErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.errors.iter().enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            write!(f, "{separator}{error}")?;
        }
        match self.omitted {
            0 => Ok(()),
            omitted => write!(f, "\nand {omitted} more"),
        }
    }
}

impl std::error::Error for LoadErrors {}

/// Collects the mistakes of one file.
pub(super) struct Report<'e> {
    pub(super) file: &'e Path,
    pub(super) errors: &'e mut LoadErrors,
}

impl Report<'_> {
    /// Adds a warning: valid, but probably a mistake.
    pub(super) fn warn(&mut self, at: Position, message: impl Into<Message>) {
        if self.errors.warnings.len() < MISTAKES_MAX {
            let warning = self.located(at, message.into());
            self.errors.warnings.push(warning);
        }
    }

    pub(super) fn add(&mut self, at: Position, message: impl Into<Message>) {
        let error = self.located(at, message.into());
        self.errors.add(error);
    }

    fn located(&self, at: Position, message: Message) -> LoadError {
        let Position { line, column, width } = at;
        LoadError { file: self.file.to_owned(), line, column, width, message }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_beyond_the_maximum_are_counted() {
        let mut errors = LoadErrors::default();
        for _ in 0..MISTAKES_MAX + 5 {
            errors.add_whole(Path::new("a.yaml"), "x");
        }
        assert_eq!(errors.count(), MISTAKES_MAX + 5);
        assert!(errors.to_string().ends_with("\nand 5 more"));
    }
}
