//! The goals for Tidegate's performance, as ratios.

use crate::legs;
use crate::limits::ONE_VALUE;
use crate::measure::{Figures, Results, single_script};

/// Figures that no leg measures.
#[derive(Clone, Copy, Debug)]
pub struct Extra {
    /// The median latency of PING.
    pub ping_us: f64,
    pub bytes_a_counter: f64,
    /// Requests per second of the open loop.
    pub open_rate: u32,
}

/// A goal, and the measured figure.
pub struct Goal {
    pub name: String,
    pub measured: f64,
    pub at_most: f64,
    pub unit: &'static str,
}

impl Goal {
    pub fn met(&self) -> bool {
        self.measured <= self.at_most
    }
}

/// All goals, in the order of docs/performance.md.
pub fn all(results: &Results, extra: &Extra) -> Vec<Goal> {
    let leg = |name: &str| results.median(name).expect("every round runs every leg");
    let (floor, redis) = (leg(legs::FLOOR), leg(legs::REDIS_UNIFORM));
    let single = single_script(results).expect("Redis was measured");
    let wait_us = leg(legs::LOW_REDIS).p50_us - leg(legs::LOW_FLOOR).p50_us;
    let server = |over: &str, under: &str| server(&leg(over)) / server(&leg(under));
    let on_redis = |over: &str, under: &str| leg(over).redis_us / leg(under).redis_us;
    let late = leg(legs::OPEN_REDIS).p999_us / leg(legs::OPEN_FLOOR).p999_us;
    let ratio = |name: &str, measured, at_most| goal(name, measured, at_most, "x");
    vec![
        ratio("memory: server CPU to the floor's", server(legs::MEMORY, legs::FLOOR), 1.25),
        ratio(
            "Redis, uniform keys: server CPU to the floor's",
            self::server(&redis) / self::server(&floor),
            1.7,
        ),
        goal(
            "Redis, uniform keys: Redis CPU; 5.5 us, or 0.6 of one script a request",
            redis.redis_us,
            (0.6 * single.redis_us).max(5.5),
            "us",
        ),
        ratio(
            "Zipf 1.1 keys: Redis CPU to uniform",
            on_redis(legs::REDIS_ZIPF, legs::REDIS_UNIFORM),
            0.6,
        ),
        ratio(
            "90 % over the limit: Redis CPU to uniform",
            on_redis(legs::REDIS_OVER, legs::REDIS_UNIFORM),
            0.2,
        ),
        goal(
            "one at a time: p50 on Redis over the floor's; one PING and 40 us",
            wait_us,
            extra.ping_us + 40.0,
            "us",
        ),
        ratio("open loop: p99.9 on Redis to the floor's", late, 3.0),
        ratio("10,000 rules to 10: server CPU", server(legs::RULES_MANY, legs::RULES_FEW), 1.05),
        ratio(
            "algorithms that keep one value, dearest to cheapest: server CPU",
            spread(results, self::server),
            1.15,
        ),
        ratio("the same: Redis CPU", spread(results, |figures| figures.redis_us), 1.15),
        ratio(
            "log of 10,000 hits to 10: Redis CPU",
            on_redis(legs::LOG_LONG, legs::LOG_SHORT),
            2.0,
        ),
        goal("1,000,000 counters in memory: bytes each", extra.bytes_a_counter, 100.0, "bytes"),
        ratio(
            "24 limits to 3, memory: server CPU",
            server(legs::LIMITS_24_MEMORY, legs::MEMORY),
            3.5,
        ),
        ratio(
            "24 limits to 3, Redis: server CPU",
            server(legs::LIMITS_24_REDIS, legs::REDIS_UNIFORM),
            3.5,
        ),
    ]
}

fn goal(name: &str, measured: f64, at_most: f64, unit: &'static str) -> Goal {
    Goal { name: name.to_owned(), measured, at_most, unit }
}

fn server(figures: &Figures) -> f64 {
    figures.server_us.expect("the processes of a bench are known")
}

/// The most expensive of the algorithms that store one value, relative to the cheapest.
fn spread(results: &Results, figure: fn(&Figures) -> f64) -> f64 {
    let of = |algorithm: &str| figure(&results.median(&legs::one_value(algorithm)).expect("a leg"));
    let all = ONE_VALUE.map(of);
    all.iter().copied().fold(0.0, f64::max) / all.iter().copied().fold(f64::INFINITY, f64::min)
}
