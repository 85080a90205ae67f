//! Tidegate's own gRPC service, health and reflection, from the view of callers.

mod envoy;
mod errors;
mod explain;
mod hostile;
mod malformed;
mod quota;
mod refused;
mod response_fields;

use std::time::Duration;

use tidegate::proto::tidegate::v1::{
    Algorithm, CheckRateLimitResponse, Decision, DecisionSource, LimitStatus,
};
use tokio::time::timeout;
use tonic::Code;
use tonic_health::ServingStatus;

use crate::support::client::{Served, request};
use crate::support::servers::{RedisServer, Version};

const EDGE: &str = "
domain: edge
descriptors:
  - key: user
    rate_limit: { limit: 3, period: 36500d }
  - key: log
    rate_limit: { limit: 1, period: 1h, algorithm: sliding_window_log, name: hourly }
  - key: bucket
    rate_limit: { limit: 2, period: 1h, algorithm: token_bucket, burst: 5 }
  - key: queue
    rate_limit: { limit: 1, period: 1h, algorithm: leaky_bucket, burst: 5 }
  - key: both
    rate_limit:
      - { limit: 2, period: 36500d }
      - { limit: 9, period: 1d, algorithm: gcra, burst: 9 }
  - key: watched
    shadow_mode: true
    rate_limit: { limit: 1, period: 36500d }
  - key: free
    rate_limit: { unlimited: true }
  - key: exempt
  - key: tenant
    descriptors:
      - key: path
        value: /login
        rate_limit: { limit: 5, period: 1h, algorithm: sliding_window_counter, sub_windows: 6 }
";

const SERVICES: [&str; 6] = [
    "",
    "tidegate.v1.RateLimitService",
    "envoy.service.ratelimit.v3.RateLimitService",
    "grpc.health.v1.Health",
    "grpc.reflection.v1.ServerReflection",
    "grpc.reflection.v1alpha.ServerReflection",
];

fn ms(duration: Option<prost_types::Duration>) -> u64 {
    let duration = duration.expect("a duration");
    let (seconds, nanos) = (duration.seconds, duration.nanos);
    u64::try_from(seconds * 1_000 + i64::from(nanos) / 1_000_000).expect("not negative")
}

fn only(answer: CheckRateLimitResponse) -> LimitStatus {
    let [status] = answer.statuses.try_into().expect("one status");
    status
}

#[tokio::test]
async fn a_check_takes_hits_until_none_remain_and_then_rejects() {
    let served = Served::with_limits(EDGE);
    let caller = served.caller().await;
    let user = request("edge").about("user", "42");
    for remaining in [2, 1, 0] {
        let answer = caller.check(&user).await.unwrap();
        assert_eq!(answer.decision(), Decision::Allowed);
        assert_eq!(answer.source(), DecisionSource::Store);
        assert_eq!((answer.retry_after, answer.delay), (None, None));
        let status = only(answer);
        assert!(status.within_limit && status.retry_after.is_none());
        assert_eq!((status.limit, status.remaining), (3, Some(remaining)));
        assert_eq!(status.rule, "user");
    }
    let answer = caller.check(&user).await.unwrap();
    assert_eq!(answer.decision(), Decision::Rejected);
    assert!(ms(answer.retry_after) > 0);
    let status = only(answer);
    assert!(!status.within_limit && ms(status.retry_after) == ms(status.reset_after));
    assert!(caller.allows(&request("edge").about("user", "43")).await, "a counter for each user");
}

