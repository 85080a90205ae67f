//! Parsing and deciding any request ends with an answer or an error.
#![no_main]

use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

use libfuzzer_sys::fuzz_target;
use tidegate::clock::FakeClock;
use tidegate::key::{KeyFormat, KeyPrefix};
use tidegate::plan::Plan;
use tidegate::request::{Bounds, Request};
use tidegate::rules::{RuleSet, Switches, parse};
use tidegate::store::memory::MemoryStore;

/// A domain with names short enough for the fuzzer to find.
const LIMITS: &str = r#"
domain: d
descriptors:
  - key: a
    rate_limit:
      - { limit: 3, period: 1s }
      - { limit: 3, period: 1s, algorithm: sliding_window_log, overdraft: true }
      - { limit: 3, period: 1s, algorithm: sliding_window_counter, weighted: true }
  - key: a
    value: "b*"
    rate_limit: { limit: 7, period: 3s, algorithm: token_bucket, overdraft: true }
  - key: b
    shadow_mode: true
    rate_limit: { limit: 2, period: 1s, algorithm: leaky_bucket }
    descriptors:
      - key: a
        rate_limit: { limit: 9, period: 7ms, algorithm: gcra }
"#;

static RULES: LazyLock<RuleSet> = LazyLock::new(|| {
    let file = (PathBuf::from("fuzz.yaml"), LIMITS.to_owned());
    parse::parse(&[file], Switches::default()).expect("the limits above are good")
});

static HEAD: LazyLock<KeyPrefix> = LazyLock::new(|| KeyPrefix::of(&KeyFormat::readable("tg"), "d"));

static STORE: LazyLock<MemoryStore> =
    LazyLock::new(|| MemoryStore::new(1_000, Arc::new(FakeClock::at(1_700_000_000_000))));

fn decide(request: &Request) {
    let Some(domain) = RULES.domain(request.domain()) else { return };
    if let Ok(plan) = Plan::of(request, domain, &HEAD) {
        let decision = STORE.transact(&plan.counters, None);
        assert_eq!(decision.statuses.len(), plan.counters.len());
    }
}

fuzz_target!(|message: &[u8]| {
    let bounds = Bounds::default();
    let reads =
        [Request::from_check, Request::from_quota, Request::from_refund, Request::from_envoy];
    reads.iter().flat_map(|read| read(message, &bounds)).for_each(|request| decide(&request));
});
