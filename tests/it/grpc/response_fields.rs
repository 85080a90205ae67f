//! Fields of answers to Envoy besides the decision: headers, dynamic metadata, a body.

use std::collections::BTreeMap;

use prost_types::value::Kind;
use prost_types::{Struct, Value};
use tidegate::proto::envoy::service::ratelimit::v3::RateLimitResponse;
use tidegate::proto::envoy::service::ratelimit::v3::rate_limit_response::Code;

use crate::support::client::{Request, Served, request};

const EDGE: &str = "
domain: edge
raw_body: slow down
descriptors:
  - key: user
    metadata: { tier: free, route: { to: a, weight: 1.5 } }
    rate_limit: { limit: 3, period: 36500d }
  - key: path
    metadata: { tier: none, route: { from: b } }
    raw_body: '{\"error\": \"this path\"}'
    rate_limit: { limit: 5, period: 36500d, name: 'a \"path\", 5 %' }
  - key: watched
    shadow_mode: true
    rate_limit: { limit: 1, period: 36500d }
  - key: free
    rate_limit: { unlimited: true }
  - key: once
    rate_limit: { limit: 1, period: 1h, algorithm: sliding_window_log }
";

fn headers(answer: &RateLimitResponse) -> BTreeMap<&str, &str> {
    let headers = answer.response_headers_to_add.iter();
    headers.map(|header| (&*header.key, &*header.value)).collect()
}

async fn send(args: &[&str], requests: &[Request]) -> RateLimitResponse {
    let served = Served::with(&[EDGE], args);
    let caller = served.caller().await;
    let mut answer = RateLimitResponse::default();
    for request in requests {
        answer = caller.should(request).await.expect("a decision");
    }
    answer
}

fn text(value: &Value) -> &str {
    match &value.kind {
        Some(Kind::StringValue(text)) => text,
        other => panic!("no text: {other:?}"),
    }
}

fn texts(metadata: &Struct, name: &str) -> Vec<String> {
    match &metadata.fields[name].kind {
        Some(Kind::ListValue(list)) => list.values.iter().map(|v| text(v).to_owned()).collect(),
        other => panic!("no list: {other:?}"),
    }
}

fn mapping<'a>(metadata: &'a Struct, name: &str) -> &'a Struct {
    match &metadata.fields[name].kind {
        Some(Kind::StructValue(mapping)) => mapping,
        other => panic!("no mapping: {other:?}"),
    }
}

#[tokio::test]
async fn by_default_no_headers_are_added() {
    let answer = send(&[], &[request("edge").about("user", "a")]).await;
    assert!(answer.response_headers_to_add.is_empty());
    assert!(answer.raw_body.is_empty(), "an allowed request has no body");
}

#[tokio::test]
async fn x_ratelimit_shows_the_tightest_enforced_limit() {
    let both = request("edge").about("path", "a").about("user", "a").about("watched", "a");
    let args = ["--headers", "x-ratelimit"];
    let answer = send(&args, &[both]).await;
    let reported = headers(&answer);
    assert_eq!((reported["X-RateLimit-Limit"], reported["X-RateLimit-Remaining"]), ("3", "2"));
    let reset: u64 = reported["X-RateLimit-Reset"].parse().expect("whole seconds");
    assert!((1..=36_500 * 86_400).contains(&reset), "{reset}");
    assert_eq!(reported.len(), 3);
    let answer = send(&args, &[request("edge").about("free", "a")]).await;
    assert!(answer.response_headers_to_add.is_empty(), "nothing to tell of no limit");
}

#[tokio::test]
async fn draft_fields_show_every_enforced_limit() {
    let both = request("edge").about("user", "a").about("path", "a").about("watched", "a");
    let answer = send(&["--headers", "draft"], &[both]).await;
    let reported = headers(&answer);
    let window = 36_500 * 86_400_u64;
    let policies = format!("\"user\";q=3;w={window}, \"a \\\"path\\\", 5 %25\";q=5;w={window}");
    assert_eq!(reported["RateLimit-Policy"], policies);
    let states: Vec<&str> = reported["RateLimit"].split(";t=").collect();
    assert_eq!(states[0], "\"user\";r=2");
    assert!(states[1].ends_with(", \"a \\\"path\\\", 5 %25\";r=4"), "{states:?}");
    assert!(!reported.contains_key("Retry-After"));
}

