//! What callers get while Redis does not answer, and afterwards.

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

/// Requests that the store did not decide, by the kind of why.
fn store_errors(served: &Served, kind: &str) -> u64 {
    metric(served, &format!("rate_limit_store_errors_total{{kind=\"{kind}\"}}"))
}

fn metric(served: &Served, series: &str) -> u64 {
    let metrics = served.page("/metrics").body;
    let value = |line: &str| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok();
    metrics.lines().find_map(value).unwrap_or_else(|| panic!("{series}{metrics}"))
}

async fn left(caller: &Caller, name: &str) -> u64 {
    caller.quota(&user(name)).await.unwrap().statuses[0].remaining
}

fn user(name: &str) -> Request {
    request("edge").about("user", name)
}

/// Whether the request passes, and who said so.
async fn asked(caller: &Caller, name: &str) -> (bool, &'static str) {
    let answer = caller.check(&user(name)).await.unwrap();
    (answer.decision().as_str_name() == "DECISION_ALLOWED", answer.source().as_str_name())
}

const STORE: &str = "DECISION_SOURCE_STORE";
const FALLBACK: &str = "DECISION_SOURCE_FALLBACK";

/// Asks again and again, and fails where that takes longer than a busy machine may need.
async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let ask = async { while !holds().await {} };
    timeout(Duration::from_secs(20), ask).await.expect(what);
}

async fn until_the_store_decides(caller: &Caller) {
    until("the store decides again", async || asked(caller, "probe").await.1 == STORE).await;
}

#[tokio::test]
async fn a_replica_decides_by_itself_and_charges_what_it_admitted() {
    let mut redis = RedisServer::start(Version::Redis70);
    let served = served(&redis, &["--replicas", "2"]);
    let caller = served.caller().await;
    until_the_store_decides(&caller).await;
    redis.stop();
    // Half of six, for there are two replicas.
    for allowed in [true, true, true, false, false] {
        assert_eq!(asked(&caller, "a").await, (allowed, FALLBACK));
    }
    let ready = served.page("/readyz");
    assert_eq!(ready.status, 200);
    assert!(ready.body.contains("on-store-failure"), "{}", ready.body);
    redis.restart();
    until_the_store_decides(&caller).await;
    // The server came back empty: three hits are charged, and three are left.
    until("what was admitted is charged", async || left(&caller, "a").await == 3).await;
    let charged = || metric(&served, "rate_limit_fallback_charged_total");
    // With those of callers that asked whether it is back.
    until("it is counted", async || charged() >= 3).await;
    assert!(metric(&served, "rate_limit_memory_keys") >= 1, "the fallback counts in memory");
    assert!(asked(&caller, "a").await.0);
    until("one more is taken", async || left(&caller, "a").await == 2).await;
    let lines = |of: &str| served.tidegate.log().matches(of).count();
    let begun = lines("does not answer");
    // Of a busy machine a further outage may be the fault.
    assert!((1..=2).contains(&begun), "one line an outage: {}", served.tidegate.log());
    until("one line when it ends", async || lines("decides again") >= begun).await;
}

#[test]
fn why_redis_is_not_reached_is_told() {
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
fn an_end_without_redis_is_told_as_none() {
    let url = format!("redis://127.0.0.1:{}", free_port());
    let mut served = Served::with(&[LIMITS], &["--store", &url]);
    served.tidegate.wait_for_log("does not answer");
    assert!(served.tidegate.terminate().success());
    assert!(!served.tidegate.log().contains("decides again"), "{}", served.tidegate.log());
}

#[tokio::test]
async fn a_replica_that_is_leaving_still_charges_what_it_admitted() {
    let mut redis = RedisServer::start(Version::Redis70);
    let served = served(&redis, &["--drain-delay", "1h"]);
    let caller = served.caller().await;
    until_the_store_decides(&caller).await;
    redis.stop();
    served.tidegate.ask_to_end();
    caller.wait_for_health(ServingStatus::NotServing).await;
    for _ in 0..3 {
        assert_eq!(asked(&caller, "a").await, (true, FALLBACK));
    }
    redis.restart();
    until("what was admitted is charged", async || left(&caller, "a").await == 3).await;
}

// Of threads two: one waits for the end, and one closes the connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_ending_replica_cannot_charge_is_said_to_be_lost() {
    let mut redis = RedisServer::start(Version::Redis70);
    let mut served = served(&redis, &[]);
    let caller = served.caller().await;
    until_the_store_decides(&caller).await;
    redis.stop();
    for _ in 0..3 {
        assert_eq!(asked(&caller, "a").await, (true, FALLBACK));
    }
    drop(caller);
    assert!(served.tidegate.terminate().success());
    served.tidegate.wait_for_log("never charged what was admitted without it hits=");
}

#[tokio::test]
async fn a_domain_says_what_its_requests_get() {
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
async fn a_server_that_was_made_a_replica_is_done_without_until_it_is_promoted() {
    let primary = RedisServer::start(Version::Redis70);
    let redis = RedisServer::start(Version::Redis70);
    let served = served(&redis, &[]);
    let caller = served.caller().await;
    until_the_store_decides(&caller).await;
    redis.command(&["REPLICAOF", "127.0.0.1", &primary.port().to_string()]);
    until("a replica takes nothing", async || asked(&caller, "b").await.1 == FALLBACK).await;
    redis.command(&["REPLICAOF", "NO", "ONE"]);
    until_the_store_decides(&caller).await;
    served.tidegate.wait_for_log("the store decides again");
}

#[tokio::test]
async fn a_policy_that_drops_counters_is_warned_of() {
    let redis = RedisServer::start(Version::Redis70);
    redis.command(&["CONFIG", "SET", "maxmemory", "100mb"]);
    let served = served(&redis, &[]);
    assert_eq!(served.page("/readyz").body, "ready\n", "noeviction is right");
    redis.command(&["CONFIG", "SET", "maxmemory-policy", "volatile-ttl"]);
    let body = served.page("/readyz").body;
    assert!(body.starts_with("ready\nwarning: ") && body.contains("volatile-ttl"), "{body}");
}

#[tokio::test]
async fn a_server_that_is_known_to_be_down_is_not_waited_for() {
    let mut redis = RedisServer::start(Version::Redis70);
    let url = redis.url();
    let served = Served::with(&[LIMITS], &["--store", &url, "--store-timeout", "5s"]);
    let caller = served.caller().await;
    until_the_store_decides(&caller).await;
    redis.stop();
    // One request waits in vain; a thousand that did would take more than an hour.
    for _ in 0..1_000 {
        assert_eq!(asked(&caller, "b").await.1, FALLBACK);
    }
    redis.restart();
    until_the_store_decides(&caller).await;
}
