//! The log: lines for people, or JSON objects for log collectors.

use std::time::Duration;

use serde_json::{Value, json};
use tidegate::clock::Stopwatch;

use crate::support::client::{Served, request};
use crate::support::process::{eventually, wait_until};
use crate::support::servers::{RedisServer, Version, free_port};
use crate::support::tidegate::Tidegate;

/// The deadline for a log line.
const DEADLINE: Duration = Duration::from_secs(10);

const EDGE: &str = "
domain: edge
descriptors:
  - key: user
    rate_limit: { limit: 2, period: 36500d, name: per_user }
";

/// The lines of a log that consists of JSON only.
fn lines(served: &Served) -> Vec<Value> {
    let log = served.tidegate.log();
    let parse = |line: &str| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
    log.lines().map(parse).collect()
}

#[test]
fn output_to_a_pipe_is_json_with_a_time_a_level_and_a_message() {
    for format in ["auto", "json"] {
        let served = Served::with(&[EDGE], &["--log-format", format]);
        let message = format!("grpc on {}", served.tidegate.grpc);
        let lines = lines(&served);
        let line = lines.iter().find(|line| line["message"] == message.as_str());
        let line = line.unwrap_or_else(|| panic!("{lines:?}"));
        assert_eq!(
            (&line["level"], &line["target"]),
            (&"INFO".into(), &"tidegate::command::serve".into())
        );
        assert!(line["timestamp"].as_str().unwrap().ends_with('Z'), "{line}");
    }
    let served = Served::with(&[EDGE], &["--log-format", "text"]);
    let log = served.tidegate.log();
    assert!(log.contains("INFO tidegate::command::serve: grpc on "), "{log}");
}

#[test]
fn causes_are_fields_and_secrets_are_never_logged() {
    let store = format!("redis://user:hunter2-secret@127.0.0.1:{}", free_port());
    let args = ["--log-format", "json", "--log", "debug", "--store", &store];
    let served = Served::with(&[EDGE], &args);
    let reported = || lines(&served).into_iter().find(|line| line["level"] == "WARN");
    let line = wait_until(DEADLINE, reported).expect("a line about the store");
    assert!(line["error"].is_string() || line["message"].is_string(), "{line}");
    assert!(!served.tidegate.log().contains("hunter2"));
}

/// The first line of a JSON log with this message, once there is one.
fn line_with(served: &Served, message: &str) -> Value {
    let found = || lines(served).into_iter().find(|line| line["message"] == message);
    wait_until(DEADLINE, found).unwrap_or_else(|| panic!("{message}: {}", served.tidegate.log()))
}

const JSON: [&str; 2] = ["--log-format", "json"];

#[test]
fn the_start_is_told_with_what_is_served() {
    let other =
        "{domain: other, descriptors: [{key: a}, {key: b, rate_limit: {limit: 1, unit: day}}]}";
    let store = format!("redis://user:hunter2-secret@127.0.0.1:{}", free_port());
    for (store, told) in [
        ("memory", "memory".to_owned()),
        (&store, store.replace("://user:hunter2-secret@", " standalone ")),
    ] {
        let served = Served::with(&[EDGE, other], &[&JSON[..], &["--store", store]].concat());
        let start = line_with(&served, concat!("tidegate ", env!("CARGO_PKG_VERSION"), " starts"));
        assert_eq!((&start["domains"], &start["rules"]), (&json!(2), &json!(3)), "{start}");
        assert_eq!(start["limits"], served.limits().to_str().unwrap());
        let in_force: Value = serde_json::from_str(&served.page("/limits").body).unwrap();
        assert_eq!(start["hash"], in_force["hash"]);
        assert_eq!(start["store"], told, "{start}");
    }
}

#[test]
fn a_reload_is_told_with_what_it_changes() {
    let served = Served::with(&[EDGE], &JSON);
    let file = served.limits().join("limits-0.yaml");
    std::fs::write(file, EDGE.replace("limit: 2", "limit: 3") + "  - key: ip\n").unwrap();
    let line = line_with(&served, "limits were reloaded");
    assert_eq!((&line["version"], &line["level"]), (&json!(2), &json!("INFO")));
    assert_eq!(line["changes"], "edge: 1 added (ip), 1 changed (user)");
}

#[test]
fn the_end_is_the_last_line() {
    let mut served = Served::with(&[EDGE], &JSON);
    assert!(served.tidegate.terminate().success());
    line_with(&served, "ended");
    let last = lines(&served).pop().unwrap();
    assert_eq!(last["message"], "ended");
    assert!(last["uptime"].as_str().unwrap().ends_with('s'), "{last}");
}

