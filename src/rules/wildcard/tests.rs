use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn matches(pattern: &str, value: &str) -> bool {
    Wildcard::new(pattern).unwrap().matches(value)
}

#[test]
fn a_star_matches_any_characters_including_none() {
    for value in ["vip-", "vip-7", "vip-*", "vip-ö"] {
        assert!(matches("vip-*", value), "{value}");
    }
    for value in ["", "vip", "a-vip-7"] {
        assert!(!matches("vip-*", value), "{value}");
    }
    assert!(matches("*", ""));
}

#[test]
fn stars_can_be_anywhere() {
    assert!(matches("*.example.com", "a.example.com"));
    assert!(matches("/v*/users/*/posts", "/v1/users/7/posts"));
    assert!(!matches("/v*/users/*/posts", "/v1/users/posts"));
    assert!(matches("*b*c*", "abxc"));
    assert!(!matches("*b*c*", "acxb"));
}

#[test]
fn pieces_never_share_characters() {
    assert!(!matches("ab*ba", "aba"));
    assert!(matches("ab*ba", "abba"));
    assert!(!matches("*aa*aa*", "aaa"));
    assert!(!matches("a*a*a", "aa"));
}

#[test]
fn taking_the_earliest_occurrence_of_a_piece_is_correct() {
    assert!(matches("*ab*b", "abab"));
    assert!(matches("a*bc*d", "abcbcxd"));
}

#[test]
fn a_run_of_stars_is_one_star() {
    assert_eq!(Wildcard::new("a**b"), Wildcard::new("a*b"));
    assert_eq!(Wildcard::new("**"), Wildcard::new("*"));
}

#[test]
fn many_wildcards_agree_with_a_plain_search() {
    fn plain(pattern: &[u8], value: &[u8]) -> bool {
        match pattern.split_first() {
            None => value.is_empty(),
            Some((b'*', rest)) => (0..=value.len()).any(|n| plain(rest, &value[n..])),
            Some((c, rest)) => value.split_first().is_some_and(|(v, r)| v == c && plain(rest, r)),
        }
    }
    let words = |letters: &'static [char]| {
        (0..4_usize.pow(5)).map(move |n| -> String {
            (0..5).map(|place| letters[n / 4_usize.pow(place) % letters.len()]).collect()
        })
    };
    for pattern in words(&['a', 'b', '*']).filter(|p| p.contains('*')).step_by(7) {
        for value in words(&['a', 'b']) {
            assert_eq!(
                matches(&pattern, &value),
                plain(pattern.as_bytes(), value.as_bytes()),
                "{pattern} {value}"
            );
        }
    }
}

/// The accepted wildcards of these texts, as a list to try one by one and as an index.
fn both(texts: &[impl AsRef<str>]) -> (Vec<(Wildcard, usize)>, Wildcards) {
    let (mut tried, mut wildcards) = (vec![], Wildcards::default());
    for (rule, text) in texts.iter().enumerate() {
        let wildcard = || Wildcard::new(text.as_ref()).unwrap();
        if wildcards.add(wildcard(), rule).is_ok() {
            tried.push((wildcard(), rule));
        }
    }
    (tried, wildcards)
}

fn first(tried: &[(Wildcard, usize)], value: &str) -> Option<usize> {
    tried.iter().find(|(wildcard, _)| wildcard.matches(value)).map(|(_, rule)| *rule)
}

fn assert_same(texts: &[impl AsRef<str> + std::fmt::Debug], values: &[String]) {
    let (tried, mut wildcards) = both(texts);
    let mut covered = wildcards.finish().unwrap();
    for value in values {
        assert_eq!(wildcards.find(value), first(&tried, value), "{texts:?} {value:?}");
    }
    let by = |(wildcard, rule): &(Wildcard, usize)| {
        let by = first(&tried, &wildcard.text()).unwrap();
        (by != *rule).then_some(Covered { rule: *rule, by })
    };
    covered.sort_by_key(|covered| covered.rule);
    assert_eq!(covered, tried.iter().filter_map(by).collect::<Vec<_>>(), "{texts:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn an_index_agrees_with_trying_wildcards_one_by_one(
        texts in vec("[ab]{0,3}(\\*[ab]{0,3}){1,4}", 1..60),
        values in vec("[ab*]{0,20}", 20),
    ) {
        assert_same(&texts, &values);
    }

    #[test]
    fn pieces_that_many_wildcards_share_are_found_in_any_order(
        texts in vec("[aé]?(\\*(a|b|cé|xa|xxa)){1,6}\\*?", 9..80),
        values in vec("(a|b|cé|xa|xxa|y){0,30}", 20),
    ) {
        assert_same(&texts, &values);
    }
}

#[test]
fn an_index_of_similar_wildcards_agrees_with_trying_them() {
    let values = ["", "a", "a1", "1a", "b1a", "a9b", "11", "*", "a11b"].map(String::from);
    for spelt in [|n| format!("{n}*"), |n| format!("*{n}"), |n| format!("*{n}*")] {
        assert_same(&(0..20).map(spelt).collect::<Vec<String>>(), &values);
    }
    let begun: Vec<_> = (0..20).map(|n| format!("{}*{n}*", ["a", "b1", "a1"][n % 3])).collect();
    assert_same(&begun, &values);
    let with_all: Vec<_> = (0..20).map(|n| format!("a*{n}b")).chain(["*".to_owned()]).collect();
    assert_same(&with_all, &values);
}

#[test]
fn too_many_pieces_that_are_suffixes_of_one_another_are_refused() {
    let nested = |count: usize| {
        (1..=count).map(|length| format!("*{}*b", "a".repeat(length))).collect::<Vec<_>>()
    };
    both(&nested(16)).1.finish().unwrap();
    let Unfit { why, .. } = both(&nested(17)).1.finish().unwrap_err();
    assert!(why.contains("end in one another, the longest in \"aaaaaaaaaaaaaaaaa\""), "{why}");
    // Rules that are decided at once need no index.
    let alone = |count: usize| (1..=count).map(|length| format!("*{}*", "a".repeat(length)));
    both(&alone(100).collect::<Vec<_>>()).1.finish().unwrap();
}

#[test]
fn the_bytes_of_all_wildcards_are_bounded() {
    let text = |at| format!("{at:05}*{}", "x".repeat(4_000));
    let mut wildcards = Wildcards::default();
    let mut add = |at| wildcards.add(Wildcard::new(&text(at)).unwrap(), at);
    let added = (0..).take_while(|at| add(*at).is_ok()).count();
    assert_eq!(added, WILDCARD_BYTES_MAX / text(0).len());
    assert_eq!(add(added), Err(Refused::TooLong));
}
