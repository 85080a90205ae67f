//! A steady load while Redis, or the way to it, fails: every call is answered, in time, and Redis
//! decides again soon after it can.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on panics")]

use std::time::Duration;

use tidegate::proto::tidegate::v1::DecisionSource::{Fallback, Store};

use crate::support::client::{Request, Served, request};
use crate::support::load::{Load, Sample, Samples};
use crate::support::proxy::{Mode, Proxy};
use crate::support::sentinels::Sentinels;
use crate::support::servers::{RedisServer, Version};

const LIMITS: &str = "{domain: edge, descriptors: [\
    {key: user, rate_limit: {limit: 1000000, period: 1h, algorithm: sliding_window_counter}}]}";

/// Requests a second.
const RATE: u32 = 500;

/// As it is by default, for the time to an answer is what is tested.
const STORE_TIMEOUT: Duration = Duration::from_millis(15);

/// What a busy machine may add to an answer: these tests share two cores with others.
const BUSY: Duration = Duration::from_millis(150);

/// For what ought to come at once.
const DEADLINE: Duration = Duration::from_secs(20);

fn user() -> Request {
    request("edge").about("user", "a")
}

fn served(url: &str) -> Served {
    Served::with(&[LIMITS], &["--store", url])
}

/// A load that the store decides.
fn steady(served: &Served) -> Load {
    let load = Load::start(served.tidegate.grpc, RATE, &user());
    load.wait_for(DEADLINE, |sample| sample.source == Store);
    load.go_on_for(Duration::from_millis(300));
    load
}

fn is_fallback(sample: &Sample) -> bool {
    sample.source == Fallback
}

/// Every request got a decision, and none waited for Redis.
fn assert_answered(what: &str, samples: &Samples) {
    assert!(samples.all_answered(), "{what}");
    assert!(samples.errors().is_empty(), "{what}: {:?}", samples.errors().first());
    let p999 = samples.p999();
    assert!(p999 <= STORE_TIMEOUT + BUSY, "{what}: p99.9 {p999:?}, {:?}", samples.slowest());
}

#[test]
fn whatever_the_network_does_every_call_is_answered_and_redis_decides_again() {
    let server = RedisServer::start(Version::Redis70);
    let slow = Mode::DelayReplies(Duration::from_millis(200));
    for mode in [slow, Mode::Stall, Mode::Cut, Mode::Refuse, Mode::DropReplies] {
        let proxy = Proxy::before(server.addr());
        let served = served(&proxy.url());
        let load = steady(&served);
        proxy.set(mode);
        load.wait_for(DEADLINE, is_fallback);
        load.go_on_for(Duration::from_millis(700));
        proxy.set(Mode::Pass);
        let healed = load.now();
        let back = load.wait_for(DEADLINE, |sample| sample.sent > healed && sample.source == Store);
        load.go_on_for(Duration::from_millis(200));
        let samples = load.stop();
        assert_answered(&format!("{mode:?}"), &samples);
        let pause = back.sent - healed;
        assert!(pause <= Duration::from_secs(2), "{mode:?}: back after {pause:?}");
    }
}

#[test]
fn a_reply_that_is_cut_in_half_costs_no_decision() {
    let server = RedisServer::start(Version::Redis70);
    let proxy = Proxy::before(server.addr());
    let served = served(&proxy.url());
    let load = steady(&served);
    for _ in 0..5 {
        proxy.set(Mode::HalveReply);
        load.go_on_for(Duration::from_millis(200));
    }
    assert_answered("halved", &load.stop());
}

#[test]
fn a_server_that_is_killed_or_stopped_is_done_without_until_it_is_back() {
    let mut server = RedisServer::start(Version::Redis70);
    let served = served(&server.url());
    let load = steady(&served);
    server.pause();
    load.wait_for(DEADLINE, is_fallback);
    load.go_on_for(Duration::from_millis(500));
    server.resume();
    let resumed = load.now();
    load.wait_for(DEADLINE, |sample| sample.sent > resumed && sample.source == Store);
    server.stop();
    let stopped = load.now();
    load.wait_for(DEADLINE, |sample| sample.sent > stopped && is_fallback(sample));
    server.restart();
    let restarted = load.now();
    load.wait_for(DEADLINE, |sample| sample.sent > restarted && sample.source == Store);
    assert_answered("killed and stopped", &load.stop());
}

#[test]
fn a_sentinel_failover_is_followed() {
    let mut sentinels = Sentinels::start();
    let served = served(&sentinels.url());
    let load = steady(&served);
    let lost = sentinels.kill_master();
    sentinels.wait_for_failover(lost, DEADLINE);
    let failed_over = load.now();
    let back =
        load.wait_for(DEADLINE, |sample| sample.sent > failed_over && sample.source == Store);
    load.go_on_for(Duration::from_millis(300));
    assert_answered("failover", &load.stop());
    let pause = back.sent - failed_over;
    assert!(pause <= Duration::from_secs(2), "back after {pause:?}");
}
