//! Every kind of error that a store reports, produced by a fault of real servers.
//!
//! The client library does not say in types what went wrong, so `fred_error.rs` reads its words. If a
//! new version of it changes them, or an error is added, a test here fails.

use tidegate::on_store_failure::OnStoreFailure;
use tidegate::store::DecideContext;
use tidegate::store_error::StoreError;

use super::*;
use crate::counters::take;
use crate::support::cluster::Cluster;
use crate::support::process::eventually;
use crate::support::proxy::{Mode, Proxy};
use crate::support::resp::Connection;
use crate::support::stores::{DEADLINE, Layered, shared, store_at, store_within};

/// Shorter than any fault lasts, and long enough for a busy machine to connect.
const TIMEOUT: Duration = Duration::from_secs(1);

fn two_users() -> Vec<tidegate::decide::CounterRequest> {
    let limit =
        crate::counters::limit(tidegate::limit::Algorithm::SlidingWindowLog, 100, 3_600_000);
    vec![take("here", &limit), take("there", &limit)]
}

async fn error(store: &Layered) -> Option<&'static str> {
    // The probe that detects a server's return must run too.
    tokio::task::yield_now().await;
    let decided = store.transact(two_users(), OnStoreFailure::Error, DecideContext::now()).await;
    decided.err().map(|error| error.kind())
}

/// Sends requests until one fails with this kind of error: another request may be the first to fail.
async fn fails_with(store: &Layered, kind: &str) {
    let mut seen = Vec::new();
    let failed = async || {
        let error = error(store).await;
        seen.extend(error.filter(|error| !seen.contains(error)));
        (error == Some(kind)).then_some(())
    };
    eventually(DEADLINE, failed).await.unwrap_or_else(|| panic!("{kind}: only {seen:?}"));
}

/// A store on a server that decides, until these commands are run.
async fn fails_after(commands: &[&[&str]], args: &[&str], kind: &str) {
    let redis = RedisServer::start_with(Version::Redis70, args);
    let store = store_at(&redis.url(), &shared(0)).await;
    assert_eq!(error(&store).await, None, "{kind}");
    for command in commands {
        redis.command(command);
    }
    fails_with(&store, kind).await;
}

async fn fails_behind(mode: Mode, kind: &str) {
    let redis = RedisServer::start(Version::Redis70);
    let proxy = Proxy::before(redis.addr());
    let store = store_within(TIMEOUT, &proxy.url(), &shared(0)).await;
    assert_eq!(error(&store).await, None, "{kind}");
    let failed = async || {
        proxy.set(mode);
        let failed = error(&store).await == Some(kind);
        proxy.set(Mode::Pass);
        failed.then_some(())
    };
    eventually(DEADLINE, failed).await.unwrap_or_else(|| panic!("no {kind} in {mode:?}"));
}

async fn fails_without_scripts() {
    let redis =
        RedisServer::start_with(Version::Redis70, &["--rename-command", "EVALSHA", "RENAMED"]);
    let store = store_at(&redis.url(), &shared(0)).await;
    fails_with(&store, "refused").await;
}

async fn fails_without_the_password() {
    let redis = RedisServer::start(Version::Redis70);
    redis.command(&["CONFIG", "SET", "requirepass", "secret"]);
    fails_in_service(&redis.url(), "noauth").await;
}

async fn fails_on_a_node_of_a_cluster() {
    let cluster = Cluster::without_replicas(Version::Redis70);
    fails_in_service(&format!("redis://{}", cluster.addresses()[0]), "clustered").await;
}

/// A service that finds out when it starts.
async fn fails_in_service(url: &str, kind: &str) {
    let args = ["--store", url, "--store-timeout", "5s", "--on-store-failure", "error"];
    let served = Served::with(&[LIMITS], &args);
    let caller = served.caller().await;
    until(kind, async || {
        caller.check(&user("a")).await.unwrap_err();
        store_errors(&served, kind) > 0
    })
    .await;
}

async fn fails_while_busy() {
    let redis = RedisServer::start_with(Version::Redis70, &["--lua-time-limit", "20"]);
    let store = store_at(&redis.url(), &shared(0)).await;
    let mut endless = Connection::open(redis.port()).unwrap();
    endless.send(&["EVAL", "while true do end", "0"]).unwrap();
    fails_with(&store, "busy").await;
}

