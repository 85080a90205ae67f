//! Start and shutdown: the behaviour for callers and probes, and that no call is lost.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use tidegate::clock::Stopwatch;
use tonic_health::ServingStatus;

use crate::support::client::{Caller, Page, Request, Served, limits_folder, request};
use crate::support::fleet::Fleet;
use crate::support::process;
use crate::support::servers::{RedisServer, Version};
use crate::support::tidegate::Tidegate;

const EDGE: &str =
    "{domain: edge, descriptors: [{key: user, rate_limit: {limit: 4000000000, period: 36500d}}]}";

/// As above.
const LIMIT: u64 = 4_000_000_000;

/// A deadline for steps that must not take for ever.
const SOME_TIME: Duration = Duration::from_secs(20);

fn asked() -> Request {
    request("edge").about("user", "alice")
}

fn wait_for_page(http: SocketAddr, path: &str, status: u16) -> Page {
    let found = || Some(Page::get(http, path)).filter(|page| page.status == status);
    process::wait_until(SOME_TIME, found).expect("the page changes")
}

#[test]
fn an_occupied_port_ends_the_start_with_advice() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let folder = limits_folder(&[EDGE]);
    let limits = folder.path().to_str().unwrap();
    let cases = [
        (taken.as_str(), "another process listens there"),
        ("192.0.2.1:8081", "this machine has no such address"),
    ];
    for (addr, fix) in cases {
        let started = Stopwatch::start();
        let run = Tidegate::run(&["serve", "--limits", limits, "--grpc-addr", addr], "");
        let printed = String::from_utf8(run.stderr).unwrap();
        assert_eq!(run.status.code(), Some(1));
        assert!(
            printed.contains(&format!("--grpc-addr {addr}: ")) && printed.contains(fix),
            "{printed}"
        );
        assert!(started.elapsed() < Duration::from_secs(5), "at once");
    }
}

#[tokio::test]
async fn after_sigterm_the_service_reports_it_and_keeps_serving_for_the_delay() {
    let mut served = Served::with(&[EDGE], &["--drain-delay", "4s"]);
    let caller = served.caller().await;
    assert!(caller.allows(&asked()).await);
    let reported = Stopwatch::start();
    served.tidegate.ask_to_end();
    caller.wait_for_health(ServingStatus::NotServing).await;
    let ready = wait_for_page(served.tidegate.http, "/readyz", 503);
    assert_eq!(ready.body, "not ready: the service is ending\n");
    assert_eq!(served.page("/healthz").status, 200);
    assert!(caller.allows(&asked()).await && served.caller().await.allows(&asked()).await);
    assert!(reported.elapsed() < Duration::from_secs(4), "all that was within the delay");
    assert_eq!(served.tidegate.wait_for_end().code(), Some(0));
    assert!(reported.elapsed() >= Duration::from_secs(4), "the delay was waited for");
}

#[test]
fn a_second_signal_ends_at_once() {
    let mut served = Served::with(&[EDGE], &["--drain-delay", "1h"]);
    served.tidegate.ask_to_end();
    wait_for_page(served.tidegate.http, "/readyz", 503);
    served.tidegate.ask_to_end();
    assert_eq!(served.tidegate.wait_for_end().code(), Some(1));
    served.tidegate.wait_for_log("second signal");
}

#[tokio::test]
async fn a_call_in_flight_is_answered_before_shutdown() {
    let redis = RedisServer::start(Version::Redis70);
    let args = ["--store", &redis.url(), "--store-timeout", "20s"];
    let mut served = Served::with(&[EDGE], &args);
    let caller = served.caller().await;
    assert!(caller.allows(&asked()).await);
    redis.command(&["CLIENT", "PAUSE", "1500", "ALL"]);
    let request = asked();
    let call = caller.allows(&request);
    let ending = async {
        // Sent after the call.
        tokio::task::yield_now().await;
        served.tidegate.ask_to_end();
        tokio::task::spawn_blocking(move || served.tidegate.wait_for_end().code()).await.unwrap()
    };
    let (allowed, code) = tokio::join!(call, ending);
    assert!(allowed);
    assert_eq!(code, Some(0));
}

