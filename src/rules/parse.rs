//! Limits files: YAML to a [`RuleSet`], or every mistake of every file at once.
//!
//! A file is read in two steps. `yaml` turns text into a tree of nodes that know their line and
//! column; then `domain`, `descriptor` and `limit` read the tree from the top down. A step
//! that meets a mistake reports it and goes on with the rest, so that people mend a file once and
//! not a mistake a time; only text that is no YAML ends its file. Nothing is ever ignored: a key
//! that means nothing here is a mistake.
//!
//! Deriving serde's traits was rejected: it stops at the first mistake and takes `value: 0404`
//! for a number.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::{LEVELS_MAX, RuleSet};

mod descriptor;
mod domain;
mod errors;
mod fields;
mod files;
mod limit;
mod period;
mod yaml;

pub use errors::{LoadError, LoadErrors, MISTAKES_MAX};
use errors::{Report, quoted};

/// Reads a limits file, or all `*.yaml` and `*.yml` directly in a folder.
///
/// # Errors
/// All mistakes of all files, and files that cannot be read.
pub fn load(path: &Path) -> Result<RuleSet, LoadErrors> {
    let mut errors = LoadErrors::default();
    let files = files::read(path, &mut errors);
    parse_into(&files, errors)
}

/// Reads the text of limits files; the paths are for messages and [`super::Domain::source`].
///
/// # Errors
/// All mistakes of all files.
pub fn parse(files: &[(PathBuf, String)]) -> Result<RuleSet, LoadErrors> {
    parse_into(files, LoadErrors::default())
}

fn parse_into(files: &[(PathBuf, String)], mut errors: LoadErrors) -> Result<RuleSet, LoadErrors> {
    let mut domains = Vec::with_capacity(files.len());
    let mut sources = HashMap::new();
    for (file, text) in files {
        let mut report = Report { file, errors: &mut errors };
        let Some(read) = domain::read(text, &mut report) else {
            continue;
        };
        if let Some(earlier) = sources.insert(read.domain.name.clone(), file) {
            let name = quoted(&read.domain.name);
            let message = format!("domain {name} is in {} already", earlier.display());
            report.add(read.name_at, message + "; keep all of a domain in one file");
        }
        domains.push(read.domain);
    }
    errors.or_else(|| RuleSet::new(domains))
}

#[cfg(test)]
mod tests;
