//! The log: lines for people, or objects for what collects them.
#![allow(clippy::unwrap_used)] // a test's helpers may end the test

use std::time::Duration;

use serde_json::Value;

use crate::support::client::Served;
use crate::support::process::wait_until;
use crate::support::servers::free_port;
use crate::support::tidegate::Tidegate;

/// For a line of the log.
const DEADLINE: Duration = Duration::from_secs(10);

const EDGE: &str = "
domain: edge
descriptors:
  - key: user
    rate_limit: { limit: 2, period: 36500d, name: per_user }
";

/// The lines of a log that is JSON and nothing else.
fn lines(served: &Served) -> Vec<Value> {
    let log = served.tidegate.log();
    let parse = |line: &str| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
    log.lines().map(parse).collect()
}

#[test]
fn what_is_no_terminal_gets_json_with_a_moment_a_level_and_a_message() {
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
fn causes_are_fields_and_secrets_are_nowhere() {
    let store = format!("redis://user:hunter2-secret@127.0.0.1:{}", free_port());
    let args = ["--log-format", "json", "--log", "debug", "--store", &store];
    let served = Served::with(&[EDGE], &args);
    let told = || lines(&served).into_iter().find(|line| line["level"] == "WARN");
    let line = wait_until(DEADLINE, told).expect("a line about the store");
    assert!(line["error"].is_string() || line["message"].is_string(), "{line}");
    assert!(!served.tidegate.log().contains("hunter2"));
}

#[test]
fn another_format_is_refused() {
    let output = Tidegate::run(&["serve", "--limits", "x", "--log-format", "xml"], "");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("is not one of auto, text, json"), "{stderr}");
}

#[test]
fn what_ends_the_service_is_the_last_line_in_the_form_of_the_others() {
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
    assert!(log.lines().last().unwrap().starts_with("tidegate: /no/such/file"), "{log}");
}
