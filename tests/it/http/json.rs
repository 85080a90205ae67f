//! `POST /json`.

use serde_json::{Value, json};

use crate::support::client::{Page, Served};

const EDGE: &str = "
domain: edge
raw_body: slow down
descriptors:
  - key: user
    rate_limit: { limit: 2, period: 36500d }
";

fn post(served: &Served, body: &str) -> Page {
    Page::post(served.tidegate.http, "/json", body)
}

fn user(hits: &Value) -> String {
    let entries = json!([{ "key": "user", "value": "alice" }]);
    json!({ "domain": "edge", "descriptors": [{ "entries": entries, "hitsAddend": hits }] })
        .to_string()
}

#[test]
fn an_allowed_request_is_200_and_a_rejected_one_429() {
    let served = Served::with_limits(EDGE);
    let page = post(&served, &user(&json!(2)));
    assert_eq!(page.status, 200, "{page:?}");
    assert!(page.head.contains("content-type: application/json"), "{}", page.head);
    let answer: Value = serde_json::from_str(&page.body).unwrap();
    assert_eq!(answer["overallCode"], "OK");
    assert_eq!(answer["statuses"][0]["currentLimit"]["requestsPerUnit"], 2, "{answer}");
    let page = post(&served, &user(&json!("1")));
    assert_eq!(page.status, 429, "64-bit numbers may be text, as proto JSON has them");
    let answer: Value = serde_json::from_str(&page.body).unwrap();
    assert_eq!(answer["overallCode"], "OVER_LIMIT");
    assert_eq!(answer["dynamicMetadata"]["rejected"], json!(["user"]));
    assert_eq!(answer["rawBody"], "c2xvdyBkb3du");
}

#[test]
fn field_names_of_the_proto_file_are_accepted_and_unknown_ones_skipped() {
    let served = Served::with_limits(EDGE);
    let body = r#"{"domain":"edge","hits_addend":1,"descriptors":[{"entries":[{"key":"user","value":"a"}],"newer":1}]}"#;
    assert_eq!(post(&served, body).status, 200);
}

#[test]
fn a_body_that_does_not_arrive_is_408() {
    let served = Served::with_limits(EDGE);
    let head = "POST /json HTTP/1.1\r\nHost: t\r\nConnection: close\r\nContent-Length: 9\r\n\r\n";
    let page = Page::ask(served.tidegate.http, &format!("{head}{{"));
    assert_eq!((page.status, &*page.body), (408, "no whole message came in 5s\n"));
}

#[test]
fn a_body_with_more_values_than_a_request_has_is_400_and_takes_no_memory() {
    let served = Served::with_limits(EDGE);
    let before_kib = served.tidegate.resident_kib();
    let empty = vec!["{}"; 1_300_000].join(",");
    let page = post(&served, &format!("{{\"descriptors\":[{empty}]}}"));
    assert_eq!(page.status, 400, "{page:?}");
    assert!(page.body.contains("more values than a request may have"), "{}", page.body);
    let grown_kib = served.tidegate.resident_kib().saturating_sub(before_kib);
    assert!(grown_kib < 40 << 10, "{grown_kib} KiB more");
}

#[test]
fn a_page_of_another_site_cannot_decide_or_read_values() {
    let served = Served::with_limits(EDGE);
    let body = user(&json!(1));
    let from = |headers: &str| Page::post_with(served.tidegate.http, "/json", headers, &body);
    assert_eq!(from("Origin: https://evil.example\r\n").status, 403);
    assert_eq!(from("Sec-Fetch-Site: cross-site\r\n").status, 403);
    let ask = |host: &str| {
        let ask = format!("GET /limits HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        Page::ask(served.tidegate.http, &ask).status
    };
    assert_eq!((ask("evil.example"), ask("localhost")), (403, 200));
    // Neither has taken a hit.
    assert_eq!((from("").status, from("").status, from("").status), (200, 200, 429));
}

#[test]
fn an_invalid_request_is_400_with_the_reason() {
    let served = Served::with_limits(EDGE);
    let deep = format!("{}{}", "[".repeat(50_000), "]".repeat(50_000));
    for (body, says) in [
        ("", "body: is no RateLimitRequest"),
        ("{", "body: is no RateLimitRequest"),
        ("[]", "body: is no RateLimitRequest"),
        ("{} {}", "body: goes on after the request"),
        (deep.as_str(), "body: is no RateLimitRequest"),
        (r#"{"domain":7}"#, "body: is no RateLimitRequest"),
        (r#"{"domain":"edge"}"#, "descriptors"),
        (r#"{"descriptors":[{"entries":[{"key":"a"}]}]}"#, "domain"),
        (r#"{"domain":"edge","descriptors":[{}]}"#, "entries"),
        (
            r#"{"domain":"edge","descriptors":[{"entries":[{"key":"a"}],"limit":{"unit":99}}]}"#,
            "limit",
        ),
        (r#"{"domain":"edge","descriptors":[{"entries":[{"key":"a"}],"hitsAddend":-1}]}"#, "body"),
    ] {
        let page = post(&served, body);
        assert_eq!(page.status, 400, "{body:.80}: {page:?}");
        assert!(page.body.contains(says), "{body:.80}: {}", page.body);
    }
    assert_eq!(post(&served, &user(&json!(1))).status, 200, "the next one is decided");
}

#[test]
fn a_body_beyond_the_maximum_is_refused() {
    let served = Served::with_limits(EDGE);
    let page = post(&served, &format!("{{\"domain\":\"{}\"}}", "x".repeat(5 << 20)));
    assert_eq!(page.status, 413);
    assert_eq!(Page::get(served.tidegate.http, "/json").status, 405);
}
