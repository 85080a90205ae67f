//! ShouldRateLimit, from the view of Envoy.

use tidegate::proto::envoy::service::ratelimit::v3::RateLimitResponse;
use tidegate::proto::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit;
use tidegate::proto::envoy::service::ratelimit::v3::rate_limit_response::{
    Code, DescriptorStatus, RateLimit,
};

use crate::support::client::{Caller, Request, Served, request};

const MINUTE: i32 = 2;
const YEAR: i32 = 6;

const EDGE: &str = "
domain: edge
descriptors:
  - key: user
    rate_limit: { limit: 3, period: 36500d }
  - key: once
    rate_limit: { limit: 1, period: 1h, algorithm: sliding_window_log }
  - key: both
    rate_limit:
      - { limit: 2, period: 1h, algorithm: sliding_window_log, name: few }
      - { limit: 9, period: 1d, algorithm: sliding_window_log }
      - { limit: 3, period: 1m, algorithm: sliding_window_log, name: burst }
  - key: watched
    shadow_mode: true
    rate_limit: { limit: 1, period: 36500d }
  - key: free
    rate_limit: { unlimited: true }
  - key: exempt
  - key: huge
    rate_limit: { limit: 8589934592, period: 36500d }
  - key: blink
    rate_limit: { limit: 1, period: 300ms }
";

fn codes(answer: &RateLimitResponse) -> Vec<Code> {
    answer.statuses.iter().map(DescriptorStatus::code).collect()
}

async fn only(caller: &Caller, request: &Request) -> DescriptorStatus {
    let answer = caller.should(request).await.unwrap();
    let [status] = <[_; 1]>::try_from(answer.statuses).expect("one status");
    assert_eq!(status.code, answer.overall_code);
    status
}

fn limit_of(status: &DescriptorStatus) -> &RateLimit {
    status.current_limit.as_ref().expect("a limit")
}

#[tokio::test]
async fn every_descriptor_has_a_status_in_its_place() {
    let served = Served::with_limits(EDGE);
    let caller = served.caller().await;
    assert_eq!(only(&caller, &request("edge").about("once", "a")).await.code(), Code::Ok);
    let mixed = request("edge")
        .about("nothing", "a")
        .about("user", "a")
        .about("once", "a")
        .about("exempt", "a");
    let answer = caller.should(&mixed).await.unwrap();
    assert_eq!(answer.overall_code(), Code::OverLimit);
    assert_eq!(codes(&answer), [Code::Ok, Code::Ok, Code::OverLimit, Code::Ok]);
    let limited = answer.statuses.iter().map(|status| status.current_limit.is_some());
    assert_eq!(limited.collect::<Vec<_>>(), [false, true, true, false]);
    assert_eq!(answer.statuses[1].limit_remaining, 3, "a rejected request takes nothing");
}

#[tokio::test]
async fn a_period_is_in_its_longest_whole_unit() {
    let cases = [
        ("1s", Unit::Second, None),
        ("90s", Unit::Second, Some(90)),
        ("60s", Unit::Minute, None),
        ("5m", Unit::Minute, Some(5)),
        ("1h", Unit::Hour, None),
        ("36h", Unit::Hour, Some(36)),
        ("24h", Unit::Day, None),
        ("7d", Unit::Week, None),
        ("14d", Unit::Week, Some(2)),
        ("30d", Unit::Month, None),
        ("365d", Unit::Year, None),
        ("730d", Unit::Year, Some(2)),
        ("250ms", Unit::Unknown, None),
        ("1500ms", Unit::Unknown, None),
    ];
    let mut limits = "domain: edge\ndescriptors:\n".to_owned();
    for (period, ..) in cases {
        limits +=
            &format!("  - {{ key: p{period}, rate_limit: {{ limit: 9, period: {period} }} }}\n");
    }
    let served = Served::with_limits(&limits);
    let caller = served.caller().await;
    for (period, unit, multiplier) in cases {
        let status = only(&caller, &request("edge").about(format!("p{period}"), "a")).await;
        let limit = limit_of(&status);
        assert_eq!((limit.unit(), limit.unit_multiplier), (unit, multiplier), "{period}");
        assert_eq!((limit.requests_per_unit, limit.name.as_str()), (9, ""), "{period}");
    }
}

#[tokio::test]
async fn of_several_limits_the_rejecting_one_or_the_one_with_least_remaining_is_shown() {
    let served = Served::with_limits(EDGE);
    let caller = served.caller().await;
    let both = request("edge").about("both", "a");
    for remaining in [1, 0] {
        let status = only(&caller, &both).await;
        assert_eq!((limit_of(&status).name.as_str(), status.limit_remaining), ("few", remaining));
    }
    let status = only(&caller, &both).await;
    assert_eq!((status.code(), limit_of(&status).requests_per_unit), (Code::OverLimit, 2));
    // Three hits fit the others, but never this one.
    let status = only(&caller, &request("edge").about("both", "b").taking(3)).await;
    assert_eq!((status.code(), limit_of(&status).name.as_str()), (Code::OverLimit, "few"));
}

