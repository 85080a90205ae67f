//! A connection that breaks during a request: hits that Redis may have taken are counted at most
//! once.

use super::*;
use crate::support::proxy::{Mode, Proxy};

/// A service behind a network that fails on command, with this timeout.
fn behind(proxy: &Proxy, timeout: &str) -> Served {
    Served::with(&[LIMITS], &["--store", &proxy.url(), "--store-timeout", timeout])
}

/// Sends requests of one user until one gets no answer in `mode`, with an error of this kind;
/// another request in flight may be the one that fails.
async fn lost_in(mode: (Mode, &str), proxy: &Proxy, served: &Served, caller: &Caller) -> String {
    let (mode, kind) = mode;
    for attempt in 0..100 {
        until_the_store_decides(caller).await;
        let name = format!("lost {attempt}");
        let before = store_errors(served, kind);
        proxy.set(mode);
        let answer = check(caller, &name).await;
        if answer == (true, FALLBACK) && store_errors(served, kind) == before + 1 {
            return name;
        }
        proxy.set(Mode::Pass);
    }
    panic!("no run was lost: {}", served.page("/metrics").body);
}

/// Waits until recorded hits are reconciled, which a hit of another user shows.
async fn until_all_is_charged(caller: &Caller, witness: &str) {
    until("what was admitted is charged", async || left(caller, witness).await < 6).await;
}

#[tokio::test]
async fn a_hit_whose_answer_is_lost_is_not_reconciled_and_an_unsent_one_is() {
    let redis = RedisServer::start(Version::Redis70);
    let proxy = Proxy::before(redis.addr());
    let served = behind(&proxy, "5s");
    let caller = served.caller().await;
    let lost = lost_in((Mode::HalveReply, "lost"), &proxy, &served, &caller).await;
    proxy.set(Mode::Refuse);
    // Another run may be lost until this thread knows.
    until("nothing is sent", async || {
        check(&caller, "other").await.1 == FALLBACK && store_errors(&served, "unavailable") > 0
    })
    .await;
    assert_eq!(check(&caller, &lost).await, (true, FALLBACK));
    proxy.set(Mode::Pass);
    until_the_store_decides(&caller).await;
    until("the hit that was never sent is charged", async || left(&caller, &lost).await < 5).await;
    assert_eq!(left(&caller, &lost).await, 4, "each of the two counts once");
}

#[tokio::test]
async fn a_hit_cut_off_before_redis_received_it_is_not_reconciled_either() {
    let redis = RedisServer::start(Version::Redis70);
    let proxy = Proxy::before(redis.addr());
    let served = behind(&proxy, "500ms");
    let caller = served.caller().await;
    let lost = lost_in((Mode::Stall, "timeout"), &proxy, &served, &caller).await;
    proxy.set(Mode::Refuse);
    until("nothing is sent", async || {
        check(&caller, "witness").await.1 == FALLBACK && store_errors(&served, "unavailable") > 0
    })
    .await;
    proxy.set(Mode::Pass);
    until_the_store_decides(&caller).await;
    until_all_is_charged(&caller, "witness").await;
    assert_eq!(left(&caller, &lost).await, 6, "nobody counts it");
}
