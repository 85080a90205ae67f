//! Redis, or a machine in its place, sends replies meant to harm: callers are served, memory stays
//! bounded, and the reason is reported in a short line.

use std::time::Duration;

use crate::hostile::figures;
use crate::overload::EDGE;
use crate::support::client::Served;
use crate::support::hostile_redis::{Harm, HostileRedis};
use crate::support::process::wait_until;

/// The most memory of the service: three connections, each with one reply of at most 2 MiB or 32,768
/// values, and what fred makes of it.
const RESIDENT_KIB_MAX: u64 = 64 << 10;

#[test]
fn no_reply_of_redis_ends_the_service_or_takes_its_memory() {
    for harm in Harm::ALL {
        let redis = HostileRedis::start(harm);
        let served = Served::with(&[EDGE], &["--store", &redis.url()]);
        let figures = figures(&format!("Redis: {harm:?}"), &served, || ());
        assert!(figures.keeps_calls(), "{harm:?}");
        assert!(figures.most_kib < RESIDENT_KIB_MAX, "{harm:?}: {figures:?}");
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
