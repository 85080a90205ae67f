//! `tidegate bench`: the requests it sends and the output.

use std::net::SocketAddr;

use serde_json::{Value, json};

use super::{Printed, run};
use crate::support::client::{Served, request};
use crate::support::servers::free_port;

const FIFTY: &str = "
domain: edge
descriptors:
  - key: user
    rate_limit: { limit: 50, period: 36500d }
  - key: hot
    value: \"yes-*\"
    rate_limit: { limit: 0, period: 1h }
";

fn bench(addr: SocketAddr, args: &[&str]) -> Printed {
    let addr = addr.to_string();
    run(&[&["bench", "--addr", &addr, "--domain", "edge"], args].concat())
}

fn result(served: &Served, args: &[&str]) -> Value {
    let printed = bench(served.tidegate.grpc, &[args, &["--json"]].concat());
    assert_eq!((printed.code, printed.err.as_str()), (0, ""));
    serde_json::from_str(&printed.out).unwrap()
}

#[test]
fn bench_counts_every_request_in_both_modes() {
    let served = Served::with_limits(FIFTY);
    for (user, mode) in [("user=closed", "--in-flight=16"), ("user=open", "--rate=2000")] {
        let result = result(&served, &[user, mode, "--requests", "200"]);
        assert_eq!(result["allowed"], json!(50), "{result}");
        assert_eq!(result["over_limit"], json!(150), "{result}");
        assert_eq!(result["errors"], json!({}), "{result}");
        assert_eq!((&result["requests"], &result["sent"]), (&json!(200), &json!(200)));
        let latency = |name: &str| result["latency_us"][name].as_f64().unwrap();
        assert!(latency("p50") > 0.0 && latency("p50") <= latency("p99.9"), "{result}");
        assert!(latency("p99.9") <= latency("max"), "{result}");
    }
}

#[tokio::test]
async fn bench_takes_the_given_number_of_hits() {
    let served = Served::with_limits(FIFTY);
    result(&served, &["user=42", "--requests=3", "--hits=5"]);
    assert_eq!(served.caller().await.remaining(&request("edge").about("user", "42")).await, 35);
}

#[tokio::test]
async fn bench_draws_a_sequence_over_all_connections() {
    let served = Served::with_limits(FIFTY);
    result(&served, &["user=u{seq:10}", "--requests=100", "--connections=3", "--in-flight=7"]);
    let caller = served.caller().await;
    for user in 0..10 {
        let user = request("edge").about("user", format!("u{user}"));
        assert_eq!(caller.remaining(&user).await, 40);
    }
}

#[test]
fn bench_mixes_values_by_their_shares() {
    let served = Served::with_limits(FIFTY);
    let result = result(&served, &["hot={mix:90:yes-{uniform:9}|no}", "--requests=2000"]);
    let over_limit = result["over_limit"].as_u64().unwrap();
    assert!((1_700..1_900).contains(&over_limit), "{result}");
}

#[test]
fn bench_measures_for_the_given_time() {
    let served = Served::with_limits(FIFTY);
    let result = result(&served, &["user={seq}", "--duration=1s", "--warmup=100ms"]);
    let seconds = result["seconds"].as_f64().unwrap();
    assert!((0.15..5.0).contains(&seconds), "{result}");
    assert!(result["sent"].as_u64() > result["requests"].as_u64(), "{result}");
}

#[test]
fn bench_prints_one_line_per_figure() {
    let served = Served::with_limits(FIFTY);
    let printed = bench(served.tidegate.grpc, &["user=1", "--requests=60"]);
    let lines: Vec<_> = printed.out.lines().collect();
    assert!(lines[0].starts_with("requests    60 in "), "{}", printed.out);
    assert_eq!(lines[2..5], ["allowed     50", "over limit  10", "errors      0"]);
    assert!(lines[5].starts_with("p50 ") && lines[5].ends_with(" us"), "{}", printed.out);
}

#[test]
fn bench_counts_refusals_by_their_code() {
    let served = Served::with(&[FIFTY], &["--max-descriptors", "1"]);
    let result = result(&served, &["user=1", "user=2", "--requests=10"]);
    assert_eq!(result["errors"], json!({ "INVALID_ARGUMENT": 10 }));
}

#[test]
fn bench_reports_mistakes_and_exits_with_2() {
    let nobody = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let printed = bench(nobody, &["user=1"]);
    assert_eq!(printed.code, 2);
    let expected = format!("error: no service at {nobody}: Connection refused (os error 111); ");
    assert!(printed.err.starts_with(&expected), "{}", printed.err);
    let printed = bench(nobody, &["user={unifrm:3}"]);
    assert_eq!(printed.code, 2);
    let expected = "error: descriptor user={unifrm:3}: {unifrm:3} is not one of {uniform:N}, ";
    assert!(printed.err.starts_with(expected), "{}", printed.err);
    let printed = bench(nobody, &["user=1", "--rate=0"]);
    assert!(printed.err.contains("must be a whole number from 1 to 1000000"), "{}", printed.err);
}