#[tokio::test]
async fn draft_fields_are_well_formed_for_any_limits() {
    let yaml = "{domain: edge, descriptors: [{key: user, rate_limit: \
        [{limit: 9007199254740991, period: 36500d, name: 'a\"b'}, {limit: 5, period: 36500d, name: größe}]}]}";
    let served = Served::with(&[yaml], &["--headers", "draft"]);
    let two = request("edge").about("user", "a").about("user", "b");
    let answer = served.caller().await.should(&two).await.unwrap();
    let window = 36_500 * 86_400_u64;
    let most = 999_999_999_999_999_u64;
    let policy = |name: &str, quota: u64| format!("\"{name}\";q={quota};w={window}");
    let policies = [
        policy("a\\\"b", most),
        policy("gr%c3%b6%c3%9fe", 5),
        policy("a\\\"b#2", most),
        policy("gr%c3%b6%c3%9fe#2", 5),
    ];
    assert_eq!(headers(&answer)["RateLimit-Policy"], policies.join(", "));
    // A quote would end Envoy's; of each user's limits the one with least remaining is shown.
    let names = answer.statuses.iter().flat_map(|status| &status.current_limit);
    assert_eq!(names.map(|limit| &*limit.name).collect::<Vec<_>>(), ["größe", "größe"]);
    let quoted = "{domain: edge, descriptors: [{key: user, \
        rate_limit: {limit: 5, period: 36500d, name: 'a\"b'}}]}";
    let one = request("edge").about("user", "a");
    let answer = Served::with_limits(quoted).caller().await.should(&one).await.unwrap();
    assert_eq!(answer.statuses[0].current_limit.as_ref().unwrap().name, "");
}

#[tokio::test]
async fn draft_fields_tell_a_rejected_caller_when_to_retry() {
    let once = request("edge").about("once", "a");
    let answer = send(&["--headers", "draft"], &[once.clone(), once]).await;
    assert_eq!(answer.overall_code(), Code::OverLimit);
    let reported = headers(&answer);
    let wait: u64 = reported["Retry-After"].parse().expect("whole seconds");
    assert!((3_590..=3_600).contains(&wait), "{wait}");
    assert_eq!(reported["RateLimit"], format!("\"once\";r=0;t={wait}"));
}

#[tokio::test]
async fn a_rejection_has_the_body_of_its_rule_or_of_its_domain() {
    let over = |key: &str| request("edge").about(key, "a").taking(9);
    let body = |answer: RateLimitResponse| String::from_utf8(answer.raw_body.to_vec()).unwrap();
    assert_eq!(body(send(&[], &[over("path")]).await), "{\"error\": \"this path\"}");
    assert_eq!(body(send(&[], &[over("user")]).await), "slow down");
    let both = over("user").about("path", "a").taking(9);
    assert_eq!(body(send(&[], &[both]).await), "{\"error\": \"this path\"}");
    assert_eq!(body(send(&[], &[over("watched")]).await), "", "a shadow rejects nobody");
}

#[tokio::test]
async fn dynamic_metadata_name_the_domain_the_matched_rules_and_the_rejecting_ones() {
    let user_request = request("edge")
        .about("user", "alice")
        .about("nothing", "b")
        .about("free", "c")
        .about("watched", "d")
        .taking(2)
        .about("path", "/x")
        .taking(9);
    let answer = send(&[], &[user_request]).await;
    let metadata = answer.dynamic_metadata.expect("metadata");
    assert_eq!(text(&metadata.fields["domain"]), "edge");
    assert_eq!(texts(&metadata, "matched"), ["user", "free", "watched", "a \"path\", 5 %"]);
    assert_eq!(texts(&metadata, "rejected"), ["a \"path\", 5 %"]);
    let configured = mapping(&metadata, "metadata");
    assert_eq!(text(&configured.fields["tier"]), "free", "only of rules that have room");
    assert!(!format!("{metadata:?}").contains("alice"), "no value of a request");
}

#[tokio::test]
async fn metadata_of_several_rules_are_joined() {
    let answer = send(&[], &[request("edge").about("user", "a").about("path", "b")]).await;
    let metadata = answer.dynamic_metadata.expect("metadata");
    let configured = mapping(&metadata, "metadata");
    assert_eq!(text(&configured.fields["tier"]), "free", "the first one stands");
    let route = mapping(configured, "route");
    let keys: Vec<_> = route.fields.keys().map(String::as_str).collect();
    assert_eq!(keys, ["from", "to", "weight"]);
    assert_eq!(route.fields["weight"].kind, Some(Kind::NumberValue(1.5)));
}

#[tokio::test]
async fn dynamic_metadata_can_be_turned_off() {
    let answer = send(&["--dynamic-metadata", "off"], &[request("edge").about("user", "a")]).await;
    assert_eq!(answer.dynamic_metadata, None);
}

#[tokio::test]
async fn long_names_and_domains_are_not_cut() {
    // Lengths whose encoding takes one, two and three bytes.
    let name = "n".repeat(128);
    let value = "v".repeat(4_000);
    let yaml = format!(
        "{{domain: {0}, descriptors: [{{key: k, value: {value}, rate_limit: {{limit: 1, period: 1d}}}}, \
         {{key: named, rate_limit: {{limit: 1, period: 1d, name: {name}}}}}]}}",
        "d".repeat(127)
    );
    let served = Served::with_limits(&yaml);
    let user_request = request("d".repeat(127)).about("k", &value).about("named", "a");
    let metadata =
        served.caller().await.should(&user_request).await.unwrap().dynamic_metadata.unwrap();
    assert_eq!(text(&metadata.fields["domain"]).len(), 127);
    assert_eq!(texts(&metadata, "matched"), [format!("k={value}"), name]);
    assert_eq!(texts(&metadata, "rejected"), [""; 0]);
}
