//! Bad input is INVALID_ARGUMENT with a message that names the field, in every call alike.

use tonic::{Code, Status};

use crate::support::client::{Caller, Request, Served, request};

const LIMITS: &str =
    "{domain: edge, descriptors: [{key: k, rate_limit: {limit: 100000, period: 1h}}]}";

async fn refusals(caller: &Caller, request: &Request) -> [Status; 3] {
    [
        caller.check(request).await.unwrap_err(),
        caller.quota(request).await.unwrap_err(),
        caller.should(request).await.unwrap_err(),
    ]
}

fn wide(descriptors: usize) -> Request {
    (0..descriptors).fold(request("edge"), |request, at| request.about("k", at.to_string()))
}

fn deep(entries: usize) -> Request {
    (1..entries).fold(request("edge").about("k", "v"), |request, _| request.and("k", "v"))
}

async fn assert_served(caller: &Caller) {
    for request in [request("edge").about("k", "next"), request("nowhere").about("k", "v")] {
        assert!(caller.allows(&request).await);
    }
}

#[tokio::test]
async fn every_mistake_is_answered_with_its_field() {
    let served = Served::with_limits(LIMITS);
    let caller = served.caller().await;
    let long = "x".repeat(4_097);
    let cases = [
        (request("").about("k", "v"), "domain: "),
        (request("edge"), "descriptors: "),
        (request("edge").about("k", "v").about_nothing(), "descriptors[1].entries: "),
        (request("edge").about("k", "v").and("", "v"), "descriptors[0].entries[1].key: "),
        (wide(257), "descriptors: 257 "),
        (deep(33), "descriptors[0].entries: 33 "),
        (request("edge").about(&long, "v"), "descriptors[0].entries[0].key: 4097 "),
        (request("edge").about("k", &long), "descriptors[0].entries[0].value: 4097 "),
        (request(&long).about("k", "v"), "domain: 4097 "),
        (request("nowhere").about("", "v"), "descriptors[0].entries[0].key: "),
    ];
    for (request, field) in cases {
        for status in refusals(&caller, &request).await {
            assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
            assert!(status.message().starts_with(field), "{field}: {}", status.message());
        }
    }
    assert_served(&caller).await;
}

#[tokio::test]
async fn a_message_names_the_allowed_values() {
    let served = Served::with_limits(LIMITS);
    let caller = served.caller().await;
    let [check, ..] = refusals(&caller, &wide(257)).await;
    assert_eq!(check.message(), "descriptors: 257 are over the maximum, 256");
}

#[tokio::test]
async fn an_override_without_a_known_unit_is_refused() {
    let served = Served::with_limits(LIMITS);
    let caller = served.caller().await;
    // UNKNOWN, and numbers for which Envoy's override has no unit.
    for unit in [0, 7, 99, -1, i32::MAX, i32::MIN] {
        let request = request("edge").about("k", "v").about("k", "w").limited_to(5, unit);
        let status = caller.should(&request).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        let message = status.message();
        assert!(message.starts_with("descriptors[1].limit.unit: "), "{unit}: {message}");
    }
    for multiplier in [0, u32::MAX] {
        let request = request("edge").about("k", "v").limited_to(5, 6).every(multiplier);
        let status = caller.should(&request).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        let message = status.message();
        assert!(message.starts_with("descriptors[0].limit.unit_multiplier: "), "{message}");
    }
    assert_served(&caller).await;
}

#[tokio::test]
async fn requests_at_the_maximum_are_answered() {
    let served = Served::with_limits(LIMITS);
    let caller = served.caller().await;
    let long = "x".repeat(4_096);
    for request in [wide(256), deep(32), request("edge").about(&long, &long)] {
        assert!(caller.allows(&request).await);
        caller.quota(&request).await.unwrap();
        caller.should(&request).await.unwrap();
    }
    assert!(caller.allows(&request(&long).about("k", "v")).await);
    assert!(caller.allows(&request("edge").about("k", "")).await, "a value may be empty");
}

#[tokio::test]
async fn flags_change_the_bounds() {
    let flags = ["--max-descriptors", "2", "--max-entries", "3", "--max-text-bytes", "8"];
    let served = Served::with(&[LIMITS], &flags);
    let caller = served.caller().await;
    assert!(caller.allows(&wide(2)).await && caller.allows(&deep(3)).await);
    assert!(caller.allows(&request("edge").about("k", "12345678")).await);
    let cases = [
        (wide(3), "descriptors: 3 "),
        (deep(4), "descriptors[0].entries: 4 "),
        (request("edge").about("k", "123456789"), "descriptors[0].entries[0].value: 9 "),
    ];
    for (request, field) in cases {
        for status in refusals(&caller, &request).await {
            assert_eq!(status.code(), Code::InvalidArgument);
            assert!(status.message().starts_with(field), "{field}: {}", status.message());
        }
    }
}
