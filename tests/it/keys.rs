//! Keys: different counters have different keys, and the hash tag has the domain and the entries of
//! `slot_by`.

use proptest::collection::vec;
use proptest::prelude::*;
use tidegate::key::{Key, KeyFormat, KeyParts, KeyPrefix, KeySecret, KeySuffix};
use tidegate::limit::{Algorithm, Limit};

use crate::counters::limit;

/// The parts of a key, owned.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Parts {
    domain: String,
    slot_by: Vec<String>,
    entries: Vec<(String, String)>,
    /// Whether a wildcard that looks like the entry's value replaces all values; without one, none
    /// does.
    shared: Vec<bool>,
    algorithm: Algorithm,
    period_ms: u64,
    ordinal: u8,
    /// Whether values are hashed under a secret.
    secret: bool,
}

impl Parts {
    fn spelling(&self) -> KeyFormat {
        let secret = self.secret.then(|| KeySecret::of(b"sixteen bytes...").unwrap());
        KeyFormat { secret, ..KeyFormat::readable("tg") }
    }

    fn limit(&self) -> Limit {
        limit(self.algorithm, 5, self.period_ms)
    }

    fn key(&self) -> Vec<u8> {
        let shared: Vec<_> =
            self.marked().map(|(_, value, shared)| shared.then(|| wildcard(value))).collect();
        let counter = KeyParts {
            head: &KeyPrefix::of(&self.spelling(), &self.domain),
            slot_by: &self.slot_by,
            entries: self.entries.iter().map(|(key, value)| (key.as_str(), value.as_str())),
            shared: &shared,
            tail: &KeySuffix::of(&self.limit(), self.ordinal),
        };
        Key::of(&counter).as_bytes().to_vec()
    }

    fn text(&self) -> String {
        String::from_utf8(self.key()).unwrap()
    }

    /// The entries that choose the slot, if the path has all of them.
    fn slot(&self) -> Vec<(String, String, bool)> {
        let marked =
            || self.marked().map(|(key, value, shared)| (key.into(), value.into(), shared));
        let find = |name: &String| marked().find(|(key, _, _): &(String, _, _)| key == name);
        self.slot_by.iter().map(find).collect::<Option<_>>().unwrap_or_default()
    }

    fn marked(&self) -> impl Iterator<Item = (&str, &str, bool)> {
        let shared = self.shared.iter().copied().chain(std::iter::repeat(false));
        self.entries.iter().zip(shared).map(|((key, value), shared)| (&**key, &**value, shared))
    }

    /// Everything that distinguishes two counters.
    fn identity(&self) -> impl PartialEq + use<> {
        let Self { domain, algorithm, period_ms, ordinal, .. } = self.clone();
        let entries = self.marked().map(|(k, v, shared)| (k.to_owned(), v.to_owned(), shared));
        (domain, self.slot(), entries.collect::<Vec<_>>(), algorithm, period_ms, ordinal)
    }
}

/// Every wildcard has a star.
fn wildcard(value: &str) -> Box<str> {
    format!("{value}*").into()
}

/// The part that Redis Cluster hashes: between the first `{` and the first `}` after it.
fn hash_tag(key: &[u8]) -> &[u8] {
    let open = key.iter().position(|byte| *byte == b'{').unwrap();
    let len = key[open + 1..].iter().position(|byte| *byte == b'}').unwrap();
    &key[open + 1..][..len]
}

/// Short strings of all separators and escapes, so that two collide if any can, and long ones.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => "[ab{}:,%=# 07\u{0}\u{1}\u{7f}é𝄞]{0,4}",
        2 => "(%2c|%23|%00|#0|a=b|,a=|:log:1h|\\}:)",
        1 => "[ab{,𝄞]{120,136}",
        1 => any::<String>(),
    ]
}