#[tokio::test]
async fn a_status_has_its_limit_as_configured() {
    let served = Served::with_limits(EDGE);
    let caller = served.caller().await;
    let all = request("edge")
        .about("free", "x")
        .about("tenant", "acme")
        .and("path", "/login")
        .about("exempt", "x")
        .about("log", "x")
        .about("both", "x")
        .about("watched", "x");
    let answer = caller.check(&all).await.unwrap();
    let reported = |status: &LimitStatus| {
        let period_s = status.period.map_or(0, |period| period.seconds);
        (status.descriptor_index, status.rule.clone(), status.limit, period_s, status.algorithm())
    };
    let reported: Vec<_> = answer.statuses.iter().map(reported).collect();
    let row = |at, rule: &str, limit, period_s, algorithm| {
        (at, rule.to_owned(), limit, period_s, algorithm)
    };
    assert_eq!(
        reported,
        [
            row(0, "free", 0, 0, Algorithm::Unspecified),
            row(1, "tenant/path=/login", 5, 3_600, Algorithm::SlidingWindowCounter),
            row(3, "hourly", 1, 3_600, Algorithm::SlidingWindowLog),
            row(4, "both", 2, 36_500 * 86_400, Algorithm::FixedWindow),
            row(4, "both", 9, 86_400, Algorithm::Gcra),
            row(5, "watched", 1, 36_500 * 86_400, Algorithm::FixedWindow),
        ]
    );
    let flags = answer.statuses.iter().map(|status| (status.unlimited, status.shadow));
    let plain = (false, false);
    let expected = [(true, false), plain, plain, plain, plain, (false, true)];
    assert_eq!(flags.collect::<Vec<_>>(), expected);
}

#[tokio::test]
async fn a_rejected_request_takes_nothing_from_any_limit() {
    let served = Served::with_limits(EDGE);
    let caller = served.caller().await;
    let (log, user) = (request("edge").about("log", "a"), request("edge").about("user", "a"));
    assert!(caller.allows(&log).await);
    assert!(!caller.allows(&request("edge").about("user", "a").about("log", "a")).await);
    assert_eq!(caller.remaining(&user).await, 3);
}

#[tokio::test]
async fn a_shadow_limit_reports_and_never_rejects() {
    let served = Served::with_limits(EDGE);
    let caller = served.caller().await;
    let watched = request("edge").about("watched", "a");
    assert!(only(caller.check(&watched).await.unwrap()).within_limit);
    let answer = caller.check(&watched).await.unwrap();
    assert_eq!((answer.decision(), answer.retry_after), (Decision::Allowed, None));
    let status = only(answer);
    assert!(!status.within_limit && status.shadow && ms(status.retry_after) > 0);
}

#[tokio::test]
async fn hits_and_refunds_count_as_they_are_given() {
    let served = Served::with_limits(EDGE);
    let caller = served.caller().await;
    let bucket = || request("edge").about("bucket", "a");
    assert!(caller.allows(&bucket().each_taking(3)).await);
    assert_eq!(caller.remaining(&bucket()).await, 2);
    assert!(caller.allows(&bucket().each_taking(9).taking(1)).await, "its own hits win");
    assert!(!caller.allows(&bucket().each_taking(2)).await);
    assert!(caller.allows(&bucket().taking(0)).await, "one more would pass");
    assert!(caller.allows(&bucket().each_taking(0)).await, "one more would pass");
    assert_eq!(caller.remaining(&bucket()).await, 1, "nothing is taken by 0 hits");
    caller.refund(&bucket().each_taking(4)).await.unwrap();
    assert_eq!(caller.remaining(&bucket()).await, 5);
}

#[tokio::test]
async fn more_hits_than_can_ever_fit_are_rejected_without_retry_after() {
    let served = Served::with_limits(EDGE);
    let caller = served.caller().await;
    let answer = caller.check(&request("edge").about("user", "a").taking(4)).await.unwrap();
    assert_eq!((answer.decision(), answer.retry_after), (Decision::Rejected, None));
    assert_eq!(only(answer).retry_after, None);
}

#[tokio::test]
async fn a_leaky_bucket_returns_the_delay_of_each_request() {
    let served = Served::with_limits(EDGE);
    let caller = served.caller().await;
    let queue = request("edge").about("queue", "a");
    assert_eq!(caller.check(&queue).await.unwrap().delay, None);
    // The first hit has been draining since, for far less than half an hour.
    let second = ms(caller.check(&queue).await.unwrap().delay);
    assert!((1_800_000..=3_600_000).contains(&second), "{second} ms");
    let third = ms(caller.check(&queue).await.unwrap().delay);
    assert!((5_400_000..=7_200_000).contains(&third), "{third} ms");
}