#[tokio::test]
async fn an_outage_is_told_with_the_server_the_policy_and_what_was_decided_meanwhile() {
    let mut redis = RedisServer::start(Version::Redis70);
    let url = redis.url();
    let more = ["--store", &url, "--store-timeout", "1s", "--replicas", "2"];
    let served = Served::with(&[EDGE], &[&JSON[..], &more].concat());
    let caller = served.caller().await;
    let source = async |user: &str| {
        let answer = caller.check(&request("edge").about("user", user)).await.unwrap();
        answer.source().as_str_name().to_owned()
    };
    let decided_by = async |wanted: &str| {
        let ask = async || (source("probe").await == wanted).then_some(());
        eventually(DEADLINE, ask).await.unwrap_or_else(|| panic!("{}", served.tidegate.log()));
    };
    decided_by("DECISION_SOURCE_STORE").await;
    redis.stop();
    decided_by("DECISION_SOURCE_FALLBACK").await;
    // One of two hits is this replica's share.
    for _ in 0..5 {
        assert_eq!(source("alice").await, "DECISION_SOURCE_FALLBACK");
    }
    let addr = redis.addr().to_string();
    let begun = line_with(&served, "the store does not answer: deciding by --on-store-failure");
    assert_eq!((&begun["level"], &begun["server"]), (&json!("WARN"), &json!(addr)));
    assert_eq!(begun["policy"], "local, with 1/2 of each limit");
    assert!(begun["why"].is_string(), "{begun}");
    let ready = served.page("/readyz");
    let told: Vec<_> = ready.body.lines().filter(|line| line.starts_with("outage: ")).collect();
    assert_eq!((ready.status, told.len()), (200, 2), "{}", ready.body);
    assert!(told[0].starts_with("outage: since 20"), "{}", ready.body);
    assert!(told[0].contains("; policy: local, with 1/2 of each limit; "), "{}", ready.body);
    assert!(told[1].starts_with(&format!("outage: {addr} for ")), "{}", ready.body);
    redis.restart();
    decided_by("DECISION_SOURCE_STORE").await;
    line_with(&served, "the store decides again");
    // A busy machine may cause a further outage.
    let all = lines(&served);
    let ends: Vec<_> =
        all.iter().filter(|line| line["message"] == "the store decides again").collect();
    let sum = |of: &str| ends.iter().map(|line| line[of].as_u64().unwrap()).sum::<u64>();
    assert!(sum("decisions") >= 6, "{ends:?}");
    assert!((2..sum("decisions")).contains(&sum("hits")), "{ends:?}");
    assert!(ends[0]["since"].as_str().unwrap().ends_with('Z'), "{ends:?}");
    assert!(ends[0]["after"].as_str().unwrap().ends_with('s'), "{ends:?}");
    let over = async || (!served.page("/readyz").body.contains("outage")).then_some(());
    eventually(DEADLINE, over).await.expect("/readyz tells no outage any more");
}

#[test]
fn another_format_is_refused() {
    let output = Tidegate::run(&["serve", "--limits", "x", "--log-format", "xml"], "");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("is not one of auto, text, json"), "{stderr}");
}

