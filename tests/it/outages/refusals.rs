//! Redis reports that it cannot decide for a while: the fallback decides until it can.

use super::*;
use crate::support::acl::User;
use crate::support::cluster::Cluster;
use crate::support::process;
use crate::support::resp::Connection;
use crate::support::servers::Reply;

const DEADLINE: Duration = Duration::from_secs(20);

/// With a timeout long enough for every answer.
fn patient(url: &str) -> Served {
    Served::with(&[LIMITS], &["--store", url, "--store-timeout", "5s"])
}

/// Waits until a server refuses commands with this code.
fn until_refused(redis: &RedisServer, code: &str) {
    let refused = || {
        let reply = redis.try_command(&["GET", "x"]).ok()?;
        matches!(&reply, Reply::Error(error) if error.starts_with(code)).then_some(())
    };
    process::wait_until(DEADLINE, refused).unwrap_or_else(|| panic!("{code} from {redis:?}"));
}

/// Asserts that one request detects the error, and that the next does not query Redis.
async fn is_done_without(kind: &str, served: &Served, caller: &Caller) {
    let known_down = store_errors(served, "unavailable");
    assert_eq!(store_errors(served, kind), 0);
    assert_eq!(check(caller, "first").await, (true, FALLBACK), "{kind}");
    assert_eq!(store_errors(served, kind), 1);
    assert_eq!(check(caller, "next").await, (true, FALLBACK), "{kind}");
    assert_eq!(store_errors(served, "unavailable"), known_down + 1, "{kind}: not check again");
}

/// Waits until Redis decides again, with the hits that were admitted without it, including these of
/// the first request.
async fn recovers(caller: &Caller, hits_of_first: u64) {
    until_the_store_decides(caller).await;
    until("the next is charged", async || left(caller, "next").await == 5).await;
    let wanted = 6 - hits_of_first;
    until("the first counts as it should", async || left(caller, "first").await == wanted).await;
}

#[tokio::test]
async fn the_fallback_decides_while_a_server_is_busy_with_a_script() {
    for version in Version::ALL {
        let redis = RedisServer::start_with(version, &["--lua-time-limit", "20"]);
        let served = patient(&redis.url());
        let caller = served.caller().await;
        until_the_store_decides(&caller).await;
        let mut endless = Connection::open(redis.port()).unwrap();
        endless.send(&["EVAL", "while true do end", "0"]).unwrap();
        until_refused(&redis, "BUSY");
        is_done_without("busy", &served, &caller).await;
        assert_eq!(redis.command(&["SCRIPT", "KILL"]), Reply::Status("OK".to_owned()));
        recovers(&caller, 1).await;
    }
}

#[tokio::test]
async fn the_fallback_decides_while_a_replica_has_no_primary() {
    for version in Version::ALL {
        let redis = RedisServer::start_with(version, &["--replica-serve-stale-data", "no"]);
        let mut primary = RedisServer::start(version);
        primary.stop();
        let served = patient(&redis.url());
        let caller = served.caller().await;
        until_the_store_decides(&caller).await;
        redis.command(&["REPLICAOF", "127.0.0.1", &primary.port().to_string()]);
        until_refused(&redis, "MASTERDOWN");
        is_done_without("masterdown", &served, &caller).await;
        redis.command(&["REPLICAOF", "NO", "ONE"]);
        recovers(&caller, 1).await;
    }
}

#[tokio::test]
async fn the_fallback_decides_while_a_server_loads_its_data() {
    // It handles its connections after some tens of keys, each of which takes a while.
    let args = ["--enable-debug-command", "yes", "--loading-process-events-interval-bytes", "1024"];
    let redis = RedisServer::start_with(Version::Redis70, &args);
    let served = patient(&redis.url());
    let caller = served.caller().await;
    until_the_store_decides(&caller).await;
    redis.command(&["DEBUG", "POPULATE", "50000"]);
    redis.command(&["CONFIG", "SET", "key-load-delay", "200"]);
    let mut reload = Connection::open(redis.port()).unwrap();
    reload.send(&["DEBUG", "RELOAD"]).unwrap();
    until_refused(&redis, "LOADING");
    is_done_without("loading", &served, &caller).await;
    redis.command(&["CONFIG", "SET", "key-load-delay", "0"]);
    recovers(&caller, 1).await;
}

#[tokio::test]
async fn the_fallback_decides_while_a_cluster_lacks_a_slot() {
    let cluster = Cluster::start();
    let served = patient(&cluster.url());
    let caller = served.caller().await;
    until_the_store_decides(&caller).await;
    let slot = cluster.slot_of(b"{edge}");
    let master = cluster.master_of(slot);
    // The next slot, of the same master.
    let lost = (slot ^ 1).to_string();
    let ok = |args: &[&str]| {
        let reply = cluster.command(master, args);
        assert_eq!(reply, Reply::Status("OK".to_owned()), "{args:?}");
    };
    ok(&["CONFIG", "SET", "cluster-require-full-coverage", "yes"]);
    ok(&["CLUSTER", "DELSLOTS", &lost]);
    let down = || {
        let reply = cluster.command(master, &["GET", "{edge}"]);
        matches!(&reply, Reply::Error(error) if error.starts_with("CLUSTERDOWN")).then_some(())
    };
    process::wait_until(DEADLINE, down).expect("the cluster is down there");
    is_done_without("clusterdown", &served, &caller).await;
    ok(&["CLUSTER", "ADDSLOTS", &lost]);
    // The client cannot distinguish a refused run from others in flight.
    recovers(&caller, 0).await;
}

#[tokio::test]
async fn a_probe_succeeds_for_a_user_with_access_to_one_domain() {
    for version in Version::ALL {
        let user = User { name: "edge".to_owned(), password: "x".to_owned() };
        let rules = ["--user", "edge", "on", ">x", "~tg:{edge}:*", "+@all"];
        let mut redis = RedisServer::start_with(version, &rules);
        let url = user.url_of(&redis);
        let args = ["--store", &url, "--store-timeout", "500ms", "--threads", "1"];
        let served = Served::with(&[LIMITS], &args);
        let caller = served.caller().await;
        until_the_store_decides(&caller).await;
        redis.stop();
        // Not earlier: a run that was already sent is answered by the new server, which also shows
        // it.
        let refused = || served.page("/readyz").body.contains("Connection refused");
        until("its connections are gone", async || refused()).await;
        until("it is down", async || check(&caller, "a").await.1 == FALLBACK).await;
        redis.restart();
        until_the_store_decides(&caller).await;
    }
}