#[tokio::test]
async fn a_quota_is_read_without_taking() {
    let served = Served::with_limits(EDGE);
    let caller = served.caller().await;
    let log = request("edge").about("log", "a");
    for _ in 0..3 {
        let quota = caller.quota(&log).await.unwrap();
        assert_eq!(quota.source(), DecisionSource::Store);
        assert!(quota.statuses[0].within_limit);
        assert_eq!((quota.statuses[0].remaining(), ms(quota.statuses[0].reset_after)), (1, 0));
    }
    assert!(caller.allows(&log).await);
    let full = &caller.quota(&log).await.unwrap().statuses[0];
    assert!(!full.within_limit && full.remaining == Some(0) && ms(full.retry_after) > 0);
}

#[tokio::test]
async fn descriptors_without_a_limit_are_allowed() {
    let served = Served::with_limits(EDGE);
    let caller = served.caller().await;
    for free in [
        request("nowhere").about("user", "a"),
        request("edge").about("nothing", "a"),
        request("edge").about("tenant", "acme"),
        request("edge").about("user", "a").and("path", "/"),
        request("edge").about("exempt", "a"),
    ] {
        let answer = caller.check(&free).await.unwrap();
        assert_eq!(answer.decision(), Decision::Allowed, "{free:?}");
        assert_eq!(answer.statuses, [], "{free:?}");
    }
}

#[tokio::test]
async fn health_answers_for_the_whole_and_for_each_service() {
    let served = Served::with_limits(EDGE);
    let caller = served.caller().await;
    for service in SERVICES {
        let health = caller.health(service).await.unwrap();
        assert_eq!(health.status, ServingStatus::Serving as i32, "{service:?}");
    }
    assert_eq!(caller.health("no.such.Service").await.unwrap_err().code(), Code::NotFound);
}

#[tokio::test]
async fn reflection_lists_every_service() {
    let served = Served::with_limits(EDGE);
    let caller = served.caller().await;
    let services = caller.services().await;
    for service in &SERVICES[1..] {
        assert!(services.iter().any(|listed| listed == service), "{service}: {services:?}");
    }
    assert_eq!(caller.services_by_v1alpha().await, services);
    assert!(!services.iter().any(|listed| listed.contains("admin")), "{services:?}");
}

#[tokio::test]
async fn without_a_store_nothing_is_decided_until_it_is_reachable() {
    let mut redis = RedisServer::start(Version::Redis70);
    redis.stop();
    let url = redis.url();
    let args = ["--store", &url, "--store-timeout", "200ms", "--on-store-failure", "error"];
    let served = Served::with(&[EDGE], &args);
    let caller = served.caller().await;
    let user = request("edge").about("user", "a");
    for _ in 0..3 {
        // Ten times the deadline of the store: the machine may be busy.
        let deadline = Duration::from_secs(2);
        let undecided = timeout(deadline, caller.check(&user)).await.expect("an answer in time");
        assert_eq!(undecided.unwrap_err().code(), Code::Unavailable);
        let undecided = timeout(deadline, caller.should(&user)).await.expect("an answer in time");
        assert_eq!(undecided.unwrap_err().code(), Code::Unavailable);
    }
    for service in SERVICES {
        let health = caller.health(service).await.unwrap();
        assert_eq!(health.status, ServingStatus::NotServing as i32, "{service:?}");
    }
    let ready = served.page("/readyz");
    assert_eq!(ready.status, 503);
    assert!(ready.body.contains("store"), "why: {}", ready.body);
    assert_eq!(served.page("/healthz").status, 200, "the process lives");

    redis.restart();
    caller.wait_for_health(ServingStatus::Serving).await;
    let status = only(caller.check(&user).await.unwrap());
    assert_eq!(status.remaining(), 2, "what was not decided was not taken");
    assert_eq!(served.page("/readyz").status, 200);
}