#[test]
fn a_fatal_error_is_the_last_line_in_the_usual_format() {
    let run = |format| {
        let args = ["serve", "--limits", "/no/such/file", "--grpc-addr", "127.0.0.1:0"];
        let args = [&args[..], &["--http-addr", "127.0.0.1:0", "--log-format", format]].concat();
        let output = Tidegate::run(&args, "");
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let log = run("json");
    let line: Value = serde_json::from_str(log.lines().last().unwrap()).unwrap();
    assert_eq!(line["level"], "ERROR");
    assert!(line["message"].as_str().unwrap().contains("/no/such/file"), "{line}");
    assert!(line["timestamp"].as_str().unwrap().ends_with('Z'), "{line}");
    let log = run("text");
    assert!(log.lines().last().unwrap().starts_with("error: /no/such/file"), "{log}");
}

/// The lines of the decision log among others, which are text.
fn decisions(served: &Served) -> Vec<Value> {
    let log = served.tidegate.log();
    let lines = log.lines().filter_map(|line| serde_json::from_str(line).ok());
    lines.filter(|line: &Value| line["target"] == "tidegate::decision").collect()
}

/// The same, once there are so many.
fn wait_for_decisions(served: &Served, count: usize) -> Vec<Value> {
    let all = || Some(decisions(served)).filter(|lines| lines.len() >= count);
    wait_until(DEADLINE, all).unwrap_or_else(|| panic!("{}", served.tidegate.log()))
}

/// The number of lines with this result, from `/metrics`.
fn lines_counted(served: &Served, result: &str) -> u64 {
    let name = format!("rate_limit_decision_log_lines_total{{result=\"{result}\"}} ");
    let page = served.page("/metrics");
    page.body.lines().find_map(|line| line.strip_prefix(&name)?.parse().ok()).unwrap()
}

/// Waits until the numbers of written and lost lines are as `wanted`, and returns them.
fn wait_for_count(served: &Served, wanted: impl Fn(u64, u64) -> bool) -> (u64, u64) {
    let count = || (lines_counted(served, "written"), lines_counted(served, "lost"));
    let found = || Some(count()).filter(|(written, lost)| wanted(*written, *lost));
    wait_until(DEADLINE, found).unwrap_or_else(|| panic!("written and lost: {:?}", count()))
}

const ALL: [&str; 2] = ["--decision-log-sample", "1"];

#[tokio::test]
async fn a_decision_is_logged_with_its_request_and_the_limit_that_rejected() {
    let served = Served::with(&[EDGE], &ALL);
    let caller = served.caller().await;
    let alice = request("edge").about("user", "alice");
    for _ in 0..3 {
        caller.check(&alice).await.unwrap();
    }
    // It takes nothing, so it is not logged.
    caller.quota(&alice).await.unwrap();
    let lines = wait_for_decisions(&served, 3);
    let reported: Vec<_> = lines.iter().map(|line| line["decision"].as_str().unwrap()).collect();
    assert_eq!(reported, ["allowed", "allowed", "rejected"], "{lines:?}");
    let line = &lines[2];
    assert_eq!((&line["domain"], &line["source"]), (&"edge".into(), &"store".into()));
    assert_eq!(line["rejected_by"], json!(["per_user"]));
    let limit = json!({"rule": "per_user", "result": "rejected", "limit": 2, "remaining": 0});
    let descriptor = json!({"entries": [["user", "alice"]], "hits": 1, "limits": [limit]});
    assert_eq!(line["descriptors"], json!([descriptor]));
    assert!(line["duration_us"].is_u64() && line["timestamp"].is_string(), "{line}");
    wait_for_count(&served, |written, _| written == 3);
}

#[tokio::test]
async fn the_decision_log_hashes_configured_and_unknown_values() {
    let hashed = EDGE.replace("    rate_limit", "    hash_values: true\n    rate_limit");
    let served = Served::with(&[&hashed], &ALL);
    let caller = served.caller().await;
    let alice = request("edge").about("user", "alice@example.com");
    caller.check(&alice.about("session", "bob-secret")).await.unwrap();
    caller.check(&request("elsewhere").about("user", "carol-secret")).await.unwrap();
    let lines = wait_for_decisions(&served, 2);
    for descriptor in lines[0]["descriptors"].as_array().unwrap() {
        let value = descriptor["entries"][0][1].as_str().unwrap();
        assert!(value.len() == 33 && value.starts_with('#'), "{descriptor}");
    }
    assert_eq!(
        (&lines[1]["domain"], &lines[1]["unknown_domain"]),
        (&"elsewhere".into(), &true.into())
    );
    let log = served.tidegate.log();
    assert!(!log.contains("alice") && !log.contains("secret"), "{log}");
}

#[tokio::test]
async fn a_sample_of_the_decisions_is_logged_and_by_default_none() {
    let tenth = ["--decision-log-sample", "0.1", "--decision-log-rate", "100000"];
    let (served, silent) = (Served::with(&[EDGE], &tenth), Served::with(&[EDGE], &[]));
    for served in [&served, &silent] {
        let caller = served.caller().await;
        for _ in 0..1_000 {
            caller.check(&request("edge").about("user", "alice")).await.unwrap();
        }
    }
    // For 1,000 at 1 in 10, the standard deviation is 9.5: this fails once in a billion runs.
    wait_for_count(&served, |written, _| (40..=160).contains(&written));
    assert!(decisions(&silent).is_empty());
    assert_eq!(lines_counted(&silent, "written"), 0);
}

#[tokio::test]
async fn the_decision_log_is_bounded_per_second() {
    let served = Served::with(&[EDGE], &[&ALL[..], &["--decision-log-rate", "1"]].concat());
    let caller = served.caller().await;
    let start = Stopwatch::start();
    for _ in 0..500 {
        caller.check(&request("edge").about("user", "alice")).await.unwrap();
    }
    let seconds = start.elapsed().as_secs() + 2;
    let over = lines_counted(&served, "over_rate");
    let written = 500 - over;
    assert!((1..=seconds).contains(&written), "{written} lines in {seconds} s");
    wait_for_count(&served, |counted, _| counted == written);
}

#[tokio::test]
async fn a_stalled_reader_of_the_log_delays_no_request() {
    let served = Served::with(&[EDGE], &[&ALL[..], &["--decision-log-rate", "1000000"]].concat());
    let caller = served.caller().await;
    let mut sent = 0;
    {
        let _unread = served.tidegate.leave_log_unread();
        while lines_counted(&served, "lost") < 100 {
            for _ in 0..500 {
                caller.check(&request("edge").about("user", "alice")).await.unwrap();
            }
            sent += 500;
            assert!(sent < 100_000, "more than a pipe and the queue hold");
        }
    }
    let (written, _) = wait_for_count(&served, |written, lost| written + lost == sent);
    // Lines that are counted as written are written once they are read.
    assert_eq!(
        wait_for_decisions(&served, usize::try_from(written).unwrap()).len() as u64,
        written
    );
}

#[test]
fn an_invalid_sample_rate_is_refused() {
    for share in ["1.5", "-0.1", "NaN", "half"] {
        let share = format!("--decision-log-sample={share}");
        let output = Tidegate::run(&["serve", "--limits", "x", &share], "");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.contains("is not a number from 0 to 1"), "{stderr}");
    }
}
