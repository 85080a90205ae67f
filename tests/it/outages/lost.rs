//! A connection that breaks under way: what Redis may have taken already is counted once at most.

use super::*;
use crate::support::proxy::{Mode, Proxy};

/// A service behind a network that fails on command, in which answers have so long.
fn behind(proxy: &Proxy, timeout: &str) -> Served {
    Served::with(&[LIMITS], &["--store", &proxy.url(), "--store-timeout", timeout])
}

/// A user whose one request got no answer in `mode`, which is an error of this kind. Whatever else
/// is under way then may be what gets none instead.
async fn lost_in(mode: (Mode, &str), proxy: &Proxy, served: &Served, caller: &Caller) -> String {
    let (mode, kind) = mode;
    for attempt in 0..100 {
        until_the_store_decides(caller).await;
        let name = format!("lost {attempt}");
        let before = store_errors(served, kind);
        proxy.set(mode);
        let asked = asked(caller, &name).await;
        if asked == (true, FALLBACK) && store_errors(served, kind) == before + 1 {
            return name;
        }
        proxy.set(Mode::Pass);
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
    let served = behind(&proxy, "5s");
    let caller = served.caller().await;
    let lost = lost_in((Mode::HalveReply, "lost"), &proxy, &served, &caller).await;
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
    let served = behind(&proxy, "500ms");
    let caller = served.caller().await;
    let lost = lost_in((Mode::Stall, "timeout"), &proxy, &served, &caller).await;
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
