//! The most rejected values: `/top`, and `tidegate top`.

use serde_json::Value;

use crate::support::client::{Caller, Served, request};
use crate::support::servers::{RedisServer, Version};
use crate::support::tidegate::Tidegate;

const EDGE: &str = "
domain: edge
descriptors:
  - key: user
    rate_limit: { limit: 1, period: 36500d, name: per_user }
  - key: phone
    hash_values: true
    detailed_metric: true
    rate_limit: { limit: 1, period: 36500d }
    descriptors:
      - key: path
        rate_limit: { limit: 1, period: 36500d }
  - key: watched
    shadow_mode: true
    rate_limit: { limit: 1, period: 36500d }
";

const OTHER: &str = "
domain: other
descriptors:
  - key: user
    rate_limit: { limit: 1, period: 36500d }
";

/// The first 128 bits of the SHA-256 of `5550100`.
const HASH: &str = "#90e38c460436b657a19dee9e37f8ef63";

async fn send(caller: &Caller, key: &str, value: &str, times: usize) {
    for _ in 0..times {
        caller.should(&request("edge").about(key, value)).await.unwrap();
    }
}

fn top(served: &Served, filter: &str) -> Value {
    let page = served.page(&format!("/top{filter}"));
    assert_eq!(page.status, 200, "{}", page.body);
    serde_json::from_str(&page.body).unwrap()
}

/// The entries and rejections of a rule, most rejected first.
fn values(top: &Value, rule: &str) -> Vec<(String, u64)> {
    let rules = top["rules"].as_array().unwrap();
    let rule = rules.iter().find(|own| own["rule"] == rule);
    let values = rule.and_then(|rule| rule["values"].as_array()).into_iter().flatten();
    let value = |value: &Value| {
        assert_eq!(value["error_max"], 0, "{value}");
        let pairs = value["entries"].as_array().unwrap().iter();
        let entries = pairs
            .map(|pair| format!("{}={}", pair[0].as_str().unwrap(), pair[1].as_str().unwrap()));
        let entries = entries.collect::<Vec<_>>().join(",");
        (entries, value["rejections"].as_u64().unwrap())
    };
    values.map(value).collect()
}

#[tokio::test]
async fn the_most_rejected_values_are_listed_on_every_store() {
    let redis = RedisServer::start(Version::Redis70);
    let url = redis.url();
    let on_redis = ["--store", &url, "--store-timeout", "10s"];
    let without_denials = [&on_redis[..], &["--deny-cache-max-keys", "0"]].concat();
    for args in [&[][..], &without_denials, &on_redis] {
        let served = Served::with(&[EDGE, OTHER], args);
        let caller = served.caller().await;
        // Each round has its own keys in Redis.
        let user = |name: &str| format!("{name}-{}", args.len());
        send(&caller, "user", &user("alice"), 6).await;
        send(&caller, "user", &user("bob"), 3).await;
        send(&caller, "user", &user("carol"), 1).await;
        send(&caller, "watched", "dave", 3).await;
        let all = top(&served, "");
        assert_eq!(all["of_last_seconds"], serde_json::json!([10, 20]));
        let reported =
            [(format!("user={}", user("alice")), 5), (format!("user={}", user("bob")), 2)];
        assert_eq!(values(&all, "per_user"), reported, "{all}");
        assert_eq!(all["rules"][0]["rejections"], 7);
        assert_eq!(all["rules"][0]["values"][0]["share"], 0.714);
        assert!(values(&all, "watched").is_empty(), "what passes is not rejected");
    }
}

#[tokio::test]
async fn values_are_shown_as_a_hash_if_the_rule_says_so() {
    let served = Served::with(&[EDGE], &[]);
    let caller = served.caller().await;
    send(&caller, "phone", "5550100", 3).await;
    let path = request("edge").about("phone", "5550100").and("path", "/login");
    for _ in 0..3 {
        caller.should(&path).await.unwrap();
    }
    let all = top(&served, "");
    assert_eq!(values(&all, "phone"), [(format!("phone={HASH}"), 2)]);
    assert_eq!(values(&all, "phone/path"), [(format!("phone={HASH},path=/login"), 2)]);
    let metrics = served.page("/metrics").body;
    assert!(metrics.contains(&format!("dimension=\"phone={HASH}\"")), "{metrics}");
    assert!(!metrics.contains("5550100") && !served.tidegate.log().contains("5550100"));
}

#[tokio::test]
async fn top_can_be_filtered_by_rule_and_domain() {
    let served = Served::with(&[EDGE, OTHER], &[]);
    let caller = served.caller().await;
    send(&caller, "user", "alice", 2).await;
    for _ in 0..2 {
        caller.should(&request("other").about("user", "alice")).await.unwrap();
    }
    for (filter, count) in [
        ("", 2),
        ("?domain=edge", 1),
        ("?domain=other&rule=user", 1),
        ("?rule=per_user", 1),
        ("?rule=user", 2),
        ("?domain=edge&rule=phone%2Fpath", 0),
        ("?rule=override", 0),
    ] {
        let found = top(&served, filter);
        assert_eq!(found["rules"].as_array().unwrap().len(), count, "{filter}: {found}");
    }
    for (filter, status) in [
        ("?domain=none", 404),
        ("?rule=none", 404),
        ("?domain=other&rule=per_user", 404),
        ("?rul=user", 400),
    ] {
        assert_eq!(served.page(&format!("/top{filter}")).status, status, "{filter}");
    }
}

#[tokio::test]
async fn the_command_prints_a_table_or_json() {
    let served = Served::with(&[EDGE], &[]);
    let addr = served.tidegate.http.to_string();
    let run = |args: &[&str]| {
        let output = Tidegate::run(&[&["top", "--addr", &addr], args].concat(), "");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    assert_eq!(run(&[]).1, "nothing was rejected in the last 10 to 20 seconds\n");
    let caller = served.caller().await;
    send(&caller, "user", "alice", 4).await;
    send(&caller, "user", "b\u{1b}[2Jb", 2).await;
    let (code, table, _) = run(&["--rule", "per_user", "--domain", "edge"]);
    let lines = [
        "RULE            VALUE             REJECTIONS  UP TO  SHARE",
        "edge: per_user  all               4",
        "edge: per_user  user=alice        3           3      75.0 %",
        "edge: per_user  user=b\\u{1b}[2Jb  1           1      25.0 %",
    ];
    assert_eq!((code, table.lines().collect::<Vec<_>>()), (Some(0), lines.to_vec()));
    let json: Value = serde_json::from_str(&run(&["--json"]).1).unwrap();
    assert_eq!(values(&json, "per_user")[0], ("user=alice".to_owned(), 3));
    let (code, _, error) = run(&["--rule", "a b&c"]);
    assert_eq!(code, Some(1));
    assert!(error.contains("404 Not Found: no rule \"a b&c\" is in force"), "{error}");
}
