//! Answers while Redis does not respond, and afterwards.

mod lost;
mod moved;
mod refunds;
mod refusals;

use std::time::Duration;

use tokio::time::timeout;
use tonic::Code;
use tonic_health::ServingStatus;

use crate::support::client::{Caller, Request, Served, request};
use crate::support::process::wait_until;
use crate::support::servers::{RedisServer, Version, free_port};

const LIMITS: &str = "{domain: edge, descriptors: [\
    {key: user, rate_limit: {limit: 6, period: 1h, algorithm: sliding_window_log}}]}";

fn served(redis: &RedisServer, more: &[&str]) -> Served {
    let url = redis.url();
    let args = [&["--store", &url, "--store-timeout", "1s"], more].concat();
    Served::with(&[LIMITS], &args)
}

/// Requests that the store did not decide, by kind of error.
fn store_errors(served: &Served, kind: &str) -> u64 {
    metric(served, &format!("rate_limit_store_errors_total{{kind=\"{kind}\"}}"))
}

fn metric(served: &Served, series: &str) -> u64 {
    let metrics = served.page("/metrics").body;
    let value = |line: &str| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok();
    metrics.lines().find_map(value).unwrap_or_else(|| panic!("{series}{metrics}"))
}

async fn left(caller: &Caller, name: &str) -> u64 {
    caller.quota(&user(name)).await.unwrap().statuses[0].remaining()
}

fn user(name: &str) -> Request {
    request("edge").about("user", name)
}

/// Whether the request passes, and the source of the decision.
async fn check(caller: &Caller, name: &str) -> (bool, &'static str) {
    let answer = caller.check(&user(name)).await.unwrap();
    (answer.decision().as_str_name() == "DECISION_ALLOWED", answer.source().as_str_name())
}

const STORE: &str = "DECISION_SOURCE_STORE";
const FALLBACK: &str = "DECISION_SOURCE_FALLBACK";

/// Polls a condition, and fails after the time that a busy machine may need.
async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let ask = async { while !holds().await {} };
    timeout(Duration::from_secs(20), ask).await.expect(what);
}

async fn until_the_store_decides(caller: &Caller) {
    until("the store decides again", async || check(caller, "probe").await.1 == STORE).await;
}

#[tokio::test]
async fn a_replica_decides_alone_and_reconciles_admitted_hits() {
    let mut redis = RedisServer::start(Version::Redis70);
    let served = served(&redis, &["--replicas", "2"]);
    let caller = served.caller().await;
    until_the_store_decides(&caller).await;
    redis.stop();
    // Half of six, because there are two replicas.
    for allowed in [true, true, true, false, false] {
        assert_eq!(check(&caller, "a").await, (allowed, FALLBACK));
    }
    let ready = served.page("/readyz");
    assert_eq!(ready.status, 200);
    assert!(ready.body.contains("on-store-failure"), "{}", ready.body);
    redis.restart();
    until_the_store_decides(&caller).await;
    // The server came back empty: three hits are reconciled, and three remain.
    until("what was admitted is charged", async || left(&caller, "a").await == 3).await;
    let charged = || metric(&served, "rate_limit_fallback_charged_total");
    // Including those of requests that probed whether it is back.
    until("it is counted", async || charged() >= 3).await;
    assert!(metric(&served, "rate_limit_memory_keys") >= 1, "the fallback counts in memory");
    assert!(check(&caller, "a").await.0);
    until("one more is taken", async || left(&caller, "a").await == 2).await;
    let lines = |of: &str| served.tidegate.log().matches(of).count();
    let begun = lines("does not answer");
    // A busy machine may cause a further outage.
    assert!((1..=2).contains(&begun), "one line an outage: {}", served.tidegate.log());
    until("one line when it ends", async || lines("decides again") >= begun).await;
}

#[test]
fn the_reason_for_an_unreachable_redis_is_reported() {
    let redis = RedisServer::start(Version::Redis70);
    redis.command(&["CONFIG", "SET", "requirepass", "right"]);
    let addr = redis.addr();
    let gone = format!("127.0.0.1:{}", free_port());
    for (url, why) in [
        (format!("redis://{addr}"), "NOAUTH Authentication required"),
        (format!("redis://:wrong@{addr}"), "WRONGPASS invalid username-password pair"),
        (format!("redis://:right@{addr}/200"), "ERR DB index is out of range"),
        (format!("redis://{gone}"), "down: Connection refused"),
        ("redis://nobody.invalid".to_owned(), "failed to lookup address"),
        (format!("redis-cluster://{gone}"), "slots are not known"),
        (format!("redis-cluster://:right@{addr}"), "cluster support disabled"),
    ] {
        let served = Served::with(&[LIMITS], &["--store", &url, "--on-store-failure", "error"]);
        let page = || Some(served.page("/readyz")).filter(|page| page.body.contains(why));
        let page = wait_until(Duration::from_secs(20), page);
        let page = page.unwrap_or_else(|| panic!("{url}: {}", served.page("/readyz").body));
        assert_eq!(page.status, 503, "{url}");
    }
}

