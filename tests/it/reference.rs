//! The rules that envoyproxy/ratelimit documents for its limits files: each must have the same
//! outcome here. The files are those of its documentation and its examples, in
//! `tests/it/reference/*.yaml`; docs/from-envoyproxy-ratelimit.md lists the differences.

use std::fs;
use std::path::{Path, PathBuf};

use tidegate::proto::envoy::service::ratelimit::v3::rate_limit_response::Code;
use tidegate::rules::Switches;
use tidegate::rules::parse::load;

use crate::support::client::{Caller, Request, Served, request};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/reference")
}

/// Serves one of the reference's files, with years as its units, so that no case crosses the end of
/// a window.
fn served(file: &str, args: &[&str]) -> Served {
    Served::with(&[&by_the_year(file)], args)
}

fn by_the_year(file: &str) -> String {
    let text = fs::read_to_string(folder().join(file)).expect("a file of the reference");
    let units = ["second", "minute", "day"].map(|unit| format!("unit: {unit}"));
    units.iter().fold(text, |text, unit| text.replace(unit, "unit: year"))
}

/// The number of `sent` requests that pass.
async fn passing(caller: &Caller, request: &Request, sent: usize) -> usize {
    let mut passed = 0;
    for _ in 0..sent {
        let answer = caller.should(request).await.expect("a decision");
        passed += usize::from(answer.overall_code() == Code::Ok);
    }
    passed
}

#[test]
fn every_file_of_the_reference_loads() {
    let files: Vec<_> = fs::read_dir(folder())
        .expect("the folder")
        .map(|file| file.expect("a file").path())
        .collect();
    assert!(files.len() >= 12, "{files:?}");
    for file in files {
        let rules = load(&file, Switches::default()).unwrap_or_else(|errors| panic!("{errors}"));
        assert_eq!(rules.domains().count(), 1, "{file:?}");
    }
}

#[tokio::test]
async fn a_nested_list_matches_a_path_and_a_bare_key_any_value() {
    let served = served("messaging.yaml", &[]);
    let caller = served.caller().await;
    let marketing = |number: &str| {
        request("messaging").about("message_type", "marketing").and("to_number", number)
    };
    assert_eq!(passing(&caller, &marketing("2061111111"), 7).await, 5);
    assert_eq!(passing(&caller, &marketing("2062222222"), 7).await, 5, "each number has its own");
    let any = request("messaging").about("to_number", "2061111111");
    assert_eq!(passing(&caller, &any, 102).await, 100);
    let both = marketing("2063333333").about("to_number", "2063333333");
    assert_eq!(passing(&caller, &both, 9).await, 5, "all matching rules hold");
}

#[tokio::test]
async fn a_key_with_its_value_is_tried_before_the_key_alone() {
    let served = served("edge_proxy_per_ip.yaml", &[]);
    let caller = served.caller().await;
    let address = |ip: &str| request("edge_proxy_per_ip").about("remote_address", ip);
    assert_eq!(passing(&caller, &address("50.0.0.5"), 3).await, 0, "on the black list");
    assert!(passing(&caller, &address("50.0.0.1"), 10).await == 10);
}

#[tokio::test]
async fn a_limit_counts_only_where_the_descriptor_ends() {
    let served = served("example4.yaml", &[]);
    let caller = served.caller().await;
    let longer = request("example4").about("key", "value").and("subkey", "subvalue");
    let answer = caller.should(&longer).await.unwrap();
    assert!(answer.statuses[0].current_limit.is_none(), "{answer:?}");
    let deep = request("example4-nested").about("key", "value").and("subkey", "subvalue");
    let nested = caller.should(&deep).await.unwrap();
    assert!(nested.statuses[0].current_limit.is_none(), "an unknown domain is not limited");
}

#[tokio::test]
async fn unlimited_is_ok_with_the_maximum_remaining_and_no_limit() {
    let served = served("internal.yaml", &[]);
    let caller = served.caller().await;
    let answer = caller.should(&request("internal").about("ldap", "a")).await.unwrap();
    let status = &answer.statuses[0];
    assert_eq!((status.code(), status.limit_remaining), (Code::Ok, u32::MAX));
    assert!(status.current_limit.is_none());
    assert_eq!(passing(&caller, &request("internal").about("azure", "a"), 102).await, 100);
}

#[tokio::test]
async fn shadow_mode_never_rejects() {
    let served = served("example6.yaml", &[]);
    let caller = served.caller().await;
    let user = |name: &str| request("example6").about("service", "auth-service").and("user", name);
    assert_eq!(passing(&caller, &user("user-a").taking(11), 3).await, 3);
    assert_eq!(passing(&caller, &user("user-b").taking(21), 1).await, 0);
}

#[tokio::test]
async fn a_limit_that_replaces_another_leaves_it_unchanged() {
    let served = served("example7.yaml", &[]);
    let caller = served.caller().await;
    let about =
        |key: &str, value: &str| request("example7").about(key, value).and("user", "bkthomps");
    let both = about("key_1", "value_1").about("key_2", "value_2").and("user", "bkthomps");
    let answer = caller.should(&both.clone().each_taking(10)).await.unwrap();
    assert_eq!(answer.overall_code(), Code::Ok, "10, not 5: {answer:?}");
    let limits = answer.statuses.iter().map(|status| status.current_limit.is_some());
    assert_eq!(limits.collect::<Vec<_>>(), [false, true], "the replaced one is not met");
    assert_eq!(caller.remaining(&about("key_1", "value_1")).await, 5, "it was not taken from");
}

