//! Commands at a terminal, their end by Ctrl-C, and output that nobody reads.

use std::io::Write;

use serde_json::Value;

use super::{EDGE, run};
use crate::support::client::{Served, limits_folder};
use crate::support::terminal::{Running, run_unread};

/// A limits file without a bound worth mentioning.
const FREE: &str =
    "{domain: edge, descriptors: [{key: user, rate_limit: {limit: 4000000000, period: 36500d}}]}";

fn trace(lines: usize) -> String {
    let line = |at: usize| {
        format!(
            "{{\"at_ms\":{},\"domain\":\"edge\",\"descriptors\":[{{\"entries\":[[\"user\",\"42\"]]}}]}}\n",
            1_700_000_000_000 + at
        )
    };
    (0..lines).map(line).collect()
}

#[test]
fn output_that_nobody_reads_is_no_error() {
    let served = Served::with_limits(EDGE);
    let (grpc, http) = (served.tidegate.grpc.to_string(), served.tidegate.http.to_string());
    let limits = served.limits().to_str().unwrap();
    let request = ["--addr", &grpc, "--domain", "edge", "user=1"];
    let trace = trace(20_000);
    for (args, input) in [
        ([&["query"], &request[..]].concat(), ""),
        ([&["bench", "--requests", "5"], &request[..]].concat(), ""),
        (vec!["top", "--addr", &http], ""),
        (vec!["top", "--watch=10ms", "--addr", &http], ""),
        (vec!["check", limits], ""),
        (vec!["check", limits, "--json"], ""),
        (vec!["simulate", "--limits", limits, "--trace", "-"], &trace),
        (vec!["simulate", "--limits", limits, "--trace", "-", "--summary"], &trace),
        (vec!["completions", "bash"], ""),
        (vec!["man"], ""),
        (vec!["serve", "--help"], ""),
    ] {
        let ended = run_unread(&args, input);
        assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""), "{args:?}");
    }
}

#[test]
fn bench_shows_its_progress_and_prints_the_results_so_far_on_ctrl_c() {
    let served = Served::with_limits(FREE);
    let addr = served.tidegate.grpc.to_string();
    let args = ["bench", "--addr", &addr, "--domain", "edge", "user=1", "--duration", "10m"];
    let bench = Running::at_terminal(&[&args[..], &["--warmup", "1ms", "--json"]].concat());
    let is_answered = |shown: &str| shown.contains(" a second, ") && !shown.starts_with("0 ");
    bench.wait_for(|_, err| err.split(" s of 600 s: ").skip(1).any(is_answered));
    bench.signal("INT");
    let ended = bench.end();
    assert_eq!(ended.code, Some(130), "{ended:?}");
    let result: Value = serde_json::from_str(&ended.out).unwrap();
    assert!(result["requests"].as_u64().unwrap() > 0, "{result}");
    assert_eq!(result["errors"], serde_json::json!({}));
    let last = "\r\u{1b}[Kinterrupted: these are the results so far\r\n";
    assert!(ended.err.ends_with(last), "{:?}", ended.err);
}

#[test]
fn a_bench_may_last_longer_than_a_minute() {
    let help = run(&["bench", "--duration", "31d", "--domain", "edge", "user=1"]);
    assert!(help.err.contains("must be from 1ms to 30d"), "{}", help.err);
    let nobody = format!("127.0.0.1:{}", crate::support::servers::free_port());
    let args = ["bench", "--addr", &nobody, "--domain", "edge", "user=1", "--duration", "2h"];
    let printed = run(&[&args[..], &["--warmup", "2m"]].concat());
    assert!(printed.err.starts_with("error: no service at "), "{}", printed.err);
}

#[test]
fn bench_goes_on_when_the_service_closes_its_connections() {
    let served = Served::with(&[FREE], &["--max-connection-age", "50ms"]);
    let addr = served.tidegate.grpc.to_string();
    let args = ["bench", "--addr", &addr, "--domain", "edge", "user={seq}", "--json"];
    for mode in [&["--in-flight", "16"][..], &["--rate", "500"]] {
        let time = ["--duration", "1s", "--warmup", "1ms", "--connections", "2"];
        let printed = run(&[&args[..], &time, mode].concat());
        assert_eq!((printed.code, printed.err.as_str()), (0, ""), "{mode:?}");
        let result: Value = serde_json::from_str(&printed.out).unwrap();
        assert_eq!(result["errors"], serde_json::json!({}), "{mode:?}");
        assert!(result["seconds"].as_f64().unwrap() > 0.5, "{mode:?}: {result}");
    }
}

