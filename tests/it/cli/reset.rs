//! `tidegate reset`, on a service with an admin port.

use std::net::SocketAddr;
use std::time::Duration;

use tidegate::proto::tidegate::v1::rate_limit_service_client::RateLimitServiceClient;
use tonic::transport::Endpoint;

use crate::support::client::{Caller, Served, request};
use crate::support::process::wait_until;
use crate::support::servers::{RedisServer, Version};
use crate::support::tidegate::Tidegate;

/// The deadline for a log line.
const DEADLINE: Duration = Duration::from_secs(10);

const EDGE: &str = "
domain: edge
descriptors:
  - key: user
    rate_limit:
      - { limit: 2, period: 36500d }
      - { limit: 3, period: 1d, algorithm: sliding_window_log, name: daily }
      - { limit: 4, period: 1d, algorithm: token_bucket, overdraft: true, name: tokens }
  - key: free
    rate_limit: { unlimited: true }
";

fn admin(served: &Served) -> SocketAddr {
    let reported =
        || served.tidegate.log().split("admin on ").nth(1)?.split_whitespace().next()?.parse().ok();
    wait_until(DEADLINE, reported).expect("it tells where operators are served")
}

fn reset(addr: SocketAddr, args: &[&str]) -> std::process::Output {
    let addr = addr.to_string();
    Tidegate::run(&[&["reset", "--addr", &addr, "--domain", "edge"], args].concat(), "")
}

async fn remaining(caller: &Caller) -> Vec<u64> {
    let quota = caller.quota(&request("edge").about("user", "alice")).await.unwrap();
    quota.statuses.iter().map(|status| status.remaining()).collect()
}

#[tokio::test]
async fn a_reset_clears_every_counter_that_the_descriptors_match_and_no_other() {
    let redis = RedisServer::start(Version::Redis70);
    let args = ["--admin-addr", "127.0.0.1:0"];
    let url = redis.url();
    let on_redis = [&args[..], &["--store", &url, "--store-timeout", "10s"]].concat();
    for args in [&args[..], &on_redis] {
        let served = Served::with(&[EDGE], args);
        let caller = served.caller().await;
        let user_request = request("edge").about("user", "alice");
        for user in ["alice", "bob"] {
            caller.check(&request("edge").about("user", user).taking(2)).await.unwrap();
        }
        assert!(!caller.allows(&user_request).await, "it is denied, and known to be");
        let output = reset(admin(&served), &["user=alice"]);
        let stdout = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{output:?}");
        assert!(stdout.contains("user=alice") && stdout.contains("daily"), "{stdout}");
        assert_eq!(remaining(&caller).await, [2, 3, 4]);
        assert!(caller.allows(&user_request).await, "the denial is forgotten too");
        assert!(!caller.allows(&request("edge").about("user", "bob")).await);
    }
}

#[tokio::test]
async fn values_can_be_reset_as_top_prints_them() {
    let served = Served::with(&[EDGE], &["--admin-addr", "127.0.0.1:0"]);
    let caller = served.caller().await;
    let forwarded = request("edge").about("user", r"10.0.0.1, \10.0.0.2");
    while caller.allows(&forwarded).await {}
    let top = Tidegate::run(&["top", "--addr", &served.tidegate.http.to_string()], "");
    let top = String::from_utf8(top.stdout).unwrap();
    let start = top.find("user=").unwrap_or_else(|| panic!("{top}"));
    let entries = top[start..].split("  ").next().unwrap();
    assert!(reset(admin(&served), &[entries]).status.success(), "{entries}");
    assert!(caller.allows(&forwarded).await);
}

#[test]
fn a_reset_that_matches_no_limit_fails_with_a_message() {
    let served = Served::with(&[EDGE], &["--admin-addr", "127.0.0.1:0"]);
    for args in [["nothing=a"], ["user=a,path=b"]] {
        let output = reset(admin(&served), &args);
        assert_eq!(output.status.code(), Some(1));
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.contains("match no limit"), "{stderr}");
    }
}

#[tokio::test]
async fn callers_cannot_reset_and_the_admin_port_cannot_check() {
    let served = Served::with(&[EDGE], &["--admin-addr", "127.0.0.1:0"]);
    let output = reset(served.tidegate.grpc, &["user=alice"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("Unimplemented"), "{stderr}");
    let channel = Endpoint::from_shared(format!("http://{}", admin(&served))).unwrap();
    let mut client = RateLimitServiceClient::new(channel.connect().await.unwrap());
    let answer = client.get_quota(request("edge").about("user", "a").quota()).await;
    assert_eq!(answer.unwrap_err().code(), tonic::Code::Unimplemented);
}

#[test]
fn the_admin_port_is_off_by_default_and_never_public() {
    let served = Served::with(&[EDGE], &[]);
    assert!(!served.tidegate.log().contains("admin on"));
    let limits = served.limits().to_str().unwrap();
    let args = ["serve", "--limits", limits, "--grpc-addr", "127.0.0.1:0", "--http-addr"];
    let output =
        Tidegate::run(&[&args[..], &["127.0.0.1:0", "--admin-addr", "0.0.0.0:0"]].concat(), "");
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("--admin-addr 0.0.0.0:0: must be a loopback address"), "{stderr}");
}
