//! Redis says that it cannot decide for a while: it is done without until it can.

use super::*;
use crate::support::acl::User;
use crate::support::cluster::Cluster;
use crate::support::process;
use crate::support::resp::Connection;
use crate::support::servers::Reply;

const DEADLINE: Duration = Duration::from_secs(20);

/// With time enough that every answer comes.
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

/// One request finds out, and the next does not ask any more.
async fn is_done_without(kind: &str, served: &Served, caller: &Caller) {
    let known_down = store_errors(served, "unavailable");
    assert_eq!(store_errors(served, kind), 0);
    assert_eq!(asked(caller, "first").await, (true, FALLBACK), "{kind}");
    assert_eq!(store_errors(served, kind), 1);
    assert_eq!(asked(caller, "next").await, (true, FALLBACK), "{kind}");
    assert_eq!(store_errors(served, "unavailable"), known_down + 1, "{kind}: not asked again");
}

/// Redis decides again, and gets what was admitted without it: of the first request so much.
async fn recovers(caller: &Caller, hits_of_first: u64) {
    until_the_store_decides(caller).await;
    until("the next is charged", async || left(caller, "next").await == 5).await;
    let wanted = 6 - hits_of_first;
    until("the first counts as it should", async || left(caller, "first").await == wanted).await;
}

#[tokio::test]
async fn a_server_that_is_busy_with_a_script_is_done_without_until_it_ends() {
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
async fn a_replica_that_lost_its_primary_is_done_without_until_it_is_promoted() {
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
async fn a_server_that_loads_its_data_is_done_without_until_it_has_them() {
    // It looks at its connections after some tens of keys, of which each takes a while.
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
async fn a_cluster_that_lost_a_slot_is_done_without_until_it_has_all() {
    let cluster = Cluster::start();
    let served = patient(&cluster.url());
    let caller = served.caller().await;
    until_the_store_decides(&caller).await;
    let slot = cluster.slot_of(b"{edge}");
    let master = cluster.master_of(slot);
    // Its neighbour, of the same master.
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
    // The client cannot tell a run that was refused from others under way there.
    recovers(&caller, 0).await;
}

#[tokio::test]
async fn a_server_is_found_to_be_back_by_a_user_who_may_touch_one_domain_only() {
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
        // Not before: a run that was sent is answered by the server that comes, and shows it too.
        let refused = || served.page("/readyz").body.contains("Connection refused");
        until("its connections are gone", async || refused()).await;
        until("it is down", async || asked(&caller, "a").await.1 == FALLBACK).await;
        redis.restart();
        until_the_store_decides(&caller).await;
    }
}
