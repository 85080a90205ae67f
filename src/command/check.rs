//! `tidegate check`: shows the mistakes in limits files, or how the files were understood.
//!
//! Each path is read by itself, as `serve --limits PATH` would. A mistake is shown in its line, as
//! compilers show it. Files without mistakes are printed as a table: one line per limit, with the domain,
//! the path of the rule, the limit, its algorithm and its flags, so that a reviewer sees defaults and
//! overrides spelled out. Mistakes and warnings go to stderr; only `--strict` makes warnings failures.
//! The output is for people and may change between versions; `--json` is for programs.

mod snippet;
mod table;

use std::fmt::Write;
use std::io::stdin;
use std::path::{Path, PathBuf};

use annotate_snippets::Level;
use serde_json::{Value, json};

use self::snippet::Sources;
use super::printable;
use crate::http::describe_domain;
use crate::rules::parse::{Files, LoadError, LoadErrors, rules_of};
use crate::rules::{RuleSet, Switches};
use crate::settings::Check;

/// Standard input, as a path and in messages.
const STDIN: &str = "-";
const STDIN_NAME: &str = "<stdin>";

/// The limits at one path.
struct Checked {
    path: PathBuf,
    files: Files,
    outcome: Result<RuleSet, LoadErrors>,
}

/// Checks all paths, prints the result, and returns whether there is nothing to mend.
///
/// # Errors
/// The result cannot be printed.
pub fn run(settings: &Check) -> Result<bool, String> {
    let switches = settings.switches.into();
    let checked: Vec<_> = settings.paths.iter().map(|path| Checked::read(path, switches)).collect();
    let mistakes: usize = checked.iter().map(Checked::mistakes_count).sum();
    let warnings: usize = checked.iter().map(|checked| checked.warnings().count()).sum();
    let is_good = mistakes == 0 && (warnings == 0 || !settings.strict);
    if settings.json {
        let all: Vec<_> = checked.iter().map(Checked::json).collect();
        super::print(&format!("{}\n", json!({ "ok": is_good, "paths": all })))?;
        return Ok(is_good);
    }
    let mut shown: String = checked.iter().map(Checked::diagnostics).collect();
    if !is_good {
        let _ = writeln!(shown, "{}", verdict(mistakes, warnings));
    }
    super::print_error(&shown);
    if is_good {
        super::print(&tables(&checked))?;
    }
    Ok(is_good)
}

/// The last line, if there is something to mend.
fn verdict(mistakes: usize, warnings: usize) -> String {
    let count = |number, noun| match number {
        1 => format!("1 {noun}"),
        _ => format!("{number} {noun}s"),
    };
    let text = match (mistakes, warnings) {
        (0, warnings) => format!("{}, and --strict allows none", count(warnings, "warning")),
        (mistakes, 0) => count(mistakes, "mistake"),
        (mistakes, warnings) => {
            format!("{}, {}", count(mistakes, "mistake"), count(warnings, "warning"))
        }
    };
    snippet::title(Level::ERROR, &text)
}

/// The tables of all paths. Each has its path above it, unless it is the only one.
fn tables(checked: &[Checked]) -> String {
    let is_only = checked.len() == 1;
    let tables = checked.iter().filter_map(|checked| {
        let table = table::table(checked.outcome.as_ref().ok()?);
        let path = checked.path.to_string_lossy();
        Some(if is_only { table } else { format!("{}:\n{table}", printable(&path)) })
    });
    tables.collect::<Vec<_>>().join("\n")
}

impl Checked {
    fn read(path: &Path, switches: Switches) -> Self {
        let (path, files) = if path == Path::new(STDIN) {
            let name = PathBuf::from(STDIN_NAME);
            let files = Files::read_from(&name, stdin().lock());
            (name, files)
        } else {
            (path.to_owned(), Files::read(path))
        };
        let outcome = rules_of(&files, switches);
        Self { path, files, outcome }
    }

    fn mistakes_count(&self) -> usize {
        self.outcome.as_ref().err().map_or(0, LoadErrors::count)
    }

    fn mistakes(&self) -> impl Iterator<Item = &LoadError> {
        self.outcome.as_ref().err().into_iter().flat_map(LoadErrors::iter)
    }

    fn warnings(&self) -> impl Iterator<Item = &LoadError> {
        let (of_rules, of_errors) = match &self.outcome {
            Ok(rules) => (Some(rules.warnings()), None),
            Err(errors) => (None, Some(errors.warnings())),
        };
        of_rules.into_iter().flatten().chain(of_errors.into_iter().flatten())
    }

    /// All mistakes and warnings in their lines, for people.
    fn diagnostics(&self) -> String {
        let mut sources = Sources::of(&self.files);
        let mut shown = String::new();
        let all = [
            (Level::WARNING, self.warnings().collect::<Vec<_>>()),
            (Level::ERROR, self.mistakes().collect()),
        ];
        for (level, errors) in all {
            for error in errors {
                shown += &sources.show(level.clone(), error);
            }
        }
        shown
    }

    fn json(&self) -> Value {
        let domains = self.outcome.iter().flat_map(RuleSet::domains).map(describe_domain);
        json!({
            "path": self.path.to_string_lossy(),
            "mistakes": self.mistakes().map(diagnostic).collect::<Vec<_>>(),
            "warnings": self.warnings().map(diagnostic).collect::<Vec<_>>(),
            "domains": domains.collect::<Vec<_>>(),
        })
    }
}

/// One mistake or warning for programs. Line and column count from 1; they are 0 for a whole file.
fn diagnostic(error: &LoadError) -> Value {
    json!({
        "file": error.file.to_string_lossy(),
        "line": error.line,
        "column": error.column,
        "width": error.width,
        "message": error.message.text,
        "allowed": error.message.allowed,
        "help": error.message.help,
    })
}
