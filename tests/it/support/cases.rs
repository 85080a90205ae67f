//! Golden cases: files of many cases, each with a name, an input and the exact expected output.
//! `tests/golden/FOLDER/AREA.cases` has the format
//!
//! ```text
//! === NAME the input --- says the expected output
//! ```
//!
//! with a blank line between two cases. `GOLDEN=write` in the environment rewrites the expected
//! outputs, for a review of the difference.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

const NAME: &str = "=== ";
const SAYS: &str = "--- says\n";

/// One case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    pub name: String,
    pub given: String,
    pub expected: String,
}

/// All cases of a folder below `tests/golden`.
pub fn of_folder(folder: &str) -> Vec<Case> {
    files(folder).iter().flat_map(|file| parse(&fs::read_to_string(file).unwrap())).collect()
}

/// The case with this name.
pub fn find(folder: &str, name: &str) -> Case {
    let mut all = of_folder(folder).into_iter();
    all.find(|case| case.name == name).unwrap_or_else(|| panic!("{folder} has no case {name}"))
}

/// Fails with every case for which the output of `say` differs from the file.
pub fn check(folder: &str, say: impl Fn(&Case) -> String) {
    let write = std::env::var_os("GOLDEN").is_some_and(|value| value == "write");
    let mut differences = String::new();
    for file in files(folder) {
        let mut cases = parse(&fs::read_to_string(&file).unwrap());
        for case in &mut cases {
            let printed = say(case);
            if !write && printed != case.expected {
                writeln!(differences, "{} says now:\n{printed}", case.name).unwrap();
            }
            case.expected = printed;
        }
        if write {
            fs::write(&file, text(&cases)).unwrap();
        }
    }
    assert!(differences.is_empty(), "{differences}");
}

fn files(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(folder);
    let files = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> =
        files.filter(|file| file.extension().is_some_and(|e| e == "cases")).collect();
    files.sort();
    assert!(!files.is_empty(), "{folder:?} holds no cases");
    files
}

fn parse(text: &str) -> Vec<Case> {
    let text = text.strip_prefix(NAME).expect("a file of cases begins with a name");
    let of_one = |one: &str| {
        let (name, rest) = one.split_once('\n').expect("a name ends its line");
        let (given, expected) =
            rest.split_once(SAYS).unwrap_or_else(|| panic!("{name} has no line {SAYS:?}"));
        Case { name: name.to_owned(), given: given.to_owned(), expected: expected.to_owned() }
    };
    text.split("\n\n=== ")
        .map(|one| of_one(&(one.trim_end_matches('\n').to_owned() + "\n")))
        .collect()
}

fn text(cases: &[Case]) -> String {
    let of_one =
        |case: &Case| format!("{NAME}{}\n{}{SAYS}{}", case.name, case.given, case.expected);
    cases.iter().map(of_one).collect::<Vec<_>>().join("\n")
}

#[test]
fn cases_are_read_as_they_are_written() {
    let case = |name: &str, given: &str, expected: &str| Case {
        name: name.to_owned(),
        given: given.to_owned(),
        expected: expected.to_owned(),
    };
    let cases = [
        case("empty", "", "empty.yaml: the file is empty\n"),
        case("documents", "a: 1\n\n---\nb: 2\n", "documents.yaml:3:1: a second document\n"),
        case("last", "a: 1\n", "a: 1\n\nb: 2\n"),
    ];
    assert_eq!(parse(&text(&cases)), cases);
}

#[test]
fn no_two_cases_of_a_folder_have_one_name() {
    for folder in ["limits", "migrate"] {
        let mut names: Vec<_> = of_folder(folder).into_iter().map(|case| case.name).collect();
        names.sort();
        let before = names.len();
        names.dedup();
        assert_eq!(names.len(), before, "{folder}");
    }
}
