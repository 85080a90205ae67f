//! A password in the store's URL is never printed.

use std::process::Command;

use super::run;
use crate::support::client::{Served, limits_folder, request};
use crate::support::servers::{RedisServer, Version, free_port};

const PASSWORD: &str = "hunter2-secret";

const LIMITS: &str = "{domain: edge, descriptors: [{key: k, rate_limit: {limit: 9, period: 1h}}]}";

fn url(port: u16) -> String {
    format!("redis://:{PASSWORD}@127.0.0.1:{port}")
}

#[test]
fn no_error_repeats_the_password() {
    let folder = limits_folder(&[LIMITS]);
    let limits = folder.path().to_str().unwrap();
    let addrs = ["--grpc-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0"];
    for bad in [
        format!("mysql://:{PASSWORD}@127.0.0.1"),
        format!("redis//:{PASSWORD}@127.0.0.1:1"),
        format!("redis://:{PASSWORD}@127.0.0.1:no-port"),
        format!("redis://:{PASSWORD}@[::1"),
        format!("redis://user:{PASSWORD}@127.0.0.1:99999"),
        format!("redis://:{PASSWORD}@127.0.0.1:1/no-database"),
        format!("redis://:{PASSWORD}@127.0.0.1:1,127.0.0.1:2"),
        format!("redis-cluster://:{PASSWORD}@127.0.0.1:1,127.0.0.1:1"),
        format!("redis-sentinel://127.0.0.1:1?sentinelPassword={PASSWORD}"),
    ] {
        let serve = ["serve", "--limits", limits, "--store", &bad];
        let bad_flag = ["--no-such-flag"];
        let simulate = ["simulate", "--limits", limits, "--trace", "-", "--store", &bad];
        for args in [[&serve[..], &addrs, &bad_flag].concat(), simulate.to_vec()] {
            let printed = run(&args);
            assert!(printed.code != 0, "{bad}");
            let text = printed.out + &printed.err;
            assert!(!text.contains(PASSWORD) && !text.contains("hunter2"), "{bad}: {text}");
        }
        let printed = run(&serve);
        assert!(printed.code != 0 && !printed.err.contains("hunter2"), "{bad}: {}", printed.err);
        assert!(printed.err.contains("--store"), "{}", printed.err);
    }
}

#[test]
fn help_shows_no_value_of_the_environment() {
    for command in ["serve", "simulate"] {
        let mut help = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        help.args([command, "--help"]).env("TIDEGATE_STORE", url(1));
        help.env("TIDEGATE_STORE_PASSWORD", PASSWORD);
        let output = help.output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && text.contains("TIDEGATE_STORE"), "{text}");
        assert!(!text.contains("hunter2"), "{text}");
    }
}

#[tokio::test]
async fn no_log_repeats_the_password() {
    let redis = RedisServer::start_with(Version::Redis70, &["--requirepass", PASSWORD]);
    let wrong = format!("redis://:{PASSWORD}-wrong@127.0.0.1:{}", redis.port());
    let nobody = url(free_port());
    for (url, decides) in [(url(redis.port()), true), (wrong, false), (nobody, false)] {
        let timeout = if decides { "10s" } else { "50ms" };
        let store = ["--store", &url, "--store-timeout", timeout, "--on-store-failure", "error"];
        let args = [&store[..], &["--log", "trace"]].concat();
        let served = Served::with(&[LIMITS], &args);
        let answer = served.caller().await.check(&request("edge").about("k", "v")).await;
        assert_eq!(answer.is_ok(), decides);
        let pages = ["/readyz", "/metrics", "/limits"].map(|path| served.page(path).body);
        let text = served.tidegate.log() + &pages.concat();
        let leak = text.lines().find(|line| line.contains("hunter2"));
        assert_eq!(leak, None);
    }
}

#[test]
fn a_password_in_the_environment_is_used_and_never_printed() {
    let folder = limits_folder(&[LIMITS]);
    for command in [&["serve"][..], &["simulate", "--trace", "-"]] {
        let mut tidegate = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        tidegate.args(command).arg("--limits").arg(folder.path()).args(["--store", &url(1)]);
        let output = tidegate.env("TIDEGATE_STORE_PASSWORD", PASSWORD).output().unwrap();
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert!(!output.status.success() && !text.contains("hunter2"), "{text}");
        assert!(text.contains("TIDEGATE_STORE_PASSWORD is set, and the URL"), "{text}");
    }
}
