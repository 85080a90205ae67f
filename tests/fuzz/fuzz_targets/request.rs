//! Whatever a caller sends, reading and deciding it ends, in an answer or in a refusal.
#![no_main]

use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

use libfuzzer_sys::fuzz_target;
use prost::Message;
use tidegate::clock::FakeClock;
use tidegate::plan::Plan;
use tidegate::proto::envoy::service::ratelimit::v3::RateLimitRequest;
use tidegate::proto::tidegate::v1::CheckRateLimitRequest;
use tidegate::request::{Bounds, Request};
use tidegate::rules::{RuleSet, parse};
use tidegate::store::memory::MemoryStore;

/// A domain whose names are short enough to be hit upon.
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
    parse::parse(&[file]).expect("the limits above are good")
});

static STORE: LazyLock<MemoryStore> =
    LazyLock::new(|| MemoryStore::new(1_000, Arc::new(FakeClock::at(1_700_000_000_000))));

fn decide(request: &Request) {
    let Some(domain) = RULES.domain(&request.domain) else { return };
    if let Ok(plan) = Plan::of(request, domain, "tg") {
        let decision = STORE.decide(&plan.asks, None);
        assert_eq!(decision.statuses.len(), plan.asks.len());
    }
}

fuzz_target!(|message: &[u8]| {
    let bounds = Bounds::default();
    let check = CheckRateLimitRequest::decode(message).ok();
    let envoy = RateLimitRequest::decode(message).ok();
    let requests = [
        check.and_then(|check| Request::from_check(check, &bounds).ok()),
        envoy.and_then(|envoy| Request::from_envoy(envoy, &bounds).ok()),
    ];
    requests.iter().flatten().for_each(decide);
});