fn parts() -> impl Strategy<Value = Parts> {
    let entries = vec((text(), text()), 0..4);
    let slot_by = vec(any::<prop::sample::Index>(), 0..3);
    let algorithm = prop::sample::select(Algorithm::ALL.to_vec());
    let period_ms = prop::sample::select(vec![10, 1_000, 60_000, 3_600_000, 3_660_000]);
    let shared = vec(prop::bool::weighted(0.2), 0..4);
    (text(), entries, shared, slot_by, algorithm, period_ms, 0..3_u8).prop_map(
        |(domain, entries, shared, slot_by, algorithm, period_ms, ordinal)| {
            let name = |index: &prop::sample::Index| index.get(&entries).0.clone();
            let slot_by =
                if entries.is_empty() { vec![] } else { slot_by.iter().map(name).collect() };
            Parts { domain, slot_by, entries, shared, algorithm, period_ms, ordinal, secret: false }
        },
    )
}

/// Parts that differ in at most one position.
fn changed(parts: &Parts, place: usize, text: String) -> Parts {
    let mut changed = parts.clone();
    let entries = changed.entries.len();
    match place {
        0 => changed.domain = text,
        1 => changed.ordinal += 1,
        2 => changed.slot_by.truncate(changed.slot_by.len().saturating_sub(1)),
        3 => changed.entries.truncate(entries.saturating_sub(1)),
        4 => changed.entries.push((text, String::new())),
        5 if entries > 0 => changed.entries[0].0 = text,
        6 if entries > 0 => changed.entries[entries - 1].1 = text,
        7 if entries > 1 => changed.entries.swap(0, 1),
        // One entry whose value reads like two.
        8 if entries > 1 => {
            let (name, value) = changed.entries.remove(1);
            changed.entries[0].1 += &format!(",{name}={value}");
        }
        9 if entries > 0 => {
            changed.shared.resize(entries, false);
            changed.shared[0] ^= true;
        }
        _ => changed.period_ms *= 3,
    }
    changed
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn different_counters_have_different_keys(
        one in parts(), other in parts(), secret: bool,
    ) {
        let [one, other] = [one, other].map(|parts| Parts { secret, ..parts });
        prop_assert_eq!(one.identity() == other.identity(), one.key() == other.key());
    }

    #[test]
    fn counters_that_differ_in_one_place_have_different_keys(
        one in parts(), place in 0..11_usize, text in text(), secret: bool,
    ) {
        let one = Parts { secret, ..one };
        let other = changed(&one, place, text);
        prop_assert_eq!(one.identity() == other.identity(), one.key() == other.key());
    }

    #[test]
    fn the_hash_tag_is_the_domain_and_the_entries_of_slot_by(one in parts()) {
        let mut alone = one.clone();
        alone.entries = one.slot().into_iter().map(|(key, value, _)| (key, value)).collect();
        alone.shared = one.slot().into_iter().map(|(_, _, shared)| shared).collect();
        alone.slot_by = alone.entries.iter().map(|(name, _)| name.clone()).collect();
        let (key, alone) = (one.key(), alone.key());
        prop_assert_eq!(hash_tag(&key), hash_tag(&alone), "the rest of the path is in it");
        let tag = String::from_utf8(hash_tag(&key).to_vec()).unwrap();
        prop_assert_eq!(tag.matches(',').count(), one.slot().len());
        let start = format!("tg:{{{tag}}}:");
        prop_assert!(key.starts_with(start.as_bytes()));
    }

    #[test]
    fn a_key_is_short_and_has_no_blanks_or_controls(one in parts()) {
        let key = one.key();
        prop_assert!(!key.iter().any(|byte| *byte <= b' ' || *byte == 0x7f));
        prop_assert!(key.len() <= 3 * 128 * (1 + 4 * one.entries.len() + 4) + 64);
    }
}

