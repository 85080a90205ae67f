//! A steady load while Redis, or the network to it, fails: every call is answered in time, and
//! Redis decides again soon after it recovers.

use std::time::Duration;

use tidegate::proto::tidegate::v1::DecisionSource::{Fallback, Store};

use crate::support::client::{Request, Served, request};
use crate::support::load::{Load, Sample, Samples};
use crate::support::proxy::{Mode, Proxy};
use crate::support::sentinels::Sentinels;
use crate::support::servers::{RedisServer, Version};

const LIMITS: &str = "{domain: edge, descriptors: [\
    {key: user, rate_limit: {limit: 1000000, period: 1h, algorithm: sliding_window_counter}}]}";

/// Requests per second; unoptimized, the most that a thread can serve which shares two cores with
/// ten others.
const RATE: u32 = if cfg!(debug_assertions) { 100 } else { 500 };

/// The default timeout, because the time to an answer is tested.
const STORE_TIMEOUT: Duration = Duration::from_millis(15);

/// The delay that a busy machine may add to an answer, besides the one it adds to the slowest
/// request that needs no store: these tests share two cores with others.
const BUSY: Duration = Duration::from_millis(150);

/// The deadline for Redis to decide again: several attempts, of which one has to succeed on a busy
/// machine.
fn back_max(slowest_control: Duration) -> Duration {
    Duration::from_secs(2) + 10 * slowest_control
}

/// The deadline for a new primary to decide if it already exists when the client looks for it.
fn found_max(slowest_control: Duration) -> Duration {
    Duration::from_secs(1) + 10 * slowest_control
}

/// A deadline for steps that are immediate.
const DEADLINE: Duration = Duration::from_secs(20);

fn user() -> Request {
    request("edge").about("user", "a")
}

fn served(url: &str) -> Served {
    Served::with(&[LIMITS], &["--store", url])
}

/// A load that the store decides, plus requests that need no store.
fn steady(served: &Served) -> Load {
    let control = request("unknown").about("user", "a");
    let load = Load::start_beside(served.tidegate.grpc, RATE, &user(), &control);
    load.wait_for(DEADLINE, |sample| sample.source == Store);
    load.go_on_for(Duration::from_millis(300));
    load
}

fn is_fallback(sample: &Sample) -> bool {
    sample.source == Fallback
}

/// Asserts that every request got a decision, and that none waited for Redis, which is much longer
/// than the slowest request without it. Prints a row of the table of `make faults`: the fault, the
/// requests, their p99.9 and how soon Redis decided again.
fn assert_answered(
    what: &str,
    (samples, slowest_control): (&Samples, Duration),
    back_after: Option<Duration>,
) {
    let back_after = back_after.map_or_else(|| "-".to_owned(), |pause| format!("{pause:.0?}"));
    eprintln!("| {what} | {} | {:.1?} | {back_after} |", samples.0.len(), samples.p999());
    assert!(samples.all_answered(), "{what}");
    assert!(samples.errors().is_empty(), "{what}: {:?}", samples.errors().first());
    let p999 = samples.p999();
    assert!(
        p999 <= STORE_TIMEOUT + BUSY + 2 * slowest_control,
        "{what}: p99.9 {p999:?}, {:?}; without the store {slowest_control:?}",
        samples.slowest()
    );
}

/// Asserts, from the end of a fault on, that Redis decides again within the deadline, and that every
/// request of the load was answered. The deadline is computed from the slowest control request.
fn assert_recovers(what: &str, load: Load, deadline: fn(Duration) -> Duration) {
    let healed = load.now();
    let back = load.wait_for(DEADLINE, |sample| sample.sent > healed && sample.source == Store);
    load.go_on_for(Duration::from_millis(300));
    let (samples, slowest_control) = load.stop_beside();
    let pause = back.sent - healed;
    assert_answered(what, (&samples, slowest_control), Some(pause));
    assert!(pause <= deadline(slowest_control), "{what}: back after {pause:?}");
}

