//! The command line, as people and scripts use it.

mod bench;
mod check;
mod complete;
mod dial;
mod escaped;
mod migrate;
mod reset;
mod secrets;
mod simulate;
mod terminal;

use std::fs;
use std::net::TcpListener;
use std::process::Output;

use clap::CommandFactory;
use serde_json::{Value, json};
use tidegate::settings::Cli;

use crate::support::client::{Served, limits_folder};
use crate::support::servers::free_port;
use crate::support::tidegate::Tidegate;

const EDGE: &str = "
domain: edge
descriptors:
  - key: user
    rate_limit: { limit: 3, period: 36500d, name: per_user }
  - key: tenant
    descriptors:
      - key: path
        value: /login
        rate_limit: { limit: 1, period: 1h, algorithm: sliding_window_log }
";

/// The output of a command that ended.
struct Printed {
    code: i32,
    out: String,
    err: String,
}

fn printed(output: Output) -> Printed {
    Printed {
        code: output.status.code().expect("it ended by itself"),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

fn run(args: &[&str]) -> Printed {
    printed(Tidegate::run(args, ""))
}

fn query(served: &Served, args: &[&str]) -> Printed {
    let addr = served.tidegate.grpc.to_string();
    run(&[&["query", "--addr", &addr, "--domain", "edge"], args].concat())
}

#[test]
fn query_exits_with_the_decision() {
    let served = Served::with_limits(EDGE);
    let login = "tenant=acme,path=/login";
    let allowed = query(&served, &[login]);
    assert_eq!(allowed.code, 0, "{}", allowed.err);
    assert!(allowed.out.starts_with("allowed\n"), "{}", allowed.out);
    assert!(allowed.out.contains("tenant/path=/login"), "{}", allowed.out);
    let rejected = query(&served, &[login]);
    assert_eq!((rejected.code, rejected.err.as_str()), (1, ""));
    assert!(rejected.out.starts_with("rejected, would pass in 59m59s"), "{}", rejected.out);
    assert_eq!(query(&served, &[login, "--peek"]).code, 1);
    let free = query(&served, &["nothing=x"]);
    assert_eq!(free.code, 0);
    assert!(free.out.contains("no limit applies to these descriptors"), "{}", free.out);
}

#[test]
fn query_takes_refunds_and_peeks() {
    let served = Served::with_limits(EDGE);
    let remaining = |args: &[&str]| {
        let printed = query(&served, &[args, &["--json", "user=42"]].concat());
        let answer: Value = serde_json::from_str(&printed.out).unwrap();
        assert_eq!(answer["allowed"], json!(printed.code == 0));
        answer["statuses"][0]["remaining"].as_u64().unwrap()
    };
    assert_eq!(remaining(&[]), 2);
    assert_eq!(remaining(&["--peek"]), 2);
    assert_eq!(remaining(&["--hits", "2"]), 0);
    assert_eq!(remaining(&["--refund"]), 1);
    assert_eq!(remaining(&["--refund", "--hits", "2"]), 3);
}

#[test]
fn query_peeks_at_the_decision_that_a_check_would_get() {
    let yaml = "{domain: edge, descriptors: [{key: model, quota_mode: true, \
        rate_limit: {limit: 2, period: 36500d}}]}";
    let served = Served::with_limits(yaml);
    assert_eq!(query(&served, &["--hits", "2", "model=a"]).code, 0);
    let both = ["model=a", "model=b"];
    let peek = query(&served, &[&["--peek"], &both[..]].concat());
    assert_eq!((peek.code, peek.out.lines().next()), (0, Some("allowed")), "{}", peek.out);
    assert_eq!(query(&served, &both).code, 0, "one quota has room");
    assert_eq!(query(&served, &["model=b"]).code, 0);
    for args in [&["--peek"][..], &[]] {
        let printed = query(&served, &[args, &both[..]].concat());
        assert_eq!(printed.code, 1, "{args:?}: none has room: {}", printed.out);
    }
}

#[test]
fn query_prints_json_for_scripts() {
    let served = Served::with_limits(EDGE);
    let printed = query(&served, &["--json", "user=42", "nothing=x"]);
    let mut answer: Value = serde_json::from_str(&printed.out).unwrap();
    let reset_after_ms = answer["statuses"][0]["reset_after_ms"].take();
    assert!(reset_after_ms.as_u64().unwrap() > 0);
    assert_eq!(
        answer,
        json!({
            "allowed": true, "delay_ms": 0, "retry_after_ms": null, "source": "store",
            "statuses": [{
                "entries": [["user", "42"]], "rule": "per_user", "within_limit": true, "limit": 3, "burst": 3,
                "remaining": 2, "reset_after_ms": null, "retry_after_ms": null,
                "period_ms": 36_500_u64 * 86_400_000, "algorithm": "fixed_window",
                "shadow": false, "unlimited": false,
            }],
            "explanations": [
                { "entries": [["user", "42"]], "match": "limited", "path": "user", "detail": "" },
                { "entries": [["nothing", "x"]], "match": "no_rule", "path": "",
                    "detail": "no rule has the key \"nothing\" here; known are tenant, user" },
            ],
        })
    );
}

#[test]
fn query_prints_the_wait_for_programs_and_null_if_there_is_none() {
    let yaml = "{domain: edge, descriptors: [{key: closed, rate_limit: {limit: 0, period: 1h}}, \
        {key: user, rate_limit: {limit: 1, period: 1h, algorithm: sliding_window_log}}]}";
    let retry_ms = |served: &Served, args: &[&str]| {
        let printed = query(served, &[args, &["--json"]].concat());
        let reported: Value = serde_json::from_str(&printed.out).unwrap();
        (reported["retry_after_ms"].clone(), reported["statuses"][0]["retry_after_ms"].clone())
    };
    let none = (Value::Null, Value::Null);
    let served = Served::with_limits(yaml);
    assert_eq!(retry_ms(&served, &["user=a"]), none, "it passes");
    let wait = retry_ms(&served, &["user=a"]).1.as_i64().unwrap();
    assert!((1..=3_600_000).contains(&wait), "{wait}");
    assert_eq!(retry_ms(&served, &["closed=a"]), none, "it never passes");
    let without_redis = without_redis(yaml, "deny");
    assert_eq!(retry_ms(&without_redis, &["user=a"]), none, "nobody knows");
}

/// A service whose Redis does not run.
fn without_redis(yaml: &str, policy: &str) -> Served {
    let nobody = format!("redis://127.0.0.1:{}", free_port());
    Served::with(&[yaml], &["--store", &nobody, "--on-store-failure", policy])
}

#[test]
fn query_says_which_rule_applied_and_why_none_did() {
    let served = Served::with_limits(EDGE);
    let lines = |domain: &str, args: &[&str]| {
        let addr = served.tidegate.grpc.to_string();
        let printed = run(&[&["query", "--addr", &addr, "--domain", domain], args].concat());
        assert_eq!((printed.code, printed.err.as_str()), (0, ""));
        printed.out.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let nothing = "no limit applies to these descriptors";
    let unknown = "no limits file has the domain \"egde\"; did you mean \"edge\"";
    assert_eq!(lines("egde", &["user=42", "tenant=acme"]), ["allowed", nothing, unknown]);
    for args in [&["usr=42"][..], &["usr=42", "--peek"], &["usr=42", "--refund"]] {
        let why = "usr=42: no rule has the key \"usr\" here; did you mean \"user\"";
        assert_eq!(lines("edge", args), ["allowed", nothing, why], "{args:?}");
    }
    let why = "tenant=acme: exempt by the rule tenant: the rule has no limit itself; its limits are \
               nested below, under path";
    assert_eq!(lines("edge", &["tenant=acme"]), ["allowed", nothing, why]);
    let both = lines("edge", &["user=42", "tenant=acme,path=/logn"]);
    assert!(both[2].starts_with("user=42     per_user (user)  yes "), "{both:?}");
    let why = "tenant=acme,path=/logn: after the rule tenant, no rule of the key \"path\" has this value; \
               did you mean \"/login\"";
    assert_eq!(both[3..], [why]);
}

#[test]
fn query_says_that_the_answer_is_that_of_a_fallback() {
    for (policy, decision) in [("local", "allowed"), ("deny", "rejected")] {
        let printed = query(&without_redis(EDGE, policy), &["user=42"]);
        let first = format!("{decision}; the store did not answer, so --on-store-failure decided");
        assert_eq!(printed.out.lines().next(), Some(&*first), "{}", printed.out);
    }
}

#[test]
fn query_without_a_decision_exits_with_2() {
    let nobody = format!("127.0.0.1:{}", free_port());
    let printed = run(&["query", "--addr", &nobody, "--domain", "edge", "user=42"]);
    assert_eq!((printed.code, printed.out.as_str()), (2, ""));
    assert!(printed.err.contains(&nobody) && printed.err.contains("refused"), "{}", printed.err);
    let served = Served::with_limits(EDGE);
    let printed = query(&served, &["user=42", &format!("user={}", "x".repeat(5_000))]);
    assert_eq!((printed.code, printed.out.as_str()), (2, ""));
    assert!(printed.err.contains("descriptors[1].entries[0].value"), "{}", printed.err);
    for bad in [&["user"][..], &["=42"], &[], &["user=42", "--peek", "--refund"], &["--hits", "x"]]
    {
        let printed = query(&served, bad);
        assert_eq!((printed.code, printed.out.as_str()), (2, ""), "{bad:?}");
        assert!(printed.err.contains("error: "), "{bad:?}: {}", printed.err);
    }
    assert_eq!(run(&["query", "--addr", "no address", "--domain", "edge", "user=42"]).code, 2);
}

#[test]
fn serve_that_cannot_start_ends_at_once_with_the_reason() {
    let folder = limits_folder(&[EDGE]);
    let limits = folder.path().to_str().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let bad = limits_folder(&["domain: edge\ndescriptors: 5\n"]);
    let bad_file = bad.path().join("limits-0.yaml:2:14").to_str().unwrap().to_owned();
    let bad = bad.path().to_str().unwrap();
    let free = "127.0.0.1:0";
    let cases: [(&[&str], &str); 9] = [
        (&["--limits", limits, "--grpc-addr", &taken, "--http-addr", free], "--grpc-addr"),
        (&["--limits", limits, "--grpc-addr", free, "--http-addr", &taken], "--http-addr"),
        (&["--limits", limits, "--no-such-flag"], "--no-such-flag"),
        (&["--limits", limits, "--grpc-addr", "nowhere"], "--grpc-addr"),
        (&["--limits", limits, "--store-timeout", "15"], "has no unit"),
        (&["--limits", limits, "--store", "mysql://x"], "redis://"),
        (&["--limits", limits, "--max-descriptors", "0"], "--max-descriptors"),
        (&["--limits", bad], &bad_file),
        (&[], "--limits"),
    ];
    for (args, reason) in cases {
        let printed = run(&[&["serve"], args].concat());
        assert!(printed.code != 0, "{args:?}");
        assert!(printed.err.contains(reason), "{args:?}: {}", printed.err);
    }
}

#[test]
fn serve_ends_with_0_on_sigterm() {
    let mut served = Served::with_limits(EDGE);
    let status = served.tidegate.terminate();
    assert_eq!(status.code(), Some(0), "{}", served.tidegate.log());
}

#[test]
fn help_of_each_command_mentions_every_flag_and_variable() {
    let mut flags = 0;
    for command in Cli::command().get_subcommands() {
        let help = run(&[command.get_name(), "--help"]);
        assert_eq!(help.code, 0);
        for arg in command.get_arguments() {
            assert!(arg.get_help().is_some(), "{arg} says nothing");
            if let Some(long) = arg.get_long() {
                assert!(help.out.contains(&format!("--{long}")), "--{long}: {}", help.out);
                flags += 1;
            }
            if let Some(variable) = arg.get_env() {
                let variable = variable.to_str().unwrap();
                assert!(help.out.contains(variable), "{variable}: {}", help.out);
            }
            let serves = command.get_name() == "serve";
            assert!(!serves || arg.get_env().is_some(), "{arg} has no environment variable");
        }
    }
    assert!(flags >= 20, "{flags} flags");
    let help = run(&["--help"]).out;
    for command in ["serve", "check", "query", "simulate"] {
        assert!(help.contains(command), "{command}: {help}");
    }
    assert!(run(&["--version"]).out.contains(env!("CARGO_PKG_VERSION")));
}

#[test]
fn output_to_a_pipe_has_no_colours() {
    let served = Served::with_limits(EDGE);
    let limits = served.limits().to_str().unwrap();
    let missing = served.limits().join("missing");
    fs::write(served.limits().join("bad"), "domain: [").unwrap();
    let bad = served.limits().join("bad");
    let outputs = [
        run(&["--help"]),
        run(&["serve", "--help"]),
        run(&["serve", "--no-such-flag"]),
        run(&["check", limits]),
        run(&["check", missing.to_str().unwrap()]),
        run(&["check", bad.to_str().unwrap()]),
        query(&served, &["tenant=a,path=/login"]),
        query(&served, &["tenant=a,path=/login"]),
        run(&["query", "--domain", "edge", "--addr", "127.0.0.1:1", "user=1"]),
    ];
    for printed in &outputs {
        assert!(
            !printed.out.contains('\x1b') && !printed.err.contains('\x1b'),
            "{}{}",
            printed.out,
            printed.err
        );
    }
    assert!(!served.tidegate.log().contains('\x1b'), "{}", served.tidegate.log());
}