fn plain(entries: &[(&str, &str)], slot_by: &[&str]) -> Parts {
    let entries = entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    Parts {
        shared: vec![],
        domain: "edge".into(),
        slot_by: slot_by.iter().map(ToString::to_string).collect(),
        entries: entries.collect(),
        algorithm: Algorithm::SlidingWindowLog,
        period_ms: 3_600_000,
        ordinal: 0,
        secret: false,
    }
}

#[test]
fn a_key_is_readable() {
    let path = [("tenant", "acme"), ("path", "/login")];
    assert_eq!(plain(&path, &[]).text(), "tg:{edge}:tenant=acme,path=/login:log:1h");
    let slotted = plain(&path, &["tenant"]).text();
    assert_eq!(slotted, "tg:{edge,tenant=acme}:tenant=acme,path=/login:log:1h");
    let second = Parts { ordinal: 1, ..plain(&path[..1], &[]) };
    assert_eq!(second.text(), "tg:{edge}:tenant=acme:log:1h#1");
    let counter = Parts { algorithm: Algorithm::SlidingWindowCounter, ..plain(&path[..1], &[]) };
    assert_eq!(counter.text(), "tg:{edge}:tenant=acme:counter10:1h");
    assert_eq!(plain(&[], &[]).text(), "tg:{edge}::log:1h");
}

#[test]
fn under_a_secret_no_key_contains_a_value() {
    let path = [("tenant", "acme"), ("user", "acme")];
    let hidden =
        |entries: &_, slot_by: &_| Parts { secret: true, ..plain(entries, slot_by) }.text();
    let key = hidden(&path, &["tenant"]);
    assert!(!key.contains("acme"), "{key}");
    let hash = key.strip_prefix("tg:{edge,tenant=#").unwrap();
    let (tenant, rest) = hash.split_at(32);
    let user = rest.strip_prefix(&format!("}}:tenant=#{tenant},user=#")).unwrap();
    assert_eq!(&user[32..], ":log:1h");
    assert_ne!(&user[..32], tenant, "the same value of another entry");
    let wide = "x".repeat(1_000);
    let long = hidden(&[("tenant", &*wide)], &[]);
    assert_eq!(long.len(), hidden(&path[..1], &[]).len());
}

#[test]
fn slot_by_applies_only_if_the_path_has_all_of_it() {
    let path = [("tenant", "acme")];
    assert_eq!(plain(&path, &["tenant", "path"]).text(), "tg:{edge}:tenant=acme:log:1h");
}

#[test]
fn separators_are_escaped_where_they_are_ambiguous() {
    let value = plain(&[("a=b", "c=d,e:f{g}%#\u{0} \u{7f}é")], &[]).text();
    assert_eq!(value, "tg:{edge}:a%3db=c=d%2ce:f%7bg%7d%25%23%00%20%7fé:log:1h");
}

#[test]
fn a_text_of_more_than_128_bytes_is_a_hash_of_fixed_length() {
    let key = |len: usize| plain(&[("k", &"x".repeat(len))], &[]).text();
    assert_eq!(key(128), format!("tg:{{edge}}:k={}:log:1h", "x".repeat(128)));
    let lengths: Vec<usize> = [129, 1_000, 100_000].map(|len| key(len).len()).into();
    assert_eq!(lengths, [format!("tg:{{edge}}:k=#{}:log:1h", "0".repeat(32)).len(); 3]);
    assert_ne!(key(129), key(130));
}

#[test]
fn a_path_of_more_than_1024_bytes_is_a_hash() {
    let wide = "{".repeat(128);
    let entries = |last: &str| -> Vec<(String, String)> {
        let mut entries = vec![(wide.clone(), wide.clone()); 31];
        entries.push(("k".to_owned(), last.to_owned()));
        entries
    };
    let key = |last: &str| Parts { entries: entries(last), ..plain(&[], &[]) }.text();
    assert_eq!(key("a").len(), format!("tg:{{edge}}:#{}:log:1h", "0".repeat(32)).len());
    assert_ne!(key("a"), key("b"));
}
