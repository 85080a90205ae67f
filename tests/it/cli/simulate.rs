//! `tidegate simulate`: replays recorded requests with the clock of the recording.

use std::fs;
use std::time::Duration;

use serde_json::{Value, json};

use super::{Printed, printed, run};
use crate::support::client::{Served, limits_folder, request};
use crate::support::process::wait_until;
use crate::support::servers::{RedisServer, Version, free_port};
use crate::support::tidegate::Tidegate;

const LIMITS: &str = "
domain: edge
descriptors:
  - key: user_id
    rate_limit: { limit: 5, period: 1s }
  - key: watched
    shadow_mode: true
    rate_limit: { limit: 1, period: 1h, algorithm: sliding_window_log, name: hourly }
";

fn simulate(args: &[&str], trace: &str) -> Printed {
    simulate_by(LIMITS, args, trace)
}

fn simulate_by(limits: &str, args: &[&str], trace: &str) -> Printed {
    let folder = limits_folder(&[limits]);
    let limits = folder.path().to_str().unwrap();
    let fixed = ["simulate", "--limits", limits, "--trace", "-"];
    printed(Tidegate::run(&[&fixed, args].concat(), trace))
}

/// A line of a trace, `at_ms` after a whole second.
fn trace_line(at_ms: u64, more: &str) -> String {
    let at_ms = 1_700_000_000_000 + at_ms;
    format!("{{\"at_ms\":{at_ms},\"domain\":\"edge\",{more}}}\n")
}

const USER: &str = r#""descriptors":[{"entries":[["user_id","42"]]}]"#;

#[test]
fn every_request_has_a_line_with_its_decision() {
    let nothing = r#""descriptors":[{"entries":[["nothing","x"]]},{"entries":[["user_id","7"]]}]"#;
    let trace = trace_line(250, USER)
        + "\n"
        + &trace_line(250, &format!("{USER},\"hits\":6"))
        + &trace_line(300, &format!("{USER},\"hits\":5"))
        + &trace_line(300, nothing);
    let printed = simulate(&[], &trace);
    assert_eq!((printed.code, printed.err.as_str()), (0, ""));
    let lines: Vec<Value> =
        printed.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let status = |within: bool, remaining: u64, reset_after_ms: u64, retry_after_ms: i64| {
        json!({ "within_limit": within, "limit": 5, "remaining": remaining,
            "reset_after_ms": reset_after_ms, "retry_after_ms": retry_after_ms, "delay_ms": 0 })
    };
    let decision = |allowed: bool, statuses: Value| json!({ "allowed": allowed, "delay_ms": 0, "statuses": statuses });
    assert_eq!(
        lines,
        [
            decision(true, json!([status(true, 4, 750, 0)])),
            decision(false, json!([status(false, 4, 750, -1)])),
            decision(false, json!([status(false, 4, 700, 700)])),
            decision(true, json!([null, status(true, 4, 700, 0)])),
        ]
    );
}

#[test]
fn peeks_and_refunds_of_a_trace_are_replayed() {
    let hits = r#""descriptors":[{"entries":[["user_id","42"]],"hits":3}],"hits":1"#;
    let trace = trace_line(0, hits)
        + &trace_line(1, &format!("{USER},\"peek\":true"))
        + &trace_line(2, &format!("{USER},\"refund\":true"));
    let printed = simulate(&[], &trace);
    let remaining = printed.out.lines().map(|line| {
        let decision: Value = serde_json::from_str(line).unwrap();
        decision["statuses"][0]["remaining"].as_u64().unwrap()
    });
    assert_eq!(remaining.collect::<Vec<_>>(), [2, 2, 3], "{}", printed.err);
}

#[test]
fn a_summary_is_a_table_by_rule() {
    let watched = r#""descriptors":[{"entries":[["watched","x"]]}]"#;
    let mut trace: String = (0..7).map(|at_ms| trace_line(at_ms, USER)).collect();
    trace += &(0..3).map(|at_ms| trace_line(at_ms, watched)).collect::<String>();
    let printed = simulate(&["--summary"], &trace);
    assert_eq!((printed.code, printed.err.as_str()), (0, ""));
    let cells: Vec<Vec<&str>> =
        printed.out.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(
        cells,
        [
            vec!["DOMAIN", "RULE", "ALLOWED", "REJECTED", "SHADOW", "REJECTED"],
            vec!["edge", "hourly", "1", "0", "2"],
            vec!["edge", "user_id", "5", "2", "0"],
            vec!["requests", "8", "2", "0"],
        ]
    );
}

