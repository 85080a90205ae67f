//! Effects of changed limits and of restarts on Envoy's callers: only what was changed.

use std::fs;
use std::time::Duration;

use super::replicas::RETRIES;
use super::{Front, apart};
use crate::support::client::{Served, limits_folder, request};
use crate::support::envoy::{Config, Envoy};
use crate::support::load::{Load, Outcome};
use crate::support::servers::{RedisServer, Version, free_port};
use crate::support::tidegate::Tidegate;
use crate::support::upstream::Upstream;

/// The deadline for changed limits to apply. The promise is a second, and alone this takes 0.02 to
/// 0.3; here all other tests use the processors too.
const RELOAD_MAX: Duration = Duration::from_secs(5);

/// A deadline for steps that must not take for ever.
const SOME_TIME: Duration = Duration::from_secs(30);

const TOLD: &str = "enable_x_ratelimit_headers: DRAFT_VERSION_03";

/// Waits until Envoy has answered `more` further requests.
async fn answered(envoy: &Envoy, more: u64) {
    const ANSWERED: &str = "http.front.downstream_rq_completed";
    let before = envoy.stat(ANSWERED).await;
    envoy.wait_for_stat(ANSWERED, before + more).await;
}

/// One limit that changes and one that does not.
fn limits(changing: u64) -> String {
    format!(
        "{{domain: edge, descriptors: [\
          {{key: user, rate_limit: {{limit: {changing}, period: 36500d}}}}, \
          {{key: ip, rate_limit: {{limit: 4000000000, period: 36500d}}}}]}}"
    )
}

const STAYS: u64 = 4_000_000_000;

#[tokio::test]
async fn changed_limits_apply_within_a_second_and_no_request_fails() {
    let configure = |config: Config| config.host(&apart(&["user", "ip"])).filter(TOLD);
    let front = Front::start(&limits(1_000_000), configure).await;
    let load = Load::through(front.envoy.addr, 1_000, |web| {
        web.get("/").header("x-user", "a").header("x-ip", "a")
    });
    load.wait_for(SOME_TIME, |sample| sample.limits == (1_000_000, STAYS));
    for changed in [2_000_000, 3_000_000, 1_500_000] {
        answered(&front.envoy, 500).await;
        let from = load.now();
        let file = front.served.limits().join("limits-0.yaml");
        let new = file.with_extension("new");
        fs::write(&new, limits(changed)).unwrap();
        fs::rename(&new, &file).unwrap();
        let first = load.wait_for(SOME_TIME, |sample| sample.limits.0 == changed);
        let took = first.sent.saturating_sub(from);
        assert!(took <= RELOAD_MAX, "{changed} is in force after {took:?}");
    }
    let samples = load.stop();
    assert!(samples.all_answered(), "{:?}", samples.errors().first());
    let sent = u64::try_from(samples.count(Outcome::Allowed)).unwrap();
    assert_eq!(sent, samples.0.len() as u64);
    // Every request was counted once by each limit.
    assert_eq!(front.left(request("edge").about("ip", "a")).await, STAYS - sent);
    assert_eq!(front.left(request("edge").about("user", "a")).await, 1_500_000 - sent);
    assert_eq!(front.envoy.stat("cluster.echo.ratelimit.error").await, 0);
}

/// A setup for restarting replicas: Envoy checks their health, and retries on another one if the
/// chosen one is gone.
const WATCHED: &str = "
health_checks:
  - grpc_health_check: {}
    timeout: 20s
    interval: 0.1s
    no_traffic_interval: 0.1s
    unhealthy_threshold: 1
    healthy_threshold: 1
";

/// A replica on a port that its successor can reuse.
fn replica(port: u16, limits: &str, redis: &RedisServer) -> Tidegate {
    let url = redis.url();
    let args = ["--limits", limits, "--store", &url, "--store-timeout", "10s"];
    let drain = ["--drain-delay", "2s", "--drain-timeout", "20s"];
    Tidegate::serve_on(([127, 0, 0, 1], port).into(), &[&args[..], &drain].concat())
}

#[tokio::test]
async fn replicas_are_restarted_one_after_the_other_and_no_request_fails() {
    let redis = RedisServer::start(Version::Redis70);
    let folder = limits_folder(&[&limits(STAYS)]);
    let path = folder.path().to_str().unwrap();
    let mut replicas = [free_port(), free_port()].map(|port| replica(port, path, &redis));
    let upstream = Upstream::start();
    let config = Config::new(replicas[0].grpc, &upstream).replica(replicas[1].grpc);
    let config = config.host(&apart(&["user"])).filter(RETRIES).service(WATCHED);
    let envoy = Envoy::start(&config).await;
    let load = Load::through(envoy.addr, 500, |web| web.get("/").header("x-user", "a"));
    load.wait_for(SOME_TIME, |sample| sample.outcome == Outcome::Allowed);
    for at in [0, 1, 0] {
        envoy.wait_for_stat("cluster.tidegate.membership_healthy", 2).await;
        answered(&envoy, 200).await;
        let addr = replicas[at].grpc;
        assert_eq!(replicas[at].terminate().code(), Some(0));
        replicas[at] = replica(addr.port(), path, &redis);
    }
    envoy.wait_for_stat("cluster.tidegate.membership_healthy", 2).await;
    answered(&envoy, 200).await;
    let samples = load.stop();
    assert!(samples.all_answered(), "{:?}", samples.errors().first());
    let args = ["--store", &redis.url(), "--store-timeout", "10s"];
    let served = Served::with(&[&limits(STAYS)], &args);
    let left = served.caller().await.remaining(&request("edge").about("user", "a")).await;
    assert_eq!(left, STAYS - samples.0.len() as u64, "each was counted once");
}
