use proptest::prelude::*;

use super::*;
use crate::rules::LEVELS_MAX;

fn parse_text(text: &str) -> Result<RuleSet, LoadErrors> {
    parse(&[("edge.yaml".into(), text.into())], Switches::default())
}

fn mistakes(text: &str) -> String {
    parse_text(text).unwrap_err().to_string()
}

#[test]
fn a_hundred_thousand_rules_load() {
    let rules = (0..100_000)
        .map(|n| format!("- {{key: user, value: u{n}, rate_limit: {{limit: {n}, unit: day}}}}\n"));
    let text = format!("domain: edge\ndescriptors:\n{}", rules.collect::<String>());
    let rules = parse_text(&text).unwrap();
    assert_eq!(rules.limits_count(), 100_000);
    let rule = rules.domain("edge").unwrap().find([("user", "u99999")]).unwrap();
    assert_eq!(rule.limits()[0].limit().hits(), 99_999);
}

#[test]
fn a_hundred_thousand_aliases_of_one_limit_load() {
    let rules = (0..100_000).map(|n| format!("- {{key: k{n}, rate_limit: *usual}}\n"));
    let text = format!(
        "domain: edge\ndescriptors:\n- {{key: k, rate_limit: &usual {{limit: 1, unit: day}}}}\n{}",
        rules.collect::<String>()
    );
    assert_eq!(parse_text(&text).unwrap().limits_count(), 100_001);
}

#[test]
fn endlessly_nested_aliases_are_refused() {
    let steps = (1..200).map(|n| format!("x{n}: &x{n} [*x{}]\n", n - 1));
    let text = format!("x0: &x0 [a]\n{}", steps.collect::<String>());
    let expected = "edge.yaml:101:13: nested more than 100 lists and mappings deep";
    assert!(mistakes(&text).ends_with(expected), "{}", mistakes(&text));
}

#[test]
fn endless_brackets_are_refused() {
    for bracket in ["[", "{a: ", "- ", "? "] {
        assert!(parse_text(&bracket.repeat(100_000)).is_err(), "{bracket}");
    }
}

#[test]
fn descriptors_nest_up_to_the_maximum_depth() {
    let nested = |levels: usize| {
        let open = "descriptors: [{key: k, ".repeat(levels);
        format!("{{domain: d, {open}{}}}", "}]".repeat(levels))
    };
    assert!(parse_text(&nested(LEVELS_MAX)).is_ok());
    assert!(mistakes(&nested(LEVELS_MAX + 1)).contains("more than 32 levels deep"));
}

#[test]
fn a_domain_is_in_one_file() {
    let text = "{domain: edge, descriptors: []}".to_owned();
    let files = [("a.yaml".into(), text.clone()), ("b.yaml".into(), text)];
    let expected = "b.yaml:1:10: domain \"edge\" is in a.yaml already; \
                    keep all of a domain in one file, or use --merge-domains";
    assert_eq!(parse(&files, Switches::default()).unwrap_err().to_string(), expected);
}

#[test]
fn byte_order_marks_and_windows_line_ends_are_read() {
    let rules = parse_text("\u{feff}domain: edge\r\ndescriptors:\r\n  - key: user\r\n").unwrap();
    assert_eq!(rules.domain("edge").unwrap().rules().next().unwrap().path(), "user");
}

#[test]
fn columns_count_characters() {
    let text = "{domain: \"äöü\", x: 1, descriptors: []}";
    assert!(mistakes(text).starts_with("edge.yaml:1:17: unknown key"), "{}", mistakes(text));
}

#[test]
fn more_wildcards_than_a_lookup_supports_are_refused() {
    let rules = |count: usize| -> String {
        let rules = (0..count).map(|n| format!("- {{key: user, value: \"{n}-*\"}}\n"));
        format!("domain: edge\ndescriptors:\n{}", rules.collect::<String>())
    };
    assert!(parse_text(&rules(10_000)).is_ok());
    assert!(mistakes(&rules(10_001)).contains("more than 10000 wildcards for one key"));
}

#[test]
fn the_count_includes_mistakes_that_are_not_kept() {
    let text = format!("domain: edge\ndescriptors:\n{}", "- 1\n".repeat(1_500));
    let errors = parse_text(&text).unwrap_err();
    assert_eq!((errors.count(), errors.iter().count()), (1_500, MISTAKES_MAX));
}

proptest! {
    #[test]
    fn no_text_panics(words in prop::collection::vec(prop::sample::select(&WORDS[..]), 0..60)) {
        let _ = parse_text(&words.concat());
        let _ = parse_text(&format!("domain: d\ndescriptors:\n  - {}", words.concat()));
    }

    #[test]
    fn every_mistake_has_a_position(words in prop::collection::vec(prop::sample::select(&WORDS[..]), 0..60)) {
        if let Err(errors) = parse_text(&words.concat()) {
            prop_assert!(errors.iter().count() > 0);
            for error in errors.iter() {
                prop_assert!(error.line > 0 && error.column > 0, "{}", error);
                prop_assert!(!error.message.to_string().ends_with('.') && !error.message.to_string().contains('\n'));
            }
        }
    }
}

const WORDS: [&str; 34] = [
    "domain: ",
    "descriptors: ",
    "key: ",
    "value: ",
    "rate_limit: ",
    "limit: ",
    "unit: ",
    "period: ",
    "unlimited: ",
    "algorithm: ",
    "slot_by: ",
    "true",
    "7",
    "-",
    "- ",
    "[",
    "]",
    "{",
    "}",
    ", ",
    "\n",
    "\n  ",
    "\n    ",
    "day",
    "1m",
    "\"",
    "'",
    "&a ",
    "*a",
    "<<: ",
    "!!str ",
    "|\n",
    "# x\n",
    "\u{0}",
];