#[tokio::test]
async fn rules_that_cannot_reject_are_ok() {
    let served = Served::with_limits(EDGE);
    let caller = served.caller().await;
    for _ in 0..3 {
        let status = only(&caller, &request("edge").about("watched", "a")).await;
        assert_eq!((status.code(), limit_of(&status).requests_per_unit), (Code::Ok, 1));
    }
    let free = only(&caller, &request("edge").about("free", "a")).await;
    assert_eq!((free.code(), free.limit_remaining), (Code::Ok, u32::MAX));
    assert_eq!(free.current_limit, None);
    let unknown = request("nowhere").about("user", "a").about("user", "b");
    let answer = caller.should(&unknown).await.unwrap();
    assert_eq!((answer.overall_code(), codes(&answer)), (Code::Ok, vec![Code::Ok, Code::Ok]));
    assert!(answer.statuses.iter().all(|status| status.current_limit.is_none()));
}

#[tokio::test]
async fn zero_hits_of_a_request_mean_one_and_of_a_descriptor_none() {
    let served = Served::with_limits(EDGE);
    let caller = served.caller().await;
    let user = || request("edge").about("user", "a");
    assert_eq!(only(&caller, &user().each_taking(0)).await.limit_remaining, 2);
    assert_eq!(only(&caller, &user().taking(0).each_taking(2)).await.limit_remaining, 2);
    assert_eq!(only(&caller, &user().each_taking(2)).await.limit_remaining, 0);
    assert_eq!(only(&caller, &user().taking(0)).await.code(), Code::OverLimit, "none would pass");
}

#[tokio::test]
async fn negative_hits_are_given_back() {
    let served = Served::with_limits(EDGE);
    let caller = served.caller().await;
    let user = || request("edge").about("user", "a");
    assert_eq!(only(&caller, &user().taking(3)).await.limit_remaining, 0);
    let status = only(&caller, &user().taking(2).giving_back()).await;
    assert_eq!((status.code(), status.limit_remaining), (Code::Ok, 2));
    let status = only(&caller, &user().taking(900).giving_back()).await;
    assert_eq!((status.code(), status.limit_remaining), (Code::Ok, 3), "never more than full");
}

#[tokio::test]
async fn an_override_replaces_the_configured_limit() {
    let served = Served::with_limits(EDGE);
    let caller = served.caller().await;
    let own = || request("edge").about("user", "a").limited_to(100, YEAR).every(80);
    let status = only(&caller, &own()).await;
    let limit = limit_of(&status);
    assert_eq!((limit.requests_per_unit, limit.unit()), (100, Unit::Year));
    assert_eq!((limit.unit_multiplier, status.limit_remaining), (Some(80), 99));
    assert_eq!(only(&caller, &own().taking(99)).await.limit_remaining, 0);
    assert_eq!(only(&caller, &own()).await.code(), Code::OverLimit);
    let configured = only(&caller, &request("edge").about("user", "a")).await;
    assert_eq!(configured.limit_remaining, 2, "a counter of its own");
    let unmatched = request("edge").about("nothing", "a").limited_to(0, MINUTE);
    assert_eq!(only(&caller, &unmatched).await.code(), Code::OverLimit, "needs no rule");
}

#[tokio::test]
async fn over_the_limit_the_reset_is_whole_seconds_and_at_least_one() {
    let served = Served::with_limits(EDGE);
    let caller = served.caller().await;
    // Two hits never fit: the reset is the end of the window of 300 ms, rounded up to a second.
    let blink = only(&caller, &request("edge").about("blink", "a").taking(2)).await;
    let reset = blink.duration_until_reset.expect("a duration");
    assert_eq!((blink.code(), reset.seconds, reset.nanos), (Code::OverLimit, 1, 0));
    let once = request("edge").about("once", "a");
    let fits = only(&caller, &once).await.duration_until_reset.expect("a duration");
    assert!(fits.seconds >= 3_500, "until the limit is full again: {fits:?}");
    let over = only(&caller, &once).await.duration_until_reset.expect("a duration");
    assert!((3_500..=3_600).contains(&over.seconds) && over.nanos == 0, "{over:?}");
}

#[tokio::test]
async fn numbers_beyond_32_bits_saturate() {
    let served = Served::with_limits(EDGE);
    let caller = served.caller().await;
    let status = only(&caller, &request("edge").about("huge", "a")).await;
    assert_eq!(status.limit_remaining, u32::MAX);
    assert_eq!(limit_of(&status).requests_per_unit, u32::MAX);
    // The count itself is not cut: taking 2^33 again does not fit.
    let rest = request("edge").about("huge", "a").taking((1 << 33) - 1);
    assert_eq!(only(&caller, &rest).await.code(), Code::Ok);
    assert_eq!(only(&caller, &rest).await.code(), Code::OverLimit);
}

#[tokio::test]
async fn a_name_equal_to_its_path_is_still_a_name() {
    let served = Served::with_limits(
        "{domain: edge, descriptors: [\
         {key: user, rate_limit: {limit: 3, period: 36500d, name: user}}, \
         {key: path, rate_limit: {limit: 3, period: 36500d}}, \
         {key: vip, rate_limit: {limit: 9, period: 36500d, replaces: [{name: user}, {name: path}]}}]}",
    );
    let caller = served.caller().await;
    let user = only(&caller, &request("edge").about("user", "a")).await;
    assert_eq!(limit_of(&user).name, "user");
    let path = only(&caller, &request("edge").about("path", "a")).await;
    assert_eq!(limit_of(&path).name, "", "a rule's path is no name");
    let all = request("edge").about("user", "a").about("path", "a").about("vip", "a");
    let answer = caller.should(&all.each_taking(2)).await.unwrap();
    let limited = answer.statuses.iter().map(|status| status.current_limit.is_some());
    assert_eq!(limited.collect::<Vec<_>>(), [false, true, true], "only a name is replaced");
    assert_eq!(answer.overall_code(), Code::Ok);
}