#[test]
fn every_call_is_answered_during_network_faults_and_redis_decides_again() {
    let server = RedisServer::start(Version::Redis70);
    let slow = Mode::DelayReplies(Duration::from_millis(200));
    for (name, mode) in [
        ("every reply 200 ms late", slow),
        ("network stalled", Mode::Stall),
        ("connections cut, and new ones too", Mode::Cut),
        ("connections refused", Mode::Refuse),
        ("replies lost", Mode::DropReplies),
    ] {
        let proxy = Proxy::before(server.addr());
        let served = served(&proxy.url());
        let load = steady(&served);
        let connected = proxy.accepted();
        proxy.set(mode);
        load.wait_for(DEADLINE, is_fallback);
        load.go_on_for(Duration::from_millis(700));
        proxy.set(Mode::Pass);
        assert_recovers(name, load, back_max);
        // Of three threads, or a few more on machines with more cores.
        let connections = proxy.accepted() - connected;
        assert!(connections <= 100, "{mode:?}: {connections} connections in about a second");
    }
}

#[test]
fn a_reply_cut_in_half_costs_no_decision() {
    let server = RedisServer::start(Version::Redis70);
    let proxy = Proxy::before(server.addr());
    let served = served(&proxy.url());
    let load = steady(&served);
    for _ in 0..5 {
        proxy.set(Mode::HalveReply);
        load.go_on_for(Duration::from_millis(200));
    }
    let (samples, slowest_control) = load.stop_beside();
    assert_answered("replies cut in half, five times", (&samples, slowest_control), None);
}

#[test]
fn the_fallback_decides_while_a_server_is_killed_or_stopped() {
    let mut server = RedisServer::start(Version::Redis70);
    let served = served(&server.url());
    let load = steady(&served);
    server.pause();
    load.wait_for(DEADLINE, is_fallback);
    load.go_on_for(Duration::from_millis(500));
    server.resume();
    let resumed = load.now();
    let resumed =
        load.wait_for(DEADLINE, |sample| sample.sent > resumed && sample.source == Store).sent
            - resumed;
    server.stop();
    let stopped = load.now();
    load.wait_for(DEADLINE, |sample| sample.sent > stopped && is_fallback(sample));
    server.restart();
    let restarted = load.now();
    let back = load.wait_for(DEADLINE, |sample| sample.sent > restarted && sample.source == Store);
    let (samples, slowest_control) = load.stop_beside();
    let stopped_at = |sample: &Sample| sample.sent < stopped;
    let (first, second): (Vec<_>, Vec<_>) = samples.0.iter().copied().partition(stopped_at);
    let back_after = Some(back.sent - restarted);
    assert_answered("redis stopped (SIGSTOP)", (&Samples(first), slowest_control), Some(resumed));
    assert_answered("redis killed", (&Samples(second), slowest_control), back_after);
}

#[test]
fn a_sentinel_failover_is_followed() {
    let mut sentinels = Sentinels::start();
    let served = served(&sentinels.url());
    let load = steady(&served);
    let lost = sentinels.kill_master();
    sentinels.wait_for_failover(lost, DEADLINE);
    assert_recovers("sentinel failover, master killed", load, back_max);
}

#[test]
fn a_failover_that_keeps_connections_open_is_followed() {
    let sentinels = Sentinels::start();
    let served = served(&sentinels.url());
    let load = steady(&served);
    let lost = sentinels.hand_over();
    sentinels.wait_for_failover(lost, DEADLINE);
    assert_recovers("sentinel failover, by the command FAILOVER", load, found_max);
}

#[test]
fn an_address_that_moves_to_a_new_primary_is_followed() {
    let old = RedisServer::start(Version::Redis70);
    let new = RedisServer::start(Version::Redis70);
    let proxy = Proxy::before(old.addr());
    let served = served(&proxy.url());
    let load = steady(&served);
    // The old primary becomes a replica, and the address leads to it for a while.
    old.command(&["REPLICAOF", "127.0.0.1", &new.port().to_string()]);
    load.wait_for(DEADLINE, is_fallback);
    load.go_on_for(Duration::from_millis(700));
    proxy.lead_to(new.addr());
    assert_recovers("address moved to a new primary, connections kept", load, found_max);
}
