//! No over-admission and no lost hit: for concurrent callers and processes, exactly the limit
//! passes, and a second limit of the same requests loses exactly as much.
//!
//! No limit here gives a hit back while the test runs: windows end in decades or an hour after the
//! first hit, buckets refill one hit per year.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tidegate::limit::Algorithm;
use tokio::task::JoinSet;

use crate::support::client::{Caller, Request, Served, request};
use crate::support::servers::{RedisServer, Version};

const NARROW: u64 = 1_000;
const WIDE: u64 = 5_000;
const CALLS: u32 = 1_500;
const CALLERS: usize = 64;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_on_one_redis_admit_exactly_the_limit_of_every_algorithm() {
    let redis = RedisServer::start(Version::Redis70);
    let limits = limits();
    let limits: Vec<_> = limits.iter().map(String::as_str).collect();
    let url = redis.url();
    // On a busy machine a decision may take long; here only correctness matters.
    let args = ["--store", &url, "--store-timeout", "10s"];
    let processes = [Served::with(&limits, &args), Served::with(&limits, &args)];
    for algorithm in Algorithm::ALL {
        admits_exactly_the_limit(algorithm, &processes).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_admits_exactly_the_limit_of_every_algorithm() {
    let limits = limits();
    let limits: Vec<_> = limits.iter().map(String::as_str).collect();
    let processes = [Served::with(&limits, &[])];
    for algorithm in Algorithm::ALL {
        admits_exactly_the_limit(algorithm, &processes).await;
    }
}

/// One file per algorithm: a domain of its name with the limits `narrow` and `wide`.
fn limits() -> Vec<String> {
    let file = |algorithm: Algorithm| {
        let shape = |hits| match algorithm {
            // Aligned to the epoch: the first ends in 2069.
            Algorithm::FixedWindow => format!("limit: {hits}, period: 36500d"),
            Algorithm::SlidingWindowLog | Algorithm::SlidingWindowCounter => {
                format!("limit: {hits}, period: 1h")
            }
            Algorithm::TokenBucket | Algorithm::LeakyBucket | Algorithm::Gcra => {
                format!("limit: 1, period: 365d, burst: {hits}")
            }
        };
        let name = algorithm.name();
        format!(
            "domain: {name}\ndescriptors:\n  \
             - {{ key: narrow, rate_limit: {{ algorithm: {name}, {} }} }}\n  \
             - {{ key: wide, rate_limit: {{ algorithm: {name}, {} }} }}\n",
            shape(NARROW),
            shape(WIDE)
        )
    };
    Algorithm::ALL.into_iter().map(file).collect()
}

async fn admits_exactly_the_limit(algorithm: Algorithm, processes: &[Served]) {
    let domain = algorithm.name();
    let both = request(domain).about("narrow", "one").about("wide", "one");
    let mut connections = Vec::new();
    for process in processes {
        connections.push(process.caller().await);
    }
    let calls = Arc::new(AtomicU32::new(0));
    let mut callers = JoinSet::new();
    for at in 0..CALLERS {
        let caller = connections[at % connections.len()].clone();
        callers.spawn(call_on(caller, both.clone(), Arc::clone(&calls)));
    }
    let allowed: u64 = callers.join_all().await.into_iter().sum();
    assert_eq!(allowed, NARROW, "{domain}");
    for caller in &connections {
        let narrow = caller.remaining(&request(domain).about("narrow", "one")).await;
        let wide = caller.remaining(&request(domain).about("wide", "one")).await;
        assert_eq!((narrow, wide), (0, WIDE - NARROW), "left of {domain}");
        assert!(!caller.allows(&both).await, "{domain} admits one more");
    }
}

/// Sends calls until all callers together have sent all, and counts the allowed ones.
async fn call_on(caller: Caller, request: Request, calls: Arc<AtomicU32>) -> u64 {
    let mut allowed = 0;
    while calls.fetch_add(1, Ordering::Relaxed) < CALLS {
        allowed += u64::from(caller.allows(&request).await);
    }
    allowed
}
