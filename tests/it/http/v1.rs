//! `POST /v1/check` and `POST /v1/quota`.

use serde_json::{Value, json};

use crate::support::client::{Page, Served};
use crate::support::servers::free_port;

const EDGE: &str = "
domain: edge
descriptors:
  - key: user
    rate_limit: { limit: 2, period: 36500d, name: per_user }
  - key: bucket
    rate_limit: { limit: 60, period: 1m, algorithm: token_bucket, burst: 2 }
  - key: free
    rate_limit: { unlimited: true }
";

fn check(served: &Served, body: &str) -> Page {
    Page::post(served.tidegate.http, "/v1/check", body)
}

fn quota(served: &Served, body: &str) -> Page {
    Page::post(served.tidegate.http, "/v1/quota", body)
}

fn about(key: &str, hits: u64) -> String {
    let entries = json!([{ "key": key, "value": "alice" }]);
    json!({ "domain": "edge", "descriptors": [{ "entries": entries, "hits": hits }] }).to_string()
}

fn body(page: &Page) -> Value {
    serde_json::from_str(&page.body).unwrap_or_else(|error| panic!("{error}: {page:?}"))
}

fn header<'p>(page: &'p Page, name: &str) -> Option<&'p str> {
    let start = format!("{name}: ");
    page.head.lines().find_map(|line| line.strip_prefix(start.as_str()))
}

#[test]
fn an_allowed_request_is_200_with_every_field_and_the_rate_limit_headers() {
    let served = Served::with_limits(EDGE);
    let page = check(&served, &about("user", 1));
    assert_eq!((page.status, header(&page, "content-type")), (200, Some("application/json")));
    assert_eq!(header(&page, "ratelimit-policy"), Some("\"per_user\";q=2;w=3153600000"));
    assert!(header(&page, "ratelimit").unwrap().starts_with("\"per_user\";r=1;t="), "{page:?}");
    assert_eq!(header(&page, "retry-after"), None);
    let mut answer = body(&page);
    assert!(answer["statuses"][0]["resetAfter"].take().as_str().unwrap().ends_with('s'));
    let status = json!({
        "descriptorIndex": 0, "rule": "per_user", "withinLimit": true, "limit": 2, "remaining": 1,
        "resetAfter": null, "period": "3153600000s", "algorithm": "ALGORITHM_FIXED_WINDOW",
        "shadow": false, "unlimited": false, "burst": 2,
    });
    let source = "DECISION_SOURCE_STORE";
    let expected =
        json!({ "decision": "DECISION_ALLOWED", "statuses": [status], "source": source });
    assert_eq!(answer, expected);
}

#[test]
fn a_rejected_request_is_429_with_the_time_after_which_it_passes() {
    let served = Served::with_limits(EDGE);
    assert_eq!(check(&served, &about("bucket", 2)).status, 200);
    let page = check(&served, &about("bucket", 2));
    assert_eq!((page.status, body(&page)["decision"].as_str()), (429, Some("DECISION_REJECTED")));
    // A token a second; the first one may have come meanwhile, but hardly both.
    let retry: u64 = header(&page, "retry-after").expect("a time").parse().unwrap();
    assert!((1..=2).contains(&retry), "{page:?}");
    assert!(header(&page, "ratelimit").unwrap().starts_with("\"bucket\";r="), "{page:?}");
    let never = check(&served, &about("bucket", 3));
    assert_eq!((never.status, header(&never, "retry-after")), (429, None), "more than the burst");
}

#[test]
fn a_quota_takes_nothing_and_tests_its_hits() {
    let served = Served::with_limits(EDGE);
    for _ in 0..3 {
        let page = quota(&served, &about("user", 2));
        assert_eq!((page.status, body(&page)["statuses"][0]["remaining"].as_u64()), (200, Some(2)));
    }
    let page = quota(&served, &about("user", 3));
    assert_eq!((page.status, body(&page)["decision"].as_str()), (429, Some("DECISION_REJECTED")));
    let explained = r#"{"domain":"egde","explain":true,"descriptors":[{"entries":[{"key":"k"}]}]}"#;
    let answer = body(&quota(&served, explained));
    assert_eq!(answer["source"], "DECISION_SOURCE_NO_LIMIT");
    assert_eq!(answer["explanations"][0]["match"], "MATCH_UNKNOWN_DOMAIN");
    let detail = r#"no limits file has the domain "egde"; did you mean "edge""#;
    assert_eq!(answer["explanations"][0]["detail"], detail);
}

