//! Envoy's failure mode while Tidegate cannot decide, and the counters afterwards.

use std::time::Duration;

use super::{Front, OK, TOO_MANY, apart};
use crate::support::client::{Served, request};
use crate::support::envoy::Config;
use crate::support::process;
use crate::support::servers::{RedisServer, Version};

const EDGE: &str = "
domain: edge
descriptors:
  - key: user
    rate_limit: { limit: 3, period: 36500d }
";

/// The failure mode of Envoy, and the status that its caller then gets.
const MODES: [(&str, u16); 3] = [
    ("failure_mode_deny: false", OK),
    ("failure_mode_deny: true", 500),
    ("{ failure_mode_deny: true, status_on_error: { code: ServiceUnavailable } }", 503),
];

/// The deadline for Envoy to reconnect to a service.
const RECOVERY: Duration = Duration::from_secs(20);

fn on_failure(mode: &str) -> impl FnOnce(Config) -> Config {
    move |config| config.host(&apart(&["user"])).filter(mode)
}

/// Waits until decisions come through again, using values of its own.
async fn decides_again(front: &Front) {
    let mut at = 0;
    let found = process::eventually(RECOVERY, async || {
        at += 1;
        let answer = front.get("/").header("x-user", format!("again {at}")).send().await;
        let decided = front.envoy.stat("cluster.echo.ratelimit.ok").await > 0;
        (answer.status == OK && decided).then_some(())
    });
    assert!(found.await.is_some(), "no decision within {RECOVERY:?}");
}

#[tokio::test]
async fn while_tidegate_is_stopped_envoys_failure_mode_decides() {
    for (mode, status) in MODES {
        let front = Front::start(EDGE, |config| on_failure(mode)(config).filter("timeout: 0.3s"));
        let front = front.await;
        front.served.tidegate.pause();
        let http_request = front.get("/").header("x-user", "meanwhile");
        assert_eq!(http_request.count_at_once(20, status).await, 20, "{mode}");
        let counted = if status == OK { "failure_mode_allowed" } else { "error" };
        assert_eq!(front.envoy.stat(&format!("cluster.echo.ratelimit.{counted}")).await, 20);
        front.served.tidegate.resume();
        decides_again(&front).await;
        let after = front.get("/").header("x-user", "after");
        assert_eq!(after.statuses(4).await, [OK, OK, OK, TOO_MANY], "{mode}");
    }
}

#[tokio::test]
async fn while_tidegate_is_gone_envoys_failure_mode_decides_and_redis_keeps_the_counts() {
    for (mode, status) in MODES {
        let redis = RedisServer::start(Version::Redis70);
        let (url, timeout) = (redis.url(), ["--store-timeout", "10s"]);
        let args = ["--store", &url, timeout[0], timeout[1]];
        let served = Served::on_lasting_port(&[EDGE], &args);
        let mut front = Front::over(served, Some(redis), on_failure(mode)).await;
        let http_request = front.get("/").header("x-user", "a");
        assert_eq!(http_request.statuses(2).await, [OK, OK]);
        front.served.tidegate.kill();
        assert_eq!(http_request.statuses(9).await, [status; 9], "{mode}");
        front.served.serve_again(&args);
        decides_again(&front).await;
        assert_eq!(http_request.statuses(2).await, [OK, TOO_MANY], "{mode}: the counts were kept");
    }
}

#[tokio::test]
async fn without_a_store_envoy_gets_the_answer_of_the_policy() {
    let cases = [("error", 500), ("deny", TOO_MANY), ("allow", OK), ("local", OK)];
    for (policy, status) in cases {
        let mut redis = RedisServer::start(Version::Redis70);
        let url = redis.url();
        let on_failure_args = ["--on-store-failure", policy, "--threads", "1"];
        let args = [&["--store", &url, "--store-timeout", "400ms"][..], &on_failure_args].concat();
        let served = Served::with(&[EDGE], &args);
        redis.stop();
        let front = Front::over(served, None, on_failure("failure_mode_deny: true")).await;
        let http_request = front.get("/").header("x-user", "a");
        assert_eq!(http_request.statuses(3).await, [status; 3], "{policy}");
        let fourth = if policy == "local" { TOO_MANY } else { status };
        assert_eq!(http_request.send().await.status, fourth, "{policy}");
        redis.restart();
        front.served.tidegate.wait_for_log("the store decides again");
        let other = front.get("/").header("x-user", "b");
        assert_eq!(other.statuses(4).await, [OK, OK, OK, TOO_MANY], "{policy}");
    }
}

#[tokio::test]
async fn envoy_cancels_a_slow_decision_and_keeps_the_connection() {
    let front = Front::start(EDGE, |config| {
        on_failure("{ failure_mode_deny: false, timeout: 0.05s }")(config)
    });
    let front = front.await;
    for at in 0..5 {
        front.served.tidegate.pause();
        let http_request = front.get("/").header("x-user", format!("slow {at}"));
        assert_eq!(http_request.send().await.status, OK);
        front.served.tidegate.resume();
    }
    decides_again(&front).await;
    // Tidegate may have counted the requests in the meantime, but never twice.
    let left = front.left(request("edge").about("user", "slow 0")).await;
    assert!((2..=3).contains(&left), "{left}");
    assert_eq!(front.envoy.stat("cluster.tidegate.upstream_cx_total").await, 1);
}