#[test]
fn an_invalid_line_stops_the_replay_and_is_named() {
    let bad = [
        ("not JSON\n".to_owned(), "expected"),
        (trace_line(0, &format!("{USER},\"colour\":1")), "unknown field `colour`"),
        (
            trace_line(0, r#""descriptors":[{"entries":[["a","b"]],"hit":1}]"#),
            "unknown field `hit`",
        ),
        (trace_line(0, r#""descriptors":[]"#), "descriptors: "),
        (
            trace_line(0, r#""descriptors":[{"entries":[["","b"]]}]"#),
            "descriptors[0].entries[0].key",
        ),
        (trace_line(0, r#""descriptors":[{"entries":[["a"]]}]"#), "invalid length 1"),
        (trace_line(0, &format!("{USER},\"peek\":true,\"refund\":true")), "peek and refund"),
        (trace_line(0, &format!("{USER},\"hits\":-1")), "invalid value"),
        ("{\"at_ms\":1,\"domain\":\"edge\"}\n".to_owned(), "missing field `descriptors`"),
        (format!("{{\"at_ms\":{},\"domain\":\"edge\",{USER}}}\n", u64::MAX), "at_ms"),
    ];
    for (line, reason) in bad {
        let printed = simulate(&[], &(trace_line(0, USER) + "\n" + &line + &trace_line(0, USER)));
        assert_eq!(printed.code, 1, "{line}");
        assert!(
            printed.err.contains("line 3: ") && printed.err.contains(reason),
            "{line}: {}",
            printed.err
        );
        assert_eq!(printed.out.lines().count(), 1, "what came before is decided: {}", printed.out);
    }
}

#[test]
fn a_trace_may_be_a_file_and_must_exist() {
    let folder = limits_folder(&[LIMITS]);
    let limits = folder.path().join("limits-0.yaml");
    let trace = folder.path().join("trace.jsonl");
    let args = ["simulate", "--limits", limits.to_str().unwrap(), "--trace"];
    let args = [&args[..], &[trace.to_str().unwrap()]].concat();
    let missing = run(&args);
    assert_eq!(missing.code, 1);
    assert!(missing.err.contains("trace.jsonl"), "{}", missing.err);
    // The last line may lack its line end.
    fs::write(&trace, trace_line(0, USER).trim_end()).unwrap();
    let found = run(&args);
    assert_eq!((found.code, found.out.lines().count()), (0, 1), "{}", found.err);
}

#[test]
fn an_unreachable_store_ends_the_replay() {
    let url = format!("redis://127.0.0.1:{}", free_port());
    let printed = simulate(&["--store", &url], &trace_line(0, USER));
    assert_eq!((printed.code, printed.out.as_str()), (1, ""));
    assert!(printed.err.contains("--store"), "{}", printed.err);
}

#[test]
fn a_store_that_cannot_decide_stops_the_replay_under_any_policy() {
    let full = RedisServer::start_with(Version::Redis70, &["--maxmemory", "1"]);
    let read = trace_line(0, &format!("{USER},\"peek\":true"));
    let trace = read + "\n" + &trace_line(1, USER) + &trace_line(2, USER);
    for policy in ["local", "allow", "deny", "error"] {
        let limits = format!("{LIMITS}on_store_failure: {policy}\n");
        let url = full.url();
        let lines = simulate_by(&limits, &["--store", &url], &trace);
        let summary = simulate_by(&limits, &["--store", &url, "--summary"], &trace);
        for printed in [&lines, &summary] {
            assert_eq!(printed.code, 1, "{policy}: {}{}", printed.out, printed.err);
            let reported = printed.err.contains("line 3: ") && printed.err.contains("OOM");
            assert!(reported, "{policy}: {}", printed.err);
        }
        assert_eq!(lines.out.lines().count(), 1, "only the read is decided: {}", lines.out);
        assert_eq!(summary.out, "", "{policy}");
    }
}

#[tokio::test]
async fn the_decision_log_of_a_service_can_be_replayed() {
    let always = ["--decision-log-sample", "1", "--decision-log-rate", "1000000"];
    let args = [&always[..], &["--log-format", "json"]].concat();
    let served = Served::with(&[LIMITS], &args);
    let caller = served.caller().await;
    for _ in 0..7 {
        caller.check(&request("edge").about("user_id", "a,b").about("x", "y")).await.unwrap();
    }
    caller.check(&request("edge").about("watched", "w").taking(3)).await.unwrap();
    caller.check(&request("elsewhere").about("user_id", "z")).await.unwrap();
    let decided =
        || Some(()).filter(|()| served.tidegate.log().matches("\"decided\"").count() == 9);
    wait_until(Duration::from_secs(30), decided)
        .unwrap_or_else(|| panic!("{}", served.tidegate.log()));
    let printed = simulate_by(LIMITS, &["--summary"], &served.tidegate.log());
    assert_eq!((printed.code, printed.err.as_str()), (0, ""));
    let total: Vec<_> = printed.out.lines().last().unwrap().split_whitespace().collect();
    assert_eq!(total[0], "requests");
    let counts: Vec<u64> = total[1..3].iter().map(|count| count.parse().unwrap()).collect();
    assert_eq!(counts.iter().sum::<u64>(), 9, "{}", printed.out);
    assert!(counts[1] <= 2, "5 a second: a window may end meanwhile: {}", printed.out);
}

#[test]
fn lines_of_the_decision_log_that_are_not_whole_are_skipped_and_counted() {
    let whole = r#"{"timestamp":"2026-01-02T03:04:05.250Z","target":"tidegate::decision","domain":"edge","descriptors":[{"entries":"user_id=42","hits":6,"limits":[]}],"descriptors_count":1,"decision":"rejected"}"#;
    let part = whole.replace("\"descriptors_count\":1", "\"descriptors_count\":40");
    let pairs = whole
        .replace("\"user_id=42\"", "[[\"user_id\",\"42\"]]")
        .replace("\"hits\":6", "\"hits\":2");
    let other = r#"{"timestamp":"2026-01-02T03:04:05Z","level":"INFO","message":"grpc on x","target":"tidegate"}"#;
    let trace = [other, whole, &part, &pairs].join("\n");
    let printed = simulate(&[], &trace);
    assert_eq!(printed.code, 0, "{}", printed.err);
    assert!(
        printed.err.starts_with("warning: 1 lines of the decision log were skipped"),
        "{}",
        printed.err
    );
    let decisions: Vec<Value> =
        printed.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let told =
        |at: usize| (&decisions[at]["allowed"], &decisions[at]["statuses"][0]["reset_after_ms"]);
    assert_eq!(decisions.len(), 2);
    assert_eq!([told(0), told(1)], [(&json!(false), &json!(750)), (&json!(true), &json!(750))]);
    let bad = whole.replace("2026-01-02T", "yesterday ");
    let printed = simulate(&[], &bad);
    assert!(printed.code == 1 && printed.err.contains("line 1: timestamp: "), "{}", printed.err);
}