#[test]
fn without_a_limit_there_is_no_header_and_nothing_remains_to_be_said() {
    let served = Served::with_limits(EDGE);
    let page = check(&served, &about("free", 1));
    assert_eq!((page.status, header(&page, "ratelimit")), (200, None));
    assert_eq!(body(&page)["statuses"][0].get("remaining"), None);
    assert_eq!(body(&page)["source"], "DECISION_SOURCE_NO_LIMIT");
}

#[test]
fn unknown_fields_are_refused_with_the_nearest_known_one() {
    let served = Served::with_limits(EDGE);
    let entries = r#""entries":[{"key":"user","value":"a"}]"#;
    for (sent, field, says) in [
        (
            format!(r#"{{"domian":"edge","descriptors":[{{{entries}}}]}}"#),
            "domian",
            r#"is no field of CheckRateLimitRequest; did you mean "domain""#,
        ),
        (
            format!(r#"{{"domain":"edge","descriptors":[{{{entries}}},{{{entries},"hit":2}}]}}"#),
            "descriptors[1].hit",
            r#"is no field of Descriptor; did you mean "hits""#,
        ),
        (
            r#"{"domain":"edge","descriptors":[{"entries":[{"key":"a","val":"b"}]}]}"#.to_owned(),
            "descriptors[0].entries[0].val",
            r#"is no field of Entry; did you mean "value""#,
        ),
        (
            format!(r#"{{"domain":"edge","descriptors":[{{{entries}}}],"refund":true}}"#),
            "refund",
            "is no field of CheckRateLimitRequest; known are domain, descriptors, hits",
        ),
    ] {
        let page = check(&served, &sent);
        assert_eq!(page.status, 400, "{sent}: {page:?}");
        let expected = json!({
            "code": 3,
            "message": format!("{field}: {says}"),
            "details": [
                {
                    "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                    "reason": "INVALID_REQUEST", "domain": "tidegate",
                },
                {
                    "@type": "type.googleapis.com/google.rpc.BadRequest",
                    "fieldViolations": [{ "field": field, "description": says }],
                },
            ],
        });
        assert_eq!(body(&page), expected, "{sent}");
    }
    assert_eq!(
        body(&quota(&served, &about("user", 1)))["statuses"][0]["remaining"],
        2,
        "not taken"
    );
}

#[test]
fn other_mistakes_are_400_with_the_field() {
    let served = Served::with_limits(EDGE);
    for (sent, message) in [
        ("", "body: is no CheckRateLimitRequest"),
        ("[]", "body: is no CheckRateLimitRequest"),
        ("{} {}", "body: goes on after the request"),
        (r#"{"domain":7}"#, "body: is no CheckRateLimitRequest"),
        (r#"{"domain":"edge","descriptors":7,"hit":1}"#, "body: is no CheckRateLimitRequest"),
        (r#"{"domain":"edge"}"#, "descriptors: must hold at least one"),
    ] {
        let page = check(&served, sent);
        assert_eq!((page.status, body(&page)["code"].as_i64()), (400, Some(3)), "{sent}");
        let said = body(&page)["message"].as_str().unwrap().to_owned();
        assert!(said.starts_with(message), "{sent}: {said}");
    }
    let long = check(&served, &format!("{{\"domain\":\"{}\"}}", "x".repeat(5 << 20)));
    assert_eq!((long.status, body(&long)["code"].as_i64()), (413, Some(11)));
    assert_eq!(Page::get(served.tidegate.http, "/v1/check").status, 405);
}

#[test]
fn without_a_store_the_answer_is_503_with_the_time_to_retry() {
    let nobody = format!("redis://127.0.0.1:{}", free_port());
    let served = Served::with(&[EDGE], &["--store", &nobody, "--on-store-failure", "error"]);
    let page = check(&served, &about("user", 1));
    assert_eq!((page.status, header(&page, "retry-after")), (503, Some("1")));
    let error = body(&page);
    assert_eq!(
        (error["code"].as_i64(), error["details"][1]["retryDelay"].as_str()),
        (Some(14), Some("1.000s"))
    );
}
