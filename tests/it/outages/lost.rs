//! A connection that breaks under way: what Redis may have taken already is counted once at most.

use super::*;
use crate::support::proxy::{Mode, Proxy};

/// A service behind a network that fails on command, with time enough that no answer is late.
fn behind(proxy: &Proxy) -> Served {
    Served::with(&[LIMITS], &["--store", &proxy.url(), "--store-timeout", "5s"])
}

/// A user whose one request was lost under way in `mode`. Whatever else is under way then may be
/// what is lost instead.
async fn lost_in(mode: Mode, proxy: &Proxy, served: &Served, caller: &Caller) -> String {
    for attempt in 0..100 {
        until_the_store_decides(caller).await;
        let name = format!("lost {attempt}");
        proxy.set(mode);
        if asked(caller, &name).await == (true, FALLBACK) && store_errors(served, "lost") == 1 {
            return name;
        }
    }
    panic!("no run was lost: {}", served.page("/metrics").body);
}

/// Waits until what was noted is charged, which a further user's hit shows.
async fn until_all_is_charged(caller: &Caller, witness: &str) {
    until("what was admitted is charged", async || left(caller, witness).await < 6).await;
}

#[tokio::test]
async fn a_hit_whose_answer_is_lost_is_not_charged_again_and_one_never_sent_is() {
    let redis = RedisServer::start(Version::Redis70);
    let proxy = Proxy::before(redis.addr());
    let served = behind(&proxy);
    let caller = served.caller().await;
    let lost = lost_in(Mode::HalveReply, &proxy, &served, &caller).await;
    proxy.set(Mode::Refuse);
    // Until this thread knows, another run may be lost.
    until("nothing is sent", async || {
        asked(&caller, "other").await.1 == FALLBACK && store_errors(&served, "unavailable") > 0
    })
    .await;
    assert_eq!(asked(&caller, &lost).await, (true, FALLBACK));
    proxy.set(Mode::Pass);
    until_the_store_decides(&caller).await;
    until("the hit that was never sent is charged", async || left(&caller, &lost).await < 5).await;
    assert_eq!(left(&caller, &lost).await, 4, "each of the two counts once");
}

#[tokio::test]
async fn a_hit_that_was_cut_off_before_redis_had_it_is_not_charged_either() {
    let redis = RedisServer::start(Version::Redis70);
    let proxy = Proxy::before(redis.addr());
    let served = behind(&proxy);
    let caller = served.caller().await;
    // The client gives up a connection that stays silent.
    let lost = lost_in(Mode::Stall, &proxy, &served, &caller).await;
    proxy.set(Mode::Refuse);
    until("nothing is sent", async || {
        asked(&caller, "witness").await.1 == FALLBACK && store_errors(&served, "unavailable") > 0
    })
    .await;
    proxy.set(Mode::Pass);
    until_the_store_decides(&caller).await;
    until_all_is_charged(&caller, "witness").await;
    assert_eq!(left(&caller, &lost).await, 6, "nobody counts it");
}