#[tokio::test]
async fn a_wildcard_gives_each_value_a_counter_unless_share_threshold_is_set() {
    let served = served("share_threshold.yaml", &[]);
    let caller = served.caller().await;
    let about = |key: &str, value: &str| request("test-domain").about(key, value);
    let take = |key: &str, value: &str, hits| about(key, value).taking(hits);
    for (key, one, other, limit) in [
        ("files", "files/a.pdf", "files/b.csv", 100),
        ("midpath", "/api/a/v1", "/api/b/v1", 100),
        ("multiroute", "svc1ep1rpc", "svc2ep2rpc", 50),
    ] {
        caller.should(&take(key, one, limit - 1)).await.unwrap();
        assert_eq!(caller.remaining(&about(key, other)).await, 1, "{key}: one counter for all");
    }
    caller.should(&take("file", "test1", 50)).await.unwrap();
    assert_eq!(caller.remaining(&about("file", "test2")).await, 100, "the exact value is another");
    let nested = |user: &str, resource: &str, action: &str| {
        about("user", user).and("resource", resource).and("action", action)
    };
    caller.should(&nested("user/a", "res/a", "read").taking(149)).await.unwrap();
    assert_eq!(caller.remaining(&nested("user/b", "res/b", "read")).await, 1);
    assert_eq!(caller.remaining(&nested("user/b", "res/b", "write")).await, 150);
    let mixed = |path: &str, file: &str| about("path", path).and("file", file).and("type", "t");
    caller.should(&mixed("path/a", "file/a").taking(100)).await.unwrap();
    assert_eq!(caller.remaining(&mixed("path/b", "file/a")).await, 20);
    assert_eq!(caller.remaining(&mixed("path/b", "file/b")).await, 120, "only paths share");
}

#[tokio::test]
async fn a_wildcard_matches_any_characters_of_its_own_key_only() {
    let served = served("wildcard.yaml", &[]);
    let caller = served.caller().await;
    let is_limited = async |key: &str, value: &str| {
        let answer = caller.should(&request("test-domain").about(key, value)).await.unwrap();
        answer.statuses[0].current_limit.is_some()
    };
    for (key, value, limited) in [
        ("wild", "foo1", true),
        ("wild", "foo", true),
        ("wild", "bar", false),
        ("noWild", "foo", true),
        ("noWild", "foo1", false),
        ("noVal", "anything", true),
        ("midWild", "bar1b", true),
        ("midWild", "barb", true),
        ("midWild", "bar1bc", false),
        ("wild_foo", "1", false),
    ] {
        assert_eq!(is_limited(key, value).await, limited, "{key}={value}");
    }
}

#[tokio::test]
async fn quotas_reject_if_all_matched_ones_are_over() {
    let served = served("quota.yaml", &[]);
    let caller = served.caller().await;
    let both = request("quota").about("service", "service_1").about("service", "service_2");
    let first = caller.should(&both).await.unwrap();
    let second = caller.should(&both).await.unwrap();
    assert_eq!((first.overall_code(), second.overall_code()), (Code::Ok, Code::Ok));
    let codes: Vec<_> = second.statuses.iter().map(|status| status.code()).collect();
    assert_eq!(codes, [Code::OverLimit, Code::Ok], "one quota is over and says so");
    let third = caller.should(&both).await.unwrap();
    assert_eq!(third.overall_code(), Code::OverLimit);
}

#[tokio::test]
async fn files_of_one_domain_merge_if_enabled() {
    let texts = ["merge_domain_key1.yaml", "merge_domain_key2.yaml"].map(by_the_year);
    let served = Served::with(&[&texts[0], &texts[1]], &["--merge-domains"]);
    let caller = served.caller().await;
    for key in ["key1", "key2"] {
        let answer = caller.should(&request("test-domain").about(key, "value1")).await.unwrap();
        assert!(answer.statuses[0].current_limit.is_some(), "{key}");
    }
}

#[tokio::test]
async fn the_global_shadow_mode_never_rejects_even_with_an_override() {
    let served = served("edge_proxy_per_ip.yaml", &["--shadow-mode"]);
    let caller = served.caller().await;
    let black = request("edge_proxy_per_ip").about("remote_address", "50.0.0.5");
    assert_eq!(passing(&caller, &black, 3).await, 3);
    assert_eq!(passing(&caller, &black.limited_to(0, 2), 3).await, 3);
}

#[tokio::test]
async fn counting_rejected_requests_is_available() {
    let served = served("messaging.yaml", &["--count-rejected"]);
    let caller = served.caller().await;
    let number = |name: &str| request("messaging").about("to_number", name);
    let both = request("messaging")
        .about("message_type", "marketing")
        .and("to_number", "1")
        .about("to_number", "1");
    assert_eq!(passing(&caller, &both, 10).await, 5);
    assert_eq!(caller.remaining(&number("1")).await, 90, "the rejected five count too");
    let hits = number("2").taking(101);
    assert_eq!(passing(&caller, &hits, 1).await, 0);
    assert_eq!(caller.remaining(&number("2")).await, 0, "so do hits that did not fit");

    let slot = request("messaging").about("to_number", "2").taking(100).giving_back();
    assert_eq!(passing(&caller, &slot.about("to_number", "1").taking(1_000), 1).await, 0);
    assert_eq!(caller.remaining(&number("2")).await, 99, "and what rejected requests give back");
}
