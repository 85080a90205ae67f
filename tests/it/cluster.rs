//! A real Redis Cluster under load: distribution over shards, slots that move, masters that fail.

mod half_moved;
mod not_standalone;

use std::time::Duration;

use tidegate::proto::tidegate::v1::DecisionSource::{Fallback, Store};
use tokio::time::timeout;
use tonic::Code;
use tonic_health::ServingStatus;

use crate::support::client::{Request, Served, request};
use crate::support::cluster::Cluster;
use crate::support::load::Load;
use crate::support::process::wait_until;
use crate::support::servers::free_port;

const LIMITS: &str = "{domain: edge, slot_by: [tenant], descriptors: [\
    {key: tenant, rate_limit: {limit: 1000000, period: 1h, algorithm: sliding_window_counter}}, \
    {key: everyone, rate_limit: {limit: 1000000, period: 1h, algorithm: sliding_window_counter}}]}";

/// Requests per second; unoptimized, the most that a thread can serve which shares two cores with
/// ten others.
const RATE: u32 = if cfg!(debug_assertions) { 100 } else { 500 };
const DEADLINE: Duration = Duration::from_secs(30);

fn tenant(name: &str) -> Request {
    request("edge").about("tenant", name)
}

fn served(cluster: &Cluster, more: &[&str]) -> Served {
    let url = cluster.url();
    Served::with(&[LIMITS], &[&["--store", &url], more].concat())
}

#[tokio::test]
async fn requests_find_their_slots_and_may_take_from_several() {
    let cluster = Cluster::start();
    let served = served(&cluster, &["--store-timeout", "10s"]);
    let caller = served.caller().await;
    for at in 0..50 {
        let both = tenant(&at.to_string()).about("everyone", "");
        let answer = caller.check(&both).await.unwrap();
        assert_eq!(answer.source(), Store, "{at}");
        let left: Vec<_> = answer.statuses.iter().map(|status| status.remaining()).collect();
        assert_eq!(left, [999_999, 999_999 - at], "{at}");
    }
    let keys = |node| format!("{:?}", cluster.command(node, &["DBSIZE"]));
    let masters = [0, 6_000, 16_000].map(|slot| cluster.master_of(slot));
    assert!(masters.iter().all(|master| keys(*master) != "Int(0)"), "on every master");
}

#[tokio::test]
async fn a_slot_moves_under_load_without_an_error_or_a_lost_hit() {
    let cluster = Cluster::start();
    let served = served(&cluster, &["--store-timeout", "2s", "--on-store-failure", "error"]);
    let load = Load::start(served.tidegate.grpc, RATE, &tenant("moving"));
    load.wait_for(DEADLINE, |sample| sample.source == Store);
    let slot = cluster.slot_of(b"{edge,tenant=moving}");
    let from = cluster.master_of(slot);
    let to = cluster.master_of(if slot < 8_000 { 16_000 } else { 0 });
    for to in [to, from] {
        let migration = cluster.begin_migration(slot, to);
        load.go_on_for(Duration::from_millis(200));
        cluster.move_keys(migration);
        load.go_on_for(Duration::from_millis(200));
        cluster.finish_migration(migration);
        load.go_on_for(Duration::from_millis(200));
        assert_eq!(cluster.master_of(slot), to);
    }
    let samples = load.stop();
    assert!(samples.all_answered());
    assert!(samples.errors().is_empty(), "{:?}", samples.errors().first());
    let (count, p999) = (samples.0.len(), samples.p999());
    eprintln!("| slot moved there and back, counts exact | {count} | {p999:.1?} | - |");
    let allowed = samples.count(crate::support::load::Outcome::Allowed);
    let caller = served.caller().await;
    let left = caller.quota(&tenant("moving")).await.unwrap().statuses[0].remaining();
    assert_eq!(left, 1_000_000 - u64::try_from(allowed).unwrap(), "every hit counted once");
}

#[test]
fn a_lost_master_is_replaced_by_the_fallback_until_its_replica_serves() {
    let mut cluster = Cluster::start();
    let served = served(&cluster, &[]);
    let control = request("unknown").about("tenant", "a");
    let load = Load::start_beside(served.tidegate.grpc, RATE, &tenant("a"), &control);
    load.wait_for(DEADLINE, |sample| sample.source == Store);
    let slot = cluster.slot_of(b"{edge,tenant=a}");
    let lost = cluster.master_of(slot);
    cluster.kill(lost);
    load.wait_for(DEADLINE, |sample| sample.source == Fallback);
    cluster.wait_for_failover(lost, DEADLINE);
    let failed_over = load.now();
    let back =
        load.wait_for(DEADLINE, |sample| sample.sent > failed_over && sample.source == Store);
    let (samples, slowest_control) = load.stop_beside();
    assert!(
        samples.all_answered() && samples.errors().is_empty(),
        "{:?}",
        samples.errors().first()
    );
    let pause = back.sent - failed_over;
    let (count, p999) = (samples.0.len(), samples.p999());
    eprintln!("| cluster failover, master killed | {count} | {p999:.1?} | {pause:.0?} |");
    let back_max = Duration::from_secs(3) + 10 * slowest_control;
    assert!(pause <= back_max, "back after {pause:?}");
}

