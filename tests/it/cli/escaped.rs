//! Text from callers cannot move the cursor or reorder what a terminal shows.

use serde_json::Value;

use super::run;
use crate::support::client::{Served, request};
use crate::support::process::wait_until;

/// A right-to-left override, an isolate, a separator of lines, and an escape sequence.
const HOSTILE: &str = "a\u{202e}b\u{2066}c\u{2028}d\u{1b}[2J\u{9b}e";

const LIMITS: &str =
    "{domain: edge, descriptors: [{key: user, rate_limit: {limit: 1, period: 36500d}}]}";

fn is_harmless(text: &str) -> bool {
    !text.contains(['\u{202e}', '\u{2066}', '\u{2028}', '\u{1b}', '\u{9b}'])
}

#[tokio::test]
async fn query_top_and_logs_escape_control_and_format_characters() {
    let served = Served::with(&[LIMITS], &["--decision-log-sample", "1"]);
    let entry = format!("user={HOSTILE}");
    let addr = served.tidegate.grpc.to_string();
    for _ in 0..2 {
        let printed = run(&["query", "--addr", &addr, "--domain", "edge", &entry]);
        assert!(is_harmless(&printed.out), "{:?}", printed.out);
        assert!(
            printed.out.contains("a\\u{202e}b\\u{2066}c\\u{2028}d\\u{1b}[2J"),
            "{}",
            printed.out
        );
    }
    let top = run(&["top", "--addr", &served.tidegate.http.to_string()]);
    assert!(is_harmless(&top.out) && top.out.contains("a\\u{202e}b"), "{:?}", top.out);
    let caller = served.caller().await;
    caller.check(&request(HOSTILE).about("user", "1")).await.unwrap();
    let decisions = || {
        let log = served.tidegate.log();
        let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        Some(lines.collect::<Vec<_>>()).filter(|lines| lines.len() >= 3)
    };
    let lines = wait_until(std::time::Duration::from_secs(30), decisions).expect("three decisions");
    let log = served.tidegate.log();
    assert!(is_harmless(&log), "{log:?}");
    assert!(lines.iter().any(|line| line["domain"] == HOSTILE), "a parser reads it as it was");
}

#[test]
fn the_log_escapes_names_of_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a\u{202e}\u{1b}[2J\u{9b}.yaml");
    std::fs::write(&path, LIMITS.replace("limit: 1", "lmit: 1")).unwrap();
    let path = path.to_str().unwrap();
    let addrs = ["--grpc-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0"];
    for format in ["text", "json"] {
        let printed =
            run(&[&["serve", "--limits", path, "--log-format", format], &addrs[..]].concat());
        assert!(printed.err.contains("unknown key"), "{}", printed.err);
        assert!(is_harmless(&printed.err), "{:?}", printed.err);
    }
}