#[tokio::test]
async fn health_watchers_are_notified_and_do_not_delay_shutdown() {
    let mut served = Served::with(&[EDGE], &["--drain-timeout", "15s"]);
    let mut events = watch_health(&served.caller().await).await;
    assert_eq!(events.message().await.unwrap().unwrap().status, ServingStatus::Serving as i32);
    let reported = Stopwatch::start();
    served.tidegate.ask_to_end();
    assert_eq!(events.message().await.unwrap().unwrap().status, ServingStatus::NotServing as i32);
    assert!(events.message().await.unwrap().is_none(), "then the watch ends well");
    assert_eq!(served.tidegate.wait_for_end().code(), Some(0));
    assert!(reported.elapsed() < Duration::from_secs(10), "{:?}", reported.elapsed());
}

async fn watch_health(caller: &Caller) -> tonic::Streaming<tonic_health::pb::HealthCheckResponse> {
    let mut client = tonic_health::pb::health_client::HealthClient::new(caller.channel());
    let request = tonic_health::pb::HealthCheckRequest { service: String::new() };
    client.watch(request).await.unwrap().into_inner()
}

#[tokio::test]
async fn a_call_that_never_ends_is_cut_off_after_the_drain_timeout() {
    use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
    let mut served = Served::with(&[EDGE], &["--drain-timeout", "300ms"]);
    let caller = served.caller().await;
    let never = tokio_stream::pending();
    let open = ServerReflectionClient::new(caller.channel()).server_reflection_info(never).await;
    served.tidegate.ask_to_end();
    assert_eq!(served.tidegate.wait_for_end().code(), Some(0));
    served.tidegate.wait_for_log("cut off");
    drop(open);
}

/// A release build takes 8 MiB more, and the total must stay under 20 MiB.
#[test]
fn an_idle_service_uses_little_memory() {
    let served = Served::with(&[EDGE], &[]);
    let held = served.tidegate.resident_kib();
    assert!(held < 12 << 10, "{held} KiB");
}

#[tokio::test]
async fn an_old_connection_is_replaced_and_no_call_is_lost() {
    let served = Served::with(&[EDGE], &["--max-connection-age", "300ms"]);
    let fleet = Fleet::start(1_000, &asked());
    fleet.join(served.tidegate.grpc);
    let replaced = || Some(()).filter(|()| fleet.connections(served.tidegate.grpc) > 5);
    process::wait_until(SOME_TIME, replaced).expect("connections end by themselves");
    let tally = fleet.stop();
    let left = served.caller().await.remaining(&asked()).await;
    tally.assert_all_answered_once(LIMIT - left);
}

#[tokio::test]
async fn a_rolling_restart_under_1000_requests_per_second_loses_none() {
    let folder = limits_folder(&[EDGE]);
    let redis = RedisServer::start(Version::Redis70);
    let url = redis.url();
    // Slow enough for a busy machine to count each request in Redis.
    let store = ["--store", &url, "--store-timeout", "10s"];
    let args = [&["--limits", folder.path().to_str().unwrap()], &store[..]].concat();
    let start = || Tidegate::serve(&[&args[..], &["--drain-delay", "1s"]].concat());
    let mut replicas = vec![start(), start()];
    let fleet = Fleet::start(1_000, &asked());
    replicas.iter().for_each(|replica| fleet.join(replica.grpc));
    for _ in 0..2 {
        let new = start();
        fleet.join(new.grpc);
        let mut old = replicas.remove(0);
        assert_eq!(old.terminate().code(), Some(0), "{}", old.log());
        replicas.push(new);
    }
    let tally = fleet.stop();
    let left = Caller::of(replicas[0].grpc).await.remaining(&asked()).await;
    assert!(tally.answered > 2_000, "{}", tally.answered);
    tally.assert_all_answered_once(LIMIT - left);
}
