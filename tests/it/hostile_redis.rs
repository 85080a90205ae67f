//! Redis, or a machine in its place, sends replies meant to harm: callers are served, memory stays
//! bounded, and the reason is reported in a short line.

use std::time::Duration;

use crate::support::client::{Served, request};
use crate::support::hostile_redis::{Harm, HostileRedis};
use crate::support::load::Load;
use crate::support::process::wait_until;

const EDGE: &str =
    "{domain: edge, descriptors: [{key: k, rate_limit: {limit: 4000000000, period: 36500d}}]}";

/// How long each reply is sent for; longer for the figures of `make hostile`.
fn attack() -> Duration {
    let seconds = std::env::var("TIDEGATE_HOSTILE_SECONDS").ok();
    seconds.map_or(Duration::from_secs(1), |seconds| {
        Duration::from_secs(seconds.parse().expect("TIDEGATE_HOSTILE_SECONDS is whole seconds"))
    })
}

/// The most memory of the service: three connections, each with one reply of at most 2 MiB or 32,768
/// values, and what fred makes of it.
const RESIDENT_KIB_MAX: u64 = 64 << 10;

#[test]
fn no_reply_of_redis_ends_the_service_or_takes_its_memory() {
    for harm in Harm::ALL {
        let redis = HostileRedis::start(harm);
        let served = Served::with(&[EDGE], &["--store", &redis.url()]);
        let load = Load::start(served.tidegate.grpc, 200, &request("edge").about("k", "neighbour"));
        let mut most_kib = 0;
        let some_time = || {
            most_kib = most_kib.max(served.tidegate.resident_kib());
            Some(()).filter(|()| load.now() > attack())
        };
        wait_until(attack() + Duration::from_secs(20), some_time).expect("time passes");
        let samples = load.stop();
        let (refused, p99) = (samples.errors().len(), samples.p99());
        println!(
            "| Redis: {harm:?} | {refused} of {} | {:.1} ms | {} MiB | {} |",
            samples.0.len(),
            p99.as_secs_f64() * 1_000.0,
            most_kib / 1_024,
            served.tidegate.log().lines().count(),
        );
        assert_eq!(refused, 0, "{harm:?}: {:?}", samples.errors().first());
        assert!(most_kib < RESIDENT_KIB_MAX, "{harm:?}: {most_kib} KiB");
        assert!(redis.connections() > 0, "{harm:?}: nothing was sent");
        assert_eq!(served.page("/healthz").status, 200, "{harm:?}");
    }
}

#[test]
fn what_redis_says_is_reported_cut_and_escaped() {
    let redis = HostileRedis::start(Harm::LongError);
    let args = ["--store", &redis.url(), "--on-store-failure", "error"];
    let served = Served::with(&[EDGE], &args);
    let told = || Some(served.page("/readyz")).filter(|page| page.body.contains("ERR"));
    let page = wait_until(Duration::from_secs(20), told).expect("/readyz tells the reason");
    served.tidegate.wait_for_log("ERR");
    for text in [page.body, served.tidegate.log()] {
        let control = |c: &char| (c.is_control() && *c != '\n') || *c == '\u{202e}';
        assert!(!text.contains(|c| control(&c)), "{text:?}");
        let longest = text.lines().map(str::len).max().unwrap_or(0);
        assert!(longest < 2_000, "a line of {longest} bytes");
    }
}
