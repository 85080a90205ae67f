//! `docs/limits.md` has exactly the fields of limits files, and its examples load.

use tidegate::limit::{LOG_HITS_MAX, SUB_WINDOWS_MAX};
use tidegate::rules::parse::parse;
use tidegate::rules::{LEVELS_MAX, RULE_LIMITS_MAX, Switches};

use crate::support::tools::text;

const PAGE: &str = "docs/limits.md";

/// A heading, and the file that surrounds the examples of its table.
const TABLES: [(&str, &str); 3] = [
    ("## A file\n", "domain: d\ndescriptors: []\nEXAMPLE\n"),
    ("## A rule\n", "domain: d\ndescriptors: [{ key: k, EXAMPLE }]\n"),
    ("## A limit\n", "domain: d\ndescriptors: [{ key: k, rate_limit: { EXAMPLE } }]\n"),
];

struct Row {
    field: String,
    example: String,
}

fn rows(heading: &str) -> Vec<Row> {
    let page = text(PAGE);
    let (_, rest) = page.split_once(heading).unwrap();
    let rest = rest.split("\n## ").next().unwrap();
    let cells = |line: &str| {
        let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
        let code = |cell: &str| cell.trim_matches('`').to_owned();
        Row { field: code(cells[0]), example: code(cells[cells.len() - 1]) }
    };
    rest.lines().filter(|line| line.starts_with("| `")).map(cells).collect()
}

/// The file around an example, which overrides fields of the same name.
fn with_example(file: &str, example: &str) -> String {
    let name = example.split(':').next().unwrap();
    let kept = |line: &&str| !line.starts_with(&format!("{name}:"));
    let file: Vec<_> = file.lines().filter(kept).collect();
    let file = file.join("\n") + "\n";
    let file = if name == "key" { file.replace("key: k, ", "") } else { file };
    file.replace("EXAMPLE", example)
}

fn mistakes(text: &str) -> String {
    let rules = parse(&[("page.yaml".into(), text.to_owned())], Switches::default());
    rules.err().map_or_else(String::new, |errors| errors.to_string())
}

#[test]
fn the_tables_have_every_field_and_no_other() {
    for (heading, file) in TABLES {
        let reported = mistakes(&with_example(file, "zzz: 1"));
        let (_, allowed) = reported.split_once("allowed are ").expect(&reported);
        let allowed = allowed.split(['\n', ';']).next().unwrap();
        let mut allowed: Vec<_> = allowed.split(", ").map(str::to_owned).collect();
        let mut fields: Vec<_> = rows(heading).into_iter().map(|row| row.field).collect();
        allowed.sort();
        fields.sort();
        assert_eq!(fields, allowed, "{heading}");
    }
}

#[test]
fn every_example_of_a_field_has_it_and_loads() {
    for (heading, file) in TABLES {
        for Row { field, example } in rows(heading) {
            assert!(example.contains(&format!("{field}:")), "{heading}{field}: {example}");
            let text = with_example(file, &example);
            assert_eq!(mistakes(&text), "", "{text}");
        }
    }
}

#[test]
fn the_tables_have_the_bounds() {
    let page = text(PAGE);
    for bound in [
        format!("{LEVELS_MAX} levels deep"),
        format!("{RULE_LIMITS_MAX} limits"),
        format!("1 to {},{:03};", SUB_WINDOWS_MAX / 1_000, SUB_WINDOWS_MAX % 1_000),
    ] {
        assert!(page.contains(&bound), "{bound}");
    }
    let log = LOG_HITS_MAX.to_string();
    assert!(page.replace(',', "").contains(&format!("of a log {log}")), "{log}");
}