#[tokio::test]
async fn a_master_that_refuses_is_reported_while_the_others_decide() {
    let cluster = Cluster::start();
    let served = served(&cluster, &["--store-timeout", "10s", "--on-store-failure", "error"]);
    let caller = served.caller().await;
    let master = |name: &str| {
        cluster.master_of(cluster.slot_of(format!("{{edge,tenant={name}}}").as_bytes()))
    };
    let full = master("a");
    let other = (0..).map(|number| number.to_string()).find(|name| master(name) != full).unwrap();
    let ready = || served.page("/readyz").status;
    assert!(caller.allows(&tenant("a")).await && caller.allows(&tenant(&other)).await);
    assert_eq!(ready(), 200);
    cluster.command(full, &["CONFIG", "SET", "maxmemory", "1"]);
    assert_eq!(caller.check(&tenant("a")).await.unwrap_err().code(), Code::Unavailable);
    for _ in 0..5 {
        assert_eq!(ready(), 503, "{}", served.page("/readyz").body);
        assert!(caller.allows(&tenant(&other)).await);
    }
    cluster.command(full, &["CONFIG", "SET", "maxmemory", "0"]);
    assert_eq!(ready(), 200, "a probe finds out");
    assert!(caller.allows(&tenant("a")).await);
}

#[tokio::test]
async fn nodes_without_a_hostname_are_followed() {
    let cluster = Cluster::start();
    for node in 0..cluster.addresses().len() {
        let setting = ["CONFIG", "SET", "cluster-preferred-endpoint-type", "unknown-endpoint"];
        cluster.command(node, &setting);
    }
    let served = served(&cluster, &["--store-timeout", "10s", "--on-store-failure", "error"]);
    let caller = served.caller().await;
    assert!(caller.allows(&tenant("moving")).await);
    let slot = cluster.slot_of(b"{edge,tenant=moving}");
    let to = cluster.master_of(if slot < 8_000 { 16_000 } else { 0 });
    let migration = cluster.begin_migration(slot, to);
    cluster.move_keys(migration);
    assert!(caller.allows(&tenant("moving")).await, "ASK");
    cluster.finish_migration(migration);
    assert!(caller.allows(&tenant("moving")).await, "MOVED");
    assert_eq!(caller.remaining(&tenant("moving")).await, 1_000_000 - 3);
}

#[tokio::test]
async fn a_node_without_slots_is_disconnected() {
    let mut cluster = Cluster::start();
    let slot = cluster.slot_of(b"{edge,tenant=a}");
    let lost = cluster.master_of(slot);
    // Seeds are queried periodically; this node is not one of them.
    let seed = cluster.addresses()[cluster.master_of((slot + 8_192) % 16_384)];
    let url = format!("redis-cluster://{seed}");
    let served = Served::with(&[LIMITS], &["--store", &url, "--store-timeout", "2s"]);
    let caller = served.caller().await;
    let decided_by = async |source| caller.check(&tenant("a")).await.unwrap().source() == source;
    assert!(decided_by(Store).await);
    let clients = |cluster: &Cluster| {
        let list = cluster.command(lost, &["CLIENT", "LIST", "TYPE", "normal"]).into_text();
        list.lines().count()
    };
    assert!(clients(&cluster) > 1, "Tidegate beside the test");
    cluster.kill(lost);
    assert!(decided_by(Fallback).await);
    cluster.wait_for_failover(lost, DEADLINE);
    let back = async { while !decided_by(Store).await {} };
    timeout(DEADLINE, back).await.expect("the replica decides");
    cluster.restart(lost);
    cluster.wait_until_whole(DEADLINE);
    // A thread that did not notice the missing node reads the cluster map again after 10 s.
    let is_left = || Some(()).filter(|()| clients(&cluster) == 1);
    wait_until(DEADLINE, is_left).expect("nobody beside the test");
}

#[tokio::test]
async fn a_cluster_without_a_known_map_decides_nothing() {
    let url = format!("redis-cluster://127.0.0.1:{}", free_port());
    let args = ["--store", &url, "--store-timeout", "200ms", "--on-store-failure", "error"];
    let served = Served::with(&[LIMITS], &args);
    let caller = served.caller().await;
    let undecided = caller.check(&tenant("a")).await.unwrap_err();
    assert_eq!(undecided.code(), Code::Unavailable);
    caller.wait_for_health(ServingStatus::NotServing).await;
    let ready = served.page("/readyz");
    assert_eq!(ready.status, 503);
    assert!(ready.body.contains("slots are not known"), "{}", ready.body);
    assert!(served.page("/metrics").body.contains("\nrate_limit_store_up 0\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_tenants_spread_evenly_over_the_masters() {
    const TENANTS: usize = 10_000;
    const CALLERS: usize = 8;
    let cluster = Cluster::start();
    let served = served(&cluster, &["--store-timeout", "10s"]);
    let mut callers = tokio::task::JoinSet::new();
    for number in 0..CALLERS {
        let caller = served.caller().await;
        callers.spawn(async move {
            for at in (number..TENANTS).step_by(CALLERS) {
                assert!(caller.allows(&tenant(&format!("tenant-{at}"))).await);
            }
        });
    }
    while let Some(ended) = callers.join_next().await {
        ended.unwrap();
    }
    for slot in [0, 8_000, 16_000] {
        let keys = cluster.command(cluster.master_of(slot), &["DBSIZE"]).into_count();
        let even = u64::try_from(TENANTS / 3).unwrap();
        assert!(keys.abs_diff(even) * 100 <= even * 15, "{keys} of {TENANTS} keys");
    }
}
