//! Parses limits files: YAML to a [`RuleSet`], or all mistakes of all files at once.
//!
//! A file is read in two steps. `yaml` turns text into a tree of nodes that know their line and
//! column; then `domain`, `descriptor` and `limit` read the tree from the top down into `drafts`. A
//! step that finds a mistake reports it and continues with the rest, so that one run shows every
//! mistake; only invalid YAML ends its file. Nothing is ignored: an unknown key is a mistake.
//!
//! Deriving serde's traits was rejected: it stops at the first mistake and reads `value: 0404` as a
//! number.

use std::path::{Path, PathBuf};

use super::{RuleSet, Switches};

mod descriptor;
mod domain;
mod drafts;
mod errors;
mod exempt;
mod fields;
mod files;
mod limit;
mod metadata;
mod names;
mod path;
mod yaml;

use drafts::{Draft, Drafts};
use errors::Report;
pub use errors::{LoadError, LoadErrors, MISTAKES_MAX, Message};
pub use files::{Files, candidates};

/// Reads a limits file, or all `*.yaml` and `*.yml` directly in a folder.
///
/// # Errors
/// All mistakes of all files, and files that cannot be read.
pub fn load(path: &Path, switches: Switches) -> Result<RuleSet, LoadErrors> {
    rules_of(&Files::read(path), switches)
}

/// Builds a rule set from files that have been read.
///
/// # Errors
/// All mistakes of all files, and files that could not be read.
pub fn rules_of(files: &Files, switches: Switches) -> Result<RuleSet, LoadErrors> {
    parse_into(&files.texts, switches, files.errors.clone())
}

/// Parses the text of limits files; the paths are for messages and [`super::Domain::sources`].
///
/// # Errors
/// All mistakes of all files.
pub fn parse(files: &[(PathBuf, String)], switches: Switches) -> Result<RuleSet, LoadErrors> {
    parse_into(files, switches, LoadErrors::default())
}

fn parse_into(
    files: &[(PathBuf, String)],
    switches: Switches,
    mut errors: LoadErrors,
) -> Result<RuleSet, LoadErrors> {
    let mut drafts = Drafts::default();
    for (file, text) in files {
        domain::read(text, &mut drafts, switches, &mut Report { file, errors: &mut errors });
    }
    drafts.drafts.iter().for_each(|draft| exempt::warn(&draft.tree, &mut errors));
    drafts.drafts.iter_mut().for_each(|draft| draft.tree.finish(&mut errors));
    drafts.drafts.iter().for_each(|draft| draft.warn_of_missing_names(&mut errors));
    let finish = |draft: Draft| draft.finish(switches);
    errors
        .or_else(|warnings| RuleSet::new(drafts.drafts.into_iter().map(finish).collect(), warnings))
}

#[cfg(test)]
mod tests;
