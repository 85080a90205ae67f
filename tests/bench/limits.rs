//! The limits files of the legs.

use std::fmt::Write;
use std::fs;

use tempfile::TempDir;

/// More than any load takes. The period is a day, so that counters rarely restart during a run.
const WIDE: &str = "limit: 1000000, period: 1d";

/// The same for buckets. A hit weighs minutes; otherwise a bucket would be full again, and its key
/// gone, before the next round.
const BUCKET: &str = "limit: 10000, period: 30d, burst: 10000";

/// Algorithms that store one value.
pub const ONE_VALUE: [&str; 4] = ["fixed_window", "token_bucket", "leaky_bucket", "gcra"];

/// The keys of a request with three limits.
pub const KEYS: [&str; 3] = ["user", "ip", "api"];

/// A folder with a domain per kind of leg.
pub fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let numbered: Vec<_> = (0..24).map(|at| format!("k{at}")).collect();
    let mut domains = vec![
        ("edge".to_owned(), same(&KEYS, WIDE)),
        ("wide".to_owned(), same(&numbered, WIDE)),
        ("over".to_owned(), same(&KEYS, WIDE) + &value("user", "hot-*", "limit: 1, period: 1h")),
        ("rules-10".to_owned(), with_rules(10)),
        ("rules-10000".to_owned(), with_rules(10_000)),
        ("log-10".to_owned(), log("10ms")),
        ("log-10000".to_owned(), log("1h")),
    ];
    for algorithm in ONE_VALUE {
        let limit = if algorithm == "fixed_window" { WIDE } else { BUCKET };
        let limit = format!("{limit}, algorithm: {algorithm}");
        domains.push((domain_of(algorithm), same(&KEYS, &limit)));
    }
    for (domain, rules) in domains {
        let text = format!("domain: {domain}\ndescriptors:\n{rules}");
        fs::write(folder.path().join(format!("{domain}.yaml")), text).unwrap();
    }
    folder
}

/// The domain of an algorithm's leg. All have the same length, because every key contains it, and
/// the cost of a key depends on its length.
pub fn domain_of(algorithm: &str) -> String {
    format!("one-{}", &algorithm[..4])
}

fn same<K: AsRef<str>>(keys: &[K], limit: &str) -> String {
    let rule = |key: &K| format!("  - key: {}\n    rate_limit: {{ {limit} }}\n", key.as_ref());
    keys.iter().map(rule).collect()
}

fn value(key: &str, value: &str, limit: &str) -> String {
    format!("  - key: {key}\n    value: \"{value}\"\n    rate_limit: {{ {limit} }}\n")
}

/// The three wide rules, plus rules for single users up to a total of `count`.
fn with_rules(count: usize) -> String {
    let mut rules = same(&KEYS, WIDE);
    for user in 0..count - KEYS.len() {
        let _ = write!(rules, "{}", value("user", &user.to_string(), WIDE));
    }
    rules
}

fn log(period: &str) -> String {
    let limit = format!("limit: 1000000, period: {period}, algorithm: sliding_window_log");
    format!("  - key: k\n    rate_limit: {{ {limit} }}\n")
}
