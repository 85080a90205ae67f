//! The legs that are measured in each round, in this order.

use crate::limits::{KEYS, ONE_VALUE, domain_of};
use crate::servers::{Servers, Target};

pub const FLOOR: &str = "floor";
pub const MEMORY: &str = "memory";
pub const REDIS_UNIFORM: &str = "Redis, uniform keys";
pub const REDIS_SINGLE: &str = "Redis, one script a request";
pub const REDIS_ZIPF: &str = "Redis, Zipf 1.1 keys";
pub const REDIS_OVER: &str = "Redis, 90 % over the limit";
pub const LOW_FLOOR: &str = "one at a time: floor";
pub const LOW_MEMORY: &str = "one at a time: memory";
pub const LOW_REDIS: &str = "one at a time: Redis";
pub const OPEN_FLOOR: &str = "open loop: floor";
pub const OPEN_MEMORY: &str = "open loop: memory";
pub const OPEN_REDIS: &str = "open loop: Redis";
pub const RULES_FEW: &str = "memory, 10 rules";
pub const RULES_MANY: &str = "memory, 10,000 rules";
pub const LOG_SHORT: &str = "Redis, log of 10 hits";
pub const LOG_LONG: &str = "Redis, log of 10,000 hits";
pub const LIMITS_24_MEMORY: &str = "memory, 24 limits";
pub const LIMITS_24_REDIS: &str = "Redis, 24 limits";

const ONE_AT_A_TIME: &str = "one at a time: ";
const OPEN_LOOP: &str = "open loop: ";

/// How requests are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sending {
    /// 128 in flight on 4 connections.
    Saturating,
    /// One in flight on one connection.
    OneAtATime,
    /// At a third of the saturation of Redis.
    OpenLoop,
}

/// One load on one service.
#[derive(Clone, Debug)]
pub struct Leg {
    pub name: String,
    pub target: Target,
    pub sending: Sending,
    pub domain: String,
    pub descriptors: Vec<String>,
    /// Stops after so many requests instead of after a time.
    pub requests: Option<u32>,
}

/// The leg of an algorithm that stores one value.
pub fn one_value(algorithm: &str) -> String {
    format!("Redis, {algorithm}")
}

/// The floor with the same way of sending.
pub fn floor_of(name: &str) -> &'static str {
    let floors = [(ONE_AT_A_TIME, LOW_FLOOR), (OPEN_LOOP, OPEN_FLOOR)];
    floors.iter().find(|(prefix, _)| name.starts_with(prefix)).map_or(FLOOR, |(_, floor)| *floor)
}

/// All legs, except those whose server is missing.
pub fn all(servers: &Servers) -> Vec<Leg> {
    use Sending::{OneAtATime, OpenLoop, Saturating};
    let uniform = || three("{uniform:100000}");
    let numbered = || (0..24).map(|at| format!("k{at}={{uniform:10000}}")).collect();
    let mut over = uniform();
    over[0] = "user={mix:90:hot-{uniform:100}|{uniform:100000}}".to_owned();
    let mut legs = vec![
        (FLOOR.to_owned(), "floor", Saturating, "edge".to_owned(), uniform()),
        (MEMORY.to_owned(), "memory", Saturating, "edge".to_owned(), uniform()),
        (REDIS_UNIFORM.to_owned(), "redis", Saturating, "edge".to_owned(), uniform()),
        (REDIS_SINGLE.to_owned(), "redis, no batches", Saturating, "edge".to_owned(), uniform()),
        (REDIS_ZIPF.to_owned(), "redis", Saturating, "edge".to_owned(), three("{zipf:100000}")),
        (REDIS_OVER.to_owned(), "redis", Saturating, "over".to_owned(), over),
        (LOW_FLOOR.to_owned(), "floor", OneAtATime, "edge".to_owned(), uniform()),
        (LOW_MEMORY.to_owned(), "memory", OneAtATime, "edge".to_owned(), uniform()),
        (LOW_REDIS.to_owned(), "redis", OneAtATime, "edge".to_owned(), uniform()),
        (OPEN_FLOOR.to_owned(), "floor", OpenLoop, "edge".to_owned(), uniform()),
        (OPEN_MEMORY.to_owned(), "memory", OpenLoop, "edge".to_owned(), uniform()),
        (OPEN_REDIS.to_owned(), "redis", OpenLoop, "edge".to_owned(), uniform()),
        (RULES_FEW.to_owned(), "memory", Saturating, "rules-10".to_owned(), uniform()),
        (RULES_MANY.to_owned(), "memory", Saturating, "rules-10000".to_owned(), uniform()),
        (LIMITS_24_MEMORY.to_owned(), "memory", Saturating, "wide".to_owned(), numbered()),
        (LIMITS_24_REDIS.to_owned(), "redis", Saturating, "wide".to_owned(), numbered()),
        (LOG_SHORT.to_owned(), "redis", Saturating, "log-10".to_owned(), log()),
        (LOG_LONG.to_owned(), "redis", Saturating, "log-10000".to_owned(), log()),
    ];
    for algorithm in ONE_VALUE {
        let leg = one_value(algorithm);
        legs.push((leg, "redis", Saturating, domain_of(algorithm), uniform()));
    }
    let own = legs.into_iter().filter_map(|(name, server, sending, domain, descriptors)| {
        let target = servers.target(server)?;
        let requests = domain.starts_with("log-").then_some(LOG_REQUESTS);
        Some(Leg { name, target, sending, domain, descriptors, requests })
    });
    let own: Vec<_> = own.collect();
    own.into_iter().chain(servers.others().iter().flat_map(of_other)).collect()
}

/// Few, because each makes the log longer: a leg adds 500 hits to each of the 20 logs.
const LOG_REQUESTS: u32 = 10_000;

/// The only descriptor of the logs.
pub fn log() -> Vec<String> {
    vec!["k={uniform:20}".to_owned()]
}

/// The three descriptors of most legs, with values of that pattern.
pub fn three(pattern: &str) -> Vec<String> {
    KEYS.iter().map(|key| format!("{key}={pattern}")).collect()
}

fn of_other(target: &Target) -> Vec<Leg> {
    let leg = |prefix: &str, sending| Leg {
        name: format!("{prefix}{}", target.name),
        target: target.clone(),
        sending,
        domain: "edge".to_owned(),
        descriptors: three("{uniform:100000}"),
        requests: None,
    };
    vec![
        leg("", Sending::Saturating),
        leg(ONE_AT_A_TIME, Sending::OneAtATime),
        leg(OPEN_LOOP, Sending::OpenLoop),
    ]
}
