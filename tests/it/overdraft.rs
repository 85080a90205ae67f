//! Debts of overdraft limits that exceed 53 bits of a bucket's units, and waits that exceed a
//! protobuf Duration.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::sync::Arc;

use prost_types::Duration;
use serde_json::{Value, json};
use tidegate::clock::FakeClock;
use tidegate::decide::{CounterRequest, Mode};
use tidegate::decision::Status;
use tidegate::limit::HITS_MAX;
use tidegate::on_store_failure::OnStoreFailure;
use tidegate::store::memory::MemoryStore;
use tidegate::store::{AnyStore, DecideContext};

use crate::counters::{MONTH_MS, MONTHLY_HITS, drained_in_ms, monthly_bucket, refund, take};
use crate::support::client::{Page, Served, request};
use crate::support::servers::{RedisServer, Version};
use crate::support::stores::store_on;

/// A time in 2023.
const START_MS: u64 = 1_700_000_000_000;

/// The longest protobuf Duration, 10,000 years.
const DURATION_MAX_S: i64 = 315_576_000_000;

/// Milliseconds in which so many hits of [`monthly_bucket`] drain.
fn hits_drained_in_ms(hits: u64) -> u64 {
    drained_in_ms(u128::from(hits) * u128::from(MONTH_MS))
}

async fn status_at(store: &AnyStore, counter_request: CounterRequest, at_ms: u64) -> Status {
    let decided = store
        .transact(vec![counter_request], OnStoreFailure::Error, DecideContext::at(at_ms))
        .await;
    decided.unwrap().statuses[0]
}

async fn counts_a_debt_exactly(store: &AnyStore, name: &str) {
    let limit = monthly_bucket();
    let hits = |hits| CounterRequest { hits, ..take("debt", &limit) };
    let counter_requests = || CounterRequest { mode: Mode::Peek, ..hits(1) };
    let taken = status_at(store, hits(30_000_000), START_MS).await;
    assert_eq!(taken.reset_after_ms, hits_drained_in_ms(30_000_000), "{name}");
    let rejected = status_at(store, counter_requests(), START_MS).await;
    let wait_ms = hits_drained_in_ms(30_000_000 - MONTHLY_HITS + 1);
    assert_eq!(rejected.retry_after_ms, Some(wait_ms), "{name}");
    let early = status_at(store, counter_requests(), START_MS + wait_ms - 1).await;
    assert_eq!((early.within_limit, early.retry_after_ms), (false, Some(1)), "{name}");
    assert!(status_at(store, counter_requests(), START_MS + wait_ms).await.within_limit, "{name}");
    // Paid in parts, with hits in between, and given back.
    let later_ms = START_MS + 10 * MONTH_MS;
    let more = status_at(store, hits(5_000_000), later_ms).await;
    assert_eq!(more.reset_after_ms, hits_drained_in_ms(35_000_000) - 10 * MONTH_MS, "{name}");
    let less = status_at(store, refund("debt", &limit, 24_000_000), later_ms).await;
    assert_eq!(less.reset_after_ms, hits_drained_in_ms(11_000_000) - 10 * MONTH_MS, "{name}");
    let none = status_at(store, refund("debt", &limit, HITS_MAX), later_ms).await;
    assert_eq!((none.remaining, none.reset_after_ms), (MONTHLY_HITS, 0), "{name}");
}

#[tokio::test]
async fn a_debt_over_2_to_the_53_units_is_counted_exactly_in_memory() {
    let memory = MemoryStore::new(1_000, Arc::new(FakeClock::at(START_MS)));
    counts_a_debt_exactly(&AnyStore::Memory(Arc::new(memory)), "memory").await;
}

#[tokio::test]
async fn a_debt_over_2_to_the_53_units_is_counted_exactly_in_redis() {
    for version in Version::ALL {
        let server = RedisServer::start(version);
        let store = AnyStore::Redis(Box::new(store_on(&server).await));
        counts_a_debt_exactly(&store, &format!("{version:?}")).await;
    }
}

/// A hit drains in 36,500 days.
const SLOW: &str = "{domain: edge, descriptors: [{key: user, rate_limit: \
    {limit: 1, period: 36500d, algorithm: token_bucket, overdraft: true}}]}";

fn is_longest_duration(reported: Option<&Duration>) -> bool {
    reported.is_some_and(|reported| (reported.seconds, reported.nanos) == (DURATION_MAX_S, 0))
}

#[tokio::test]
async fn a_wait_beyond_a_duration_is_the_longest_duration() {
    let served = Served::with(&[SLOW], &["--headers", "draft"]);
    let caller = served.caller().await;
    let user = request("edge").about("user", "a");
    let taken = caller.check(&user.clone().taking(HITS_MAX)).await.unwrap();
    assert!(is_longest_duration(taken.statuses[0].reset_after.as_ref()), "{taken:?}");
    let rejected = caller.check(&user).await.unwrap();
    assert!(is_longest_duration(rejected.retry_after.as_ref()), "{rejected:?}");
    assert!(is_longest_duration(rejected.statuses[0].retry_after.as_ref()), "{rejected:?}");
    let quota = caller.quota(&user).await.unwrap();
    assert!(is_longest_duration(quota.statuses[0].retry_after.as_ref()), "{quota:?}");
    let over = caller.should(&user).await.unwrap();
    assert!(is_longest_duration(over.statuses[0].duration_until_reset.as_ref()), "{over:?}");
    let retry = over.response_headers_to_add.iter().find(|header| header.key == "Retry-After");
    assert_eq!(retry.unwrap().value, DURATION_MAX_S.to_string());
}

#[test]
fn post_json_answers_for_any_debt() {
    let served = Served::with_limits(SLOW);
    let body = |hits: u64| {
        let entries = json!([{ "key": "user", "value": "a" }]);
        let descriptors = json!([{ "entries": entries, "hitsAddend": hits.to_string() }]);
        json!({ "domain": "edge", "descriptors": descriptors }).to_string()
    };
    for (hits, status) in [(HITS_MAX, 200), (1, 429)] {
        let page = Page::post(served.tidegate.http, "/json", &body(hits));
        assert_eq!(page.status, status, "{page:?}");
        let answer: Value = serde_json::from_str(&page.body).unwrap();
        let reported = &answer["statuses"][0]["durationUntilReset"];
        assert_eq!(reported, &json!(format!("{DURATION_MAX_S}s")));
    }
}
