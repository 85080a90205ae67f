//! Golden cases: each limits file of `tests/golden/limits`, read alone as `NAME.yaml`, must give
//! exactly the text of its case: its mistakes or, if it loads, its rules.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use tidegate::rules::parse::{LoadErrors, load, parse};
use tidegate::rules::{Rule, RuleSet, Switches};

use crate::support::cases::{self, Case};

fn printed(case: &Case) -> String {
    let file = (format!("{}.yaml", case.name).into(), case.given.clone());
    match parse(&[file], Switches::default()) {
        Ok(rules) => {
            let warnings = rules.warnings().map(|warning| format!("warning: {warning}\n"));
            warnings
                .chain(rules.domains().flat_map(|domain| domain.rules()).map(rule_line))
                .collect()
        }
        Err(errors) => format!("{errors}\n"),
    }
}

fn rule_line(rule: &Rule) -> String {
    let mut line = format!("{}:", rule.path());
    for one in rule.limits() {
        let limit = one.limit();
        let algorithm = limit.algorithm().name();
        write!(line, " [{} {algorithm} {}]", limit.rate(), one.name()).unwrap();
    }
    if let Some(unlimited) = rule.unlimited() {
        write!(line, " unlimited {}", unlimited.name()).unwrap();
    }
    let enforcement = rule.enforcement().name();
    for (word, holds) in [
        (enforcement, !enforcement.is_empty()),
        ("shared", rule.shares()),
        ("detailed", rule.exposes_values()),
        ("hashed", rule.hashes_values()),
        ("metadata", rule.metadata().is_some()),
        ("raw_body", rule.raw_body().is_some()),
    ] {
        if holds {
            write!(line, " {word}").unwrap();
        }
    }
    line + "\n"
}

#[test]
fn every_file_gives_its_golden_text() {
    assert!(cases::of_folder("limits").len() >= 80, "golden cases are missing");
    cases::check("limits", printed);
}

#[test]
fn the_example_loads_and_shows_every_algorithm() {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/example/limits.yaml");
    let rules = load(&example, Switches::default()).unwrap_or_else(|errors| panic!("{errors}"));
    let limits = rules.domains().flat_map(|d| d.rules()).flat_map(Rule::limits);
    let shown: BTreeSet<&str> = limits.map(|one| one.limit().algorithm().name()).collect();
    assert_eq!(shown.len(), tidegate::limit::Algorithm::ALL.len(), "{shown:?}");
}

fn load_files(files: &[(&str, &str)]) -> Result<RuleSet, LoadErrors> {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(folder.path().join(name), text).unwrap();
    }
    load(folder.path(), Switches::default())
}

#[test]
fn a_folder_of_files_is_one_rule_set() {
    let rules = load_files(&[
        ("one.yaml", "{domain: b, descriptors: []}"),
        ("two.yml", "{domain: a, descriptors: []}"),
    ])
    .unwrap();
    assert!(rules.domain("a").unwrap().sources().all(|file| file.ends_with("two.yml")));
    assert!(rules.domain("b").unwrap().sources().all(|file| file.ends_with("one.yaml")));
}

#[test]
fn the_mistakes_of_all_files_come_at_once_in_order() {
    let errors = load_files(&[
        ("c.yaml", "domain: [\n"),
        ("b.yaml", "{domain: d, descriptors: [{key: k, vale: v}], x: 1}"),
        ("a.yaml", "{domain: d, descriptors: []}"),
    ])
    .unwrap_err();
    let places: Vec<String> = errors
        .iter()
        .map(|error| {
            let file = error.file.file_name().unwrap().display();
            format!("{file}:{}:{}", error.line, error.column)
        })
        .collect();
    assert_eq!(places, ["b.yaml:1:10", "b.yaml:1:36", "b.yaml:1:47", "c.yaml:1:9"]);
}
