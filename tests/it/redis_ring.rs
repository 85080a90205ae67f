//! The ring of independent servers: exactly the one of docs/redis.md, even, and stable when it
//! changes.
//!
//! `tests/golden/ring/NAME.txt` has the servers in its first line, then one tag and its server per
//! line: a different result would split the counters of replicas that run different versions.
//! `GOLDEN=write` in the environment rewrites the files.

use std::fs;
use std::path::Path;

use proptest::collection::hash_set;
use proptest::prelude::*;
use tidegate::store::redis::ring::Ring;

const TAGS: usize = 100_000;

/// The most tags on one server, in hundredths of the mean.
const FULLEST_PERCENT: usize = 115;

fn tag(number: usize) -> String {
    format!("edge,tenant={number}")
}

/// The number of tags per server.
fn counts(names: &[String]) -> Vec<usize> {
    let ring = Ring::new(names).unwrap();
    let mut counts = vec![0; names.len()];
    for number in 0..TAGS {
        counts[ring.server_of(tag(number).as_bytes())] += 1;
    }
    counts
}

fn is_even(names: &[String]) -> bool {
    let fullest = *counts(names).iter().max().unwrap();
    fullest * names.len() * 100 <= TAGS * FULLEST_PERCENT
}

/// The names of two to sixteen servers.
fn servers() -> impl Strategy<Value = Vec<String>> {
    let name = ("[a-z][a-z0-9.-]{0,20}", 1..65_535_u16);
    let names = hash_set(name.prop_map(|(host, port)| format!("{host}:{port}")), 2..=16);
    names.prop_map(|names| names.into_iter().collect())
}

#[test]
fn every_tag_is_on_the_server_of_the_golden_files() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/ring");
    let write = std::env::var_os("GOLDEN").is_some_and(|value| value == "write");
    for name in ["two", "three", "sixteen"] {
        let path = folder.join(name).with_extension("txt");
        let golden = fs::read_to_string(&path).unwrap();
        let (first, rest) = golden.split_once('\n').unwrap();
        let servers: Vec<&str> = first.split(' ').collect();
        let ring = Ring::new(&servers).unwrap();
        let tags = rest.lines().map(|line| line.rsplit_once(' ').unwrap().0);
        let line = |tag: &str| format!("{tag} {}\n", servers[ring.server_of(tag.as_bytes())]);
        let now = format!("{first}\n{}", tags.map(line).collect::<String>());
        assert!(now.lines().count() > 300, "{name}");
        if write {
            fs::write(&path, now).unwrap();
        } else {
            assert!(golden == now, "{name}: tags have moved to other servers");
        }
    }
}

#[test]
fn any_number_of_similar_names_share_evenly() {
    for count in 2..=16 {
        let names: Vec<_> = (0..count).map(|at| format!("redis-{at}.redis.svc:6379")).collect();
        assert!(is_even(&names), "{count}: {:?}", counts(&names));
        let names: Vec<_> = (0..count).map(|at| format!("10.0.0.7:{}", 6_379 + at)).collect();
        assert!(is_even(&names), "{count}: {:?}", counts(&names));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_server_has_much_more_than_its_share(names in servers()) {
        prop_assert!(is_even(&names), "{:?}", counts(&names));
    }

    #[test]
    fn a_new_server_takes_its_share_from_all_others_and_nothing_else_moves(names in servers()) {
        let (after, others) = (Ring::new(&names).unwrap(), &names[1..]);
        let before = Ring::new(others).unwrap();
        let mut taken = 0;
        for number in 0..TAGS {
            let tag = tag(number);
            let now = &names[after.server_of(tag.as_bytes())];
            if *now == names[0] {
                taken += 1;
            } else {
                prop_assert_eq!(now, &others[before.server_of(tag.as_bytes())]);
            }
        }
        let share = TAGS / names.len();
        prop_assert!(taken * 100 > share * 85 && taken * 100 < share * 115, "{taken} of {share}");
    }

    #[test]
    fn the_order_of_the_servers_has_no_effect(names in servers(), turn in 1..16_usize) {
        let mut others = names.clone();
        others.reverse();
        let by = turn % others.len();
        others.rotate_left(by);
        let (one, other) = (Ring::new(&names).unwrap(), Ring::new(&others).unwrap());
        for number in 0..1_000 {
            let tag = tag(number);
            let (one, other) = (one.server_of(tag.as_bytes()), other.server_of(tag.as_bytes()));
            prop_assert_eq!(&names[one], &others[other]);
        }
    }
}