#[test]
fn a_shutdown_without_redis_is_not_an_outage() {
    let url = format!("redis://127.0.0.1:{}", free_port());
    let mut served = Served::with(&[LIMITS], &["--store", &url]);
    served.tidegate.wait_for_log("does not answer");
    assert!(served.tidegate.terminate().success());
    assert!(!served.tidegate.log().contains("decides again"), "{}", served.tidegate.log());
}

#[tokio::test]
async fn a_draining_replica_still_reconciles_admitted_hits() {
    let mut redis = RedisServer::start(Version::Redis70);
    let served = served(&redis, &["--drain-delay", "1h"]);
    let caller = served.caller().await;
    until_the_store_decides(&caller).await;
    redis.stop();
    served.tidegate.ask_to_end();
    caller.wait_for_health(ServingStatus::NotServing).await;
    for _ in 0..3 {
        assert_eq!(check(&caller, "a").await, (true, FALLBACK));
    }
    redis.restart();
    until("what was admitted is charged", async || left(&caller, "a").await == 3).await;
}

// Of two threads, one waits for shutdown, and one closes the connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hits_that_a_stopping_replica_cannot_reconcile_are_reported_as_lost() {
    let mut redis = RedisServer::start(Version::Redis70);
    let mut served = served(&redis, &[]);
    let caller = served.caller().await;
    until_the_store_decides(&caller).await;
    redis.stop();
    for _ in 0..3 {
        assert_eq!(check(&caller, "a").await, (true, FALLBACK));
    }
    drop(caller);
    assert!(served.tidegate.terminate().success());
    served.tidegate.wait_for_log("never charged what was admitted without it hits=");
}

#[tokio::test]
async fn a_domain_sets_its_failure_policy() {
    let policies = ["allow", "deny", "error", "local"];
    let file = |policy: &str| {
        format!(
            "{{domain: {policy}, on_store_failure: {policy}, descriptors: \
             [{{key: user, rate_limit: {{limit: 1, period: 1h}}}}]}}"
        )
    };
    let files = policies.map(file);
    let files: Vec<_> = files.iter().map(String::as_str).collect();
    let mut redis = RedisServer::start(Version::Redis70);
    redis.stop();
    let url = redis.url();
    let served = Served::with(&files, &["--store", &url, "--store-timeout", "50ms"]);
    let caller = served.caller().await;
    let allows = async |domain: &str| caller.allows(&request(domain).about("user", "a")).await;
    assert!(allows("allow").await && allows("allow").await);
    assert!(!allows("deny").await);
    assert!(allows("local").await && !allows("local").await);
    let error = caller.check(&request("error").about("user", "a")).await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable);
    assert_eq!(metric(&served, "rate_limit_decision_failed_total{reason=\"store\"}"), 1);
    assert_eq!(metric(&served, "rate_limit_fallback_lost_total"), 0);
    assert_eq!(served.page("/readyz").status, 200, "the default is local");
    let metrics = served.page("/metrics").body;
    for (domain, decision, count) in
        [("allow", "allowed", 2), ("deny", "rejected", 1), ("local", "allowed", 1)]
    {
        let line = format!(
            "rate_limit_decision_total{{domain=\"{domain}\",decision=\"{decision}\",\
             source=\"fallback\"}} {count}\n"
        );
        assert!(metrics.contains(&line), "{line}{metrics}");
    }
}

#[tokio::test]
async fn the_fallback_decides_while_a_server_is_a_replica() {
    let primary = RedisServer::start(Version::Redis70);
    let redis = RedisServer::start(Version::Redis70);
    let served = served(&redis, &[]);
    let caller = served.caller().await;
    until_the_store_decides(&caller).await;
    redis.command(&["REPLICAOF", "127.0.0.1", &primary.port().to_string()]);
    until("a replica takes nothing", async || check(&caller, "b").await.1 == FALLBACK).await;
    redis.command(&["REPLICAOF", "NO", "ONE"]);
    until_the_store_decides(&caller).await;
    served.tidegate.wait_for_log("the store decides again");
}

#[tokio::test]
async fn a_policy_that_evicts_counters_causes_a_warning() {
    let redis = RedisServer::start(Version::Redis70);
    redis.command(&["CONFIG", "SET", "maxmemory", "100mb"]);
    let served = served(&redis, &[]);
    assert_eq!(served.page("/readyz").body, "ready\n", "noeviction is right");
    redis.command(&["CONFIG", "SET", "maxmemory-policy", "volatile-ttl"]);
    let body = served.page("/readyz").body;
    assert!(body.starts_with("ready\nwarning: ") && body.contains("volatile-ttl"), "{body}");
}

#[tokio::test]
async fn a_server_known_to_be_down_delays_no_request() {
    let mut redis = RedisServer::start(Version::Redis70);
    let url = redis.url();
    let served = Served::with(&[LIMITS], &["--store", &url, "--store-timeout", "5s"]);
    let caller = served.caller().await;
    until_the_store_decides(&caller).await;
    redis.stop();
    // One request waits for the timeout; if a thousand did, they would take more than an hour.
    for _ in 0..1_000 {
        assert_eq!(check(&caller, "b").await.1, FALLBACK);
    }
    redis.restart();
    until_the_store_decides(&caller).await;
}
