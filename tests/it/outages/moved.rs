//! The server behind a connection became a replica, and another is the primary: Redis reports it in
//! an error and keeps the connection open.

use std::sync::Arc;

use tidegate::clock::Stopwatch;
use tidegate::decide::CounterRequest;
use tidegate::limit::Algorithm;
use tidegate::on_store_failure::OnStoreFailure;
use tidegate::store::DecideContext;
use tidegate::store_error::StoreError;
use tokio::task::yield_now;
use tokio::time::{interval, timeout};

use super::*;
use crate::counters::{limit, take};
use crate::support::proxy::Proxy;
use crate::support::stores::{Layered, shared, store_at};

const DEADLINE: Duration = Duration::from_secs(20);

fn hit() -> Vec<CounterRequest> {
    vec![take("user", &limit(Algorithm::FixedWindow, 1_000_000, 3_600_000))]
}

async fn decided(store: &Layered) -> Result<(), StoreError> {
    // A server known to be down is skipped at once; the probe that detects its return must run too.
    yield_now().await;
    let decision = store.transact(hit(), OnStoreFailure::Error, DecideContext::now()).await;
    decision.map(drop)
}

/// Sends requests until the store decides.
async fn until_decided(store: &Layered, what: &str) {
    let asking = async { while decided(store).await.is_err() {} };
    timeout(DEADLINE, asking).await.unwrap_or_else(|_late| panic!("{what}: no decision"));
}

/// Sends requests until the store answers with an error of this kind.
async fn until_refused(store: &Layered, kind: &str) {
    let is_refused = async || decided(store).await.is_err_and(|error| error.kind() == kind);
    let asking = async { while !is_refused().await {} };
    timeout(DEADLINE, asking).await.unwrap_or_else(|_late| panic!("{kind}: it decides"));
}

fn follow(replica: &RedisServer, primary: &RedisServer) {
    replica.command(&["REPLICAOF", "127.0.0.1", &primary.port().to_string()]);
}

#[tokio::test]
async fn any_error_of_a_replica_resolves_its_address_again() {
    for version in Version::ALL {
        for kind in ["readonly", "masterdown"] {
            let old = RedisServer::start_with(version, &["--replica-serve-stale-data", "no"]);
            let new = RedisServer::start(version);
            let mut primary = RedisServer::start(version);
            let proxy = Proxy::before(old.addr());
            let store = store_at(&proxy.url(), &shared(0)).await;
            until_decided(&store, "primary").await;
            if kind == "masterdown" {
                primary.stop();
            } else {
                old.command(&["CONFIG", "SET", "replica-serve-stale-data", "yes"]);
            }
            follow(&old, &primary);
            until_refused(&store, kind).await;
            proxy.lead_to(new.addr());
            until_decided(&store, kind).await;
            assert!(!new.keys().is_empty(), "{version:?}, {kind}: the new primary counts");
        }
    }
}

#[tokio::test]
async fn only_the_connection_to_a_replica_is_replaced() {
    let [old, new] = [Version::Redis70, Version::Redis70].map(RedisServer::start);
    let proxy = Proxy::before(old.addr());
    // As two threads of one service have them.
    let shared = shared(0);
    let moved = store_at(&proxy.url(), &shared).await;
    until_decided(&moved, "primary").await;
    proxy.lead_to(new.addr());
    let right = store_at(&proxy.url(), &shared).await;
    follow(&old, &new);
    until_refused(&moved, "readonly").await;
    let asking = async {
        while decided(&moved).await.is_err() {
            decided(&right).await.expect("the other connection is not touched");
        }
    };
    timeout(DEADLINE, asking).await.expect("both decide");
    assert_eq!(proxy.accepted(), 3, "one new connection, of the one that was refused");
}

#[tokio::test]
async fn an_address_that_still_leads_to_a_replica_is_retried_with_backoff() {
    const ASKED_FOR: Duration = Duration::from_millis(2_500);
    let [old, new] = [Version::Redis70, Version::Redis70].map(RedisServer::start);
    let proxy = Proxy::before(old.addr());
    let store = Arc::new(store_at(&proxy.url(), &shared(0)).await);
    until_decided(&store, "primary").await;
    follow(&old, &new);
    until_refused(&store, "readonly").await;
    let (connected, begun) = (proxy.accepted(), Stopwatch::start());
    let mut ticks = interval(Duration::from_millis(5));
    while begun.elapsed() < ASKED_FOR {
        ticks.tick().await;
        assert!(decided(&store).await.is_err(), "a replica decides nothing");
    }
    let connections = proxy.accepted() - connected;
    assert!(connections >= 2, "it is tried again: {connections}");
    // A probe every 100 ms would make 25 of them.
    assert!(connections <= 15, "{connections} connections in {:?}", begun.elapsed());
    proxy.lead_to(new.addr());
    until_decided(&store, "the new primary").await;
}