#[test]
fn simulate_prints_the_results_so_far_on_ctrl_c() {
    let folder = limits_folder(&[FREE]);
    let limits = folder.path().to_str().unwrap();
    for (signal, code) in [("INT", 130), ("TERM", 143)] {
        let args = ["simulate", "--limits", limits, "--trace", "-", "--summary"];
        let mut simulate = Running::piped(&args);
        let mut stdin = simulate.stdin();
        // More than the pipe and the lines read ahead can hold: thousands are decided.
        stdin.write_all(trace(5_000).as_bytes()).unwrap();
        simulate.signal(signal);
        let ended = simulate.end();
        assert_eq!(ended.code, Some(code), "{ended:?}");
        assert!(ended.err.starts_with("interrupted: these are the first "), "{ended:?}");
        let last = ended.out.lines().last().unwrap_or_else(|| panic!("{ended:?}"));
        let allowed: u64 = last.split_whitespace().nth(1).unwrap().parse().unwrap();
        assert!((1_000..=5_000).contains(&allowed), "{last}");
    }
}

#[test]
fn simulate_shows_its_progress_at_a_terminal() {
    let folder = limits_folder(&[FREE]);
    let limits = folder.path().to_str().unwrap();
    let mut simulate =
        Running::at_terminal(&["simulate", "--limits", limits, "--trace", "-", "--summary"]);
    let mut stdin = simulate.stdin();
    let lines = trace(1_000);
    std::thread::spawn(move || while stdin.write_all(lines.as_bytes()).is_ok() {});
    simulate.wait_for(|_, err| err.contains(" requests replayed"));
    simulate.signal("INT");
    let ended = simulate.end();
    assert_eq!(ended.code, Some(130), "{ended:?}");
    assert!(ended.out.starts_with("DOMAIN"), "{ended:?}");
}

#[test]
fn top_watches_until_ctrl_c() {
    let served = Served::with_limits(EDGE);
    let addr = served.tidegate.http.to_string();
    let top = Running::piped(&["top", "--addr", &addr, "--watch=50ms"]);
    top.wait_for(|out, _| {
        out.matches("nothing was rejected in the last 10 to 20 seconds").count() >= 3
    });
    top.signal("INT");
    let ended = top.end();
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""));
}

fn serve(limits: &str) -> [&str; 9] {
    let ports = ["127.0.0.1:0", "127.0.0.1:0"];
    [
        "serve",
        "--limits",
        limits,
        "--grpc-addr",
        ports[0],
        "--http-addr",
        ports[1],
        "--drain-delay",
        "10m",
    ]
}

#[test]
fn ctrl_c_at_a_terminal_ends_the_service_at_once_if_nobody_is_connected() {
    let folder = limits_folder(&[EDGE]);
    let service = Running::at_terminal(&serve(folder.path().to_str().unwrap()));
    service.wait_for(|_, err| err.contains("grpc on ") && err.contains("http on "));
    service.signal("INT");
    let ended = service.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
}

#[test]
fn ctrl_c_waits_for_callers_and_without_a_terminal_for_load_balancers() {
    let folder = limits_folder(&[EDGE]);
    let limits = folder.path().to_str().unwrap();
    let leaves = "ending: not ready from now on, in 600s no more calls";
    let elsewhere = Running::piped(&serve(limits));
    elsewhere.wait_for(|_, err| err.contains("http on "));
    elsewhere.signal("INT");
    elsewhere.wait_for(|_, err| err.contains(leaves));
    let at_terminal = Running::at_terminal(&serve(limits));
    at_terminal.wait_for(|_, err| err.contains("http on "));
    let addr = std::cell::RefCell::new(String::new());
    at_terminal.wait_for(|_, err| {
        let Some(rest) = err.split("http on ").nth(1) else { return false };
        *addr.borrow_mut() = rest.split_whitespace().next().unwrap_or("").to_owned();
        true
    });
    let addr = anstream::adapter::strip_str(&addr.borrow()).to_string();
    let mut caller = std::net::TcpStream::connect(&addr).unwrap_or_else(|e| panic!("{addr}: {e}"));
    // An answer shows that the connection is accepted.
    caller.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    let mut first = [0];
    std::io::Read::read_exact(&mut caller, &mut first).unwrap();
    at_terminal.signal("INT");
    at_terminal.wait_for(|_, err| err.contains(leaves));
}
