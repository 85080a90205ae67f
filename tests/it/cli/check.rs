//! `tidegate check`: mistakes in their lines, warnings, and the table of limits.

use std::fs;

use serde_json::{Value, json};

use super::{EDGE, Printed, printed, run};
use crate::support::client::limits_folder;
use crate::support::tidegate::Tidegate;

/// `check` of a file as standard input.
fn check(file: &str, args: &[&str]) -> Printed {
    printed(Tidegate::run(&[&["check", "-"], args].concat(), file))
}

const TABLE: [&str; 3] = [
    "DOMAIN  RULE                LIMIT         ALGORITHM           FLAGS",
    "edge    user                3 per 36500d  fixed_window        name=per_user",
    "edge    tenant/path=/login  1 per 1h      sliding_window_log",
];

#[test]
fn check_prints_the_rules_as_a_table() {
    let folder = limits_folder(&[EDGE]);
    let path = folder.path().join("limits-0.yaml");
    for path in [folder.path(), &path] {
        let printed = run(&["check", path.to_str().unwrap()]);
        assert_eq!((printed.code, printed.err.as_str()), (0, ""));
        assert_eq!(printed.out.lines().collect::<Vec<_>>(), TABLE);
    }
}

#[test]
fn check_shows_every_mistake_in_its_line_with_a_suggestion() {
    let bad = "domain: edge\ndescriptors:\n  - key: user\n    \
               rate_limit: { limit: 3, period: 60, shadow_mode: true }\n  - key: ip\n    \
               rate_limit: { limit: 3, unit: secnd, algorithm: tokenbucket }\n    colour: red\n";
    let folder = limits_folder(&[bad]);
    let file = folder.path().join("limits-0.yaml");
    let printed = run(&["check", folder.path().to_str().unwrap()]);
    assert_eq!((printed.code, printed.out.as_str()), (1, ""));
    let places = ["4:37", "4:41", "6:35", "6:53", "7:5"];
    for place in places {
        let place = format!(" --> {}:{place}\n", file.display());
        assert!(printed.err.contains(&place), "{place}: {}", printed.err);
    }
    for line in [
        "4 |     rate_limit: { limit: 3, period: 60, shadow_mode: true }\n",
        "  |                                     ^^ write 60s\n",
        " ^^^^^^^^^^^ shadow_mode belongs in the descriptor, beside key and rate_limit\n",
        " ^^^^^ did you mean second\n",
        " ^^^^^^^^^^^ did you mean token_bucket\n",
        "7 |     colour: red\n  |     ^^^^^^\n",
        "note: allowed are key, value, rate_limit, ",
    ] {
        assert!(printed.err.contains(line), "{line}: {}", printed.err);
    }
    assert!(printed.err.ends_with("\nerror: 5 mistakes\n"), "{}", printed.err);
}

#[test]
fn check_reads_standard_input() {
    let printed = check(EDGE, &[]);
    assert_eq!((printed.code, printed.err.as_str()), (0, ""));
    assert_eq!(printed.out.lines().collect::<Vec<_>>(), TABLE);
    let printed = check("domain: edge\nx: 1\n", &[]);
    assert_eq!(printed.code, 1);
    assert!(printed.err.contains(" --> <stdin>:2:1\n"), "{}", printed.err);
}

#[test]
fn check_reads_each_path_by_itself() {
    let (staging, production) = (limits_folder(&[EDGE]), limits_folder(&[EDGE]));
    let paths = [&staging, &production].map(|folder| folder.path().to_str().unwrap().to_owned());
    let printed = run(&["check", &paths[0], &paths[1]]);
    assert_eq!(
        (printed.code, printed.err.as_str()),
        (0, ""),
        "the same domain, but not one service"
    );
    let table = TABLE.join("\n");
    let expected = format!("{}:\n{table}\n\n{}:\n{table}\n", paths[0], paths[1]);
    assert_eq!(printed.out, expected);
    fs::write(production.path().join("limits-1.yaml"), "domain: edge\n").unwrap();
    let printed = run(&["check", &paths[0], &paths[1]]);
    assert_eq!((printed.code, printed.out.as_str()), (1, ""));
    assert!(printed.err.contains("limits-1.yaml:1:9"), "{}", printed.err);
}

#[test]
fn check_names_unreadable_files() {
    let folder = limits_folder(&[]);
    let missing = folder.path().join("missing.yaml");
    for path in [missing.as_path(), folder.path()] {
        let printed = run(&["check", path.to_str().unwrap()]);
        assert_eq!((printed.code, printed.out.as_str()), (1, ""));
        assert!(printed.err.contains(path.to_str().unwrap()), "{}", printed.err);
    }
}

const WARNED: &str = "
domain: edge
descriptors:
  - key: user
    rate_limit: { limit: 3, period: 1m, algorithm: token_bucket, burst: 0 }
";

#[test]
fn check_warns_of_a_burst_of_0_and_fails_for_it_only_if_it_is_strict() {
    let lenient = check(WARNED, &[]);
    assert_eq!(lenient.code, 0);
    assert!(
        lenient.err.starts_with("warning: limit for \"user\": burst 0 admits no hit"),
        "{}",
        lenient.err
    );
    assert!(lenient.err.contains(" ^ leave burst out, or write at least 1\n"), "{}", lenient.err);
    assert!(lenient.out.starts_with("DOMAIN"), "{}", lenient.out);
    let strict = check(WARNED, &["--strict"]);
    assert_eq!((strict.code, strict.out.as_str()), (1, ""));
    let last = "\nerror: 1 warning, and --strict allows none\n";
    assert!(strict.err.ends_with(last), "{}", strict.err);
    let allowed = WARNED.replace("burst: 0", "burst: 1");
    assert_eq!(check(&allowed, &["--strict"]).code, 0);
}

#[test]
fn check_prints_json_for_programs() {
    let printed = check(EDGE, &["--json"]);
    let reported: Value = serde_json::from_str(&printed.out).unwrap();
    assert_eq!((printed.code, printed.err.as_str(), &reported["ok"]), (0, "", &json!(true)));
    let domain = &reported["paths"][0]["domains"][0];
    assert_eq!((&domain["domain"], &domain["rules"][0]["rule"]), (&json!("edge"), &json!("user")));
    let printed = check(&format!("{WARNED}  - keey: a\n"), &["--json"]);
    let reported: Value = serde_json::from_str(&printed.out).unwrap();
    assert_eq!((printed.code, printed.err.as_str(), &reported["ok"]), (1, "", &json!(false)));
    let mistakes = &reported["paths"][0]["mistakes"];
    let place =
        |at: &Value| [&at["line"], &at["column"], &at["width"]].map(|n| n.as_u64().unwrap());
    assert_eq!([place(&mistakes[0]), place(&mistakes[1])], [[6, 5, 1], [6, 5, 4]], "{mistakes}");
    assert_eq!(mistakes[1]["help"], "did you mean key");
    assert_eq!(place(&reported["paths"][0]["warnings"][0]), [5, 73, 1]);
}

#[test]
fn check_prints_names_and_wildcards_of_any_length() {
    let long = "k".repeat(4_096);
    let mut nested = "rate_limit: { limit: 1, period: 1s }".to_owned();
    for _ in 0..20 {
        nested = format!("descriptors: [{{ key: {long}, value: {long}, {nested} }}]");
    }
    let printed = check(&format!("{{ domain: edge, {nested} }}"), &[]);
    assert_eq!((printed.code, printed.err.as_str()), (0, ""));
    assert!(printed.out.len() > 150_000, "{}", printed.out.len());
}