async fn fails_while_loading() {
    let args = ["--enable-debug-command", "yes", "--loading-process-events-interval-bytes", "1024"];
    let redis = RedisServer::start_with(Version::Redis70, &args);
    let store = store_at(&redis.url(), &shared(0)).await;
    redis.command(&["DEBUG", "POPULATE", "50000"]);
    redis.command(&["CONFIG", "SET", "key-load-delay", "200"]);
    let mut reload = Connection::open(redis.port()).unwrap();
    reload.send(&["DEBUG", "RELOAD"]).unwrap();
    fails_with(&store, "loading").await;
}

async fn fails_without_a_slot() {
    let cluster = Cluster::without_replicas(Version::Redis70);
    let store = store_at(&cluster.url(), &shared(0)).await;
    assert_eq!(error(&store).await, None);
    let slot = cluster.slot_of(two_users()[0].key.as_bytes());
    let other = (slot ^ 1).to_string();
    for node in 0..3 {
        cluster.command(node, &["CONFIG", "SET", "cluster-require-full-coverage", "yes"]);
    }
    cluster.command(cluster.master_of(slot), &["CLUSTER", "DELSLOTS", &other]);
    fails_with(&store, "clusterdown").await;
}

/// Starts moving the slot of the two users, and moves the second.
async fn fails_half_moved() {
    let cluster = Cluster::without_replicas(Version::Redis70);
    let store = store_within(TIMEOUT, &cluster.url(), &shared(0)).await;
    assert_eq!(error(&store).await, None);
    let [here, there] = two_users().try_into().unwrap();
    let slot = cluster.slot_of(here.key.as_bytes());
    let migration = cluster.begin_migration(slot, (cluster.master_of(slot) + 1) % 3);
    cluster.move_some(migration, [there.key.as_bytes().to_vec()]);
    fails_with(&store, "tryagain").await;
}

/// Two nodes that name each other as the owner of a slot.
async fn fails_between_two_nodes() {
    let cluster = Cluster::without_replicas(Version::Redis70);
    let store = store_within(TIMEOUT, &cluster.url(), &shared(0)).await;
    assert_eq!(error(&store).await, None);
    let slot = cluster.slot_of(two_users()[0].key.as_bytes());
    let owner = cluster.master_of(slot);
    let other = (owner + 1) % 3;
    let id_of = |node| cluster.command(node, &["CLUSTER", "MYID"]).into_text();
    let slot_name = slot.to_string();
    cluster.command(owner, &["FLUSHALL"]);
    for (node, named) in [(owner, other), (other, owner)] {
        cluster.command(node, &["CLUSTER", "SETSLOT", &slot_name, "NODE", &id_of(named)]);
    }
    fails_with(&store, "moved").await;
}

async fn fails_as(kind: &str) {
    let dead = free_port().to_string();
    let replicate: &[&str] = &["REPLICAOF", "127.0.0.1", &dead];
    let key = String::from_utf8(two_users()[0].key.as_bytes().to_vec()).unwrap();
    match kind {
        "timeout" => fails_behind(Mode::Stall, kind).await,
        "lost" => fails_behind(Mode::HalveReply, kind).await,
        "bad_reply" => fails_behind(Mode::GarbleReply, kind).await,
        "unavailable" => fails_behind(Mode::Refuse, kind).await,
        "refused" => fails_without_scripts().await,
        "wrong_type" => {
            fails_after(&[&["DEL", &key], &["LPUSH", &key, "x"]], &[], kind).await;
        }
        "oom" => fails_after(&[&["CONFIG", "SET", "maxmemory", "1"]], &[], kind).await,
        "readonly" => fails_after(&[replicate], &[], kind).await,
        "masterdown" => {
            fails_after(&[replicate], &["--replica-serve-stale-data", "no"], kind).await;
        }
        "noperm" => fails_after(&[&["ACL", "SETUSER", "default", "resetkeys"]], &[], kind).await,
        "noauth" => fails_without_the_password().await,
        "misconf" => {
            let args = ["--dir", "/proc", "--save", "3600", "1000000"];
            fails_after(&[&["BGSAVE"]], &args, kind).await;
        }
        "noreplicas" => {
            fails_after(&[&["CONFIG", "SET", "min-replicas-to-write", "1"]], &[], kind).await;
        }
        "busy" => fails_while_busy().await,
        "loading" => fails_while_loading().await,
        "clusterdown" => fails_without_a_slot().await,
        "tryagain" => fails_half_moved().await,
        "moved" => fails_between_two_nodes().await,
        "clustered" => fails_on_a_node_of_a_cluster().await,
        other => panic!("no fault here produces {other}"),
    }
}

#[tokio::test]
async fn a_fault_produces_every_kind_of_error() {
    for kind in StoreError::KINDS {
        fails_as(kind).await;
    }
}
