//! The Redis store on every supported server: round trips, expiry, memory, and behaviour when the
//! server loses the script or has other data under a key.

use std::sync::Arc;

use tidegate::decide::{CounterRequest, Mode};
use tidegate::limit::{Algorithm, Limit, LimitSpec};
use tidegate::on_store_failure::OnStoreFailure;
use tidegate::store::DecideContext;
use tidegate::store_error::StoreError;

use crate::counters::{checked, limit, mixed, peek, refund, take};
use crate::random::Random;
use crate::support::servers::{RedisServer, Reply, Version};
use crate::support::stores::{DEADLINE, Layered, decide, decide_at_once, store_on};

/// A time in 2023.
const START_MS: u64 = 1_700_000_000_000;

/// Longer than any test takes.
const HOUR_MS: u64 = 3_600_000;

fn is_error<T>(result: &Result<T, StoreError>, kind: &str) -> bool {
    result.as_ref().is_err_and(|error| error.kind() == kind)
}

fn keys(server: &RedisServer) -> Vec<Vec<u8>> {
    let found = server.command(&["KEYS", "*"]).into_array();
    found.into_iter().map(Reply::into_bytes).collect()
}

fn about_key(server: &RedisServer, command: &[&str], key: &[u8]) -> Reply {
    let mut args: Vec<&[u8]> = command.iter().map(|arg| arg.as_bytes()).collect();
    args.push(key);
    server.command(&args)
}

fn info_number(server: &RedisServer, section: &str, name: &str) -> u64 {
    let info = server.info(section);
    let value = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    value.unwrap_or_else(|| panic!("no {name} in {info}")).parse().unwrap()
}

/// Calls of one command, by clients and scripts together.
fn calls(server: &RedisServer, command: &str) -> u64 {
    let info = server.info("commandstats");
    let name = format!("cmdstat_{command}:calls=");
    let stats = info.lines().find_map(|line| line.strip_prefix(&name));
    stats.map_or(0, |stats| stats.split(',').next().unwrap().parse().unwrap())
}

#[tokio::test]
async fn a_request_of_64_limits_is_one_script_run() {
    for version in Version::ALL {
        let server = RedisServer::start(version);
        let store = store_on(&server).await;
        decide(&store, &mixed(1)).await;
        let before = server.evalsha_calls();
        let decision = decide(&store, &mixed(64)).await;
        assert_eq!(server.evalsha_calls() - before, 1, "{version:?}");
        assert!(decision.allowed, "{version:?}: {decision:?}");
        assert_eq!(decision.statuses.len(), 64);
    }
}

#[tokio::test]
async fn a_flushed_script_costs_no_error_and_no_hit() {
    for version in Version::ALL {
        let server = RedisServer::start(version);
        let store = store_on(&server).await;
        for taken in 1..=5 {
            server.command(&["SCRIPT", "FLUSH"]);
            let decision = decide(&store, &mixed(1)).await;
            assert_eq!(decision.statuses[0].remaining, 100 - taken, "{version:?}");
        }
    }
}

#[tokio::test]
async fn concurrent_requests_load_a_flushed_script_and_none_fails() {
    for version in Version::ALL {
        let server = RedisServer::start(version);
        let store = Arc::new(store_on(&server).await);
        for round in 1..=5 {
            server.command(&["SCRIPT", "FLUSH"]);
            for decision in decide_at_once(&store, vec![mixed(1); 20]).await {
                assert!(decision.is_ok(), "{version:?}, round {round}: {decision:?}");
            }
        }
        let decision = decide(&store, &[CounterRequest { hits: 0, ..mixed(1).remove(0) }]).await;
        assert_eq!(decision.statuses[0].remaining, 0, "{version:?}");
    }
}

#[tokio::test]
async fn a_server_that_restarted_decides_as_soon_as_it_is_ready() {
    for version in Version::ALL {
        let mut server = RedisServer::start(version);
        let store = store_on(&server).await;
        decide(&store, &mixed(6)).await;
        server.restart();
        let ready = async {
            while store.ready().await.is_err() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(DEADLINE, ready).await.expect("reconnects");
        let decision = decide(&store, &mixed(6)).await;
        assert!(decision.allowed, "{version:?}");
        assert_eq!(decision.statuses[0].remaining, 99, "the restarted server is empty");
    }
}

#[tokio::test]
async fn every_key_expires_within_a_period_or_a_minute_after_it_is_idle() {
    for version in Version::ALL {
        let server = RedisServer::start(version);
        let store = store_on(&server).await;
        for period_ms in [50_000, HOUR_MS, 36_500 * 86_400_000] {
            server.command(&["FLUSHALL"]);
            for algorithm in Algorithm::ALL {
                let limit = limit(algorithm, 3, period_ms);
                let requests = [take("once", &limit), take("twice", &limit)];
                decide(&store, &requests).await;
                decide(&store, &requests[1..]).await;
                decide(&store, &[refund("twice", &limit, 1)]).await;
            }
            let keys = keys(&server);
            assert!(keys.len() >= 12 - 1, "{version:?}: {}", keys.len());
            for key in keys {
                let Reply::Int(ttl_ms) = about_key(&server, &["PTTL"], &key) else {
                    panic!("{key:?}")
                };
                let most_ms = i64::try_from(period_ms + period_ms.max(60_000)).unwrap();
                assert!(ttl_ms > 0 && ttl_ms <= most_ms, "{}: {ttl_ms}", key.escape_ascii());
            }
        }
    }
}

/// Takes from and gives back to one counter under these limits in turn, on the server's own clock.
/// A write may keep the old expiry; the key must expire, but not before it is idle.
async fn expires_when_idle(server: &RedisServer, store: &Layered, limits: &[Limit]) {
    const SLACK_MS: u64 = 2_000;
    let mut random = Random::of_seed(7);
    for _ in 0..300 {
        let limit = random.pick(limits);
        let mode = if random.one_in(6) { Mode::Refund } else { Mode::Take };
        let request =
            CounterRequest { hits: random.within(1..=4), mode, ..take("counter", &limit) };
        let decision = decide(store, std::slice::from_ref(&request)).await;
        let Reply::Int(ttl_ms) = about_key(server, &["PTTL"], request.key.as_bytes()) else {
            panic!("{request:?}")
        };
        assert_ne!(ttl_ms, -1, "{request:?} never expires");
        let (ttl_ms, status) = (u64::try_from(ttl_ms).unwrap_or(0), decision.statuses[0]);
        if !decision.allowed || status.remaining == limit.capacity() {
            continue;
        }
        assert!(ttl_ms >= status.reset_after_ms, "{request:?}: {ttl_ms}, {status:?}");
        // After a limit was raised, the key may stay as long as under the old one.
        let most_ms = status.reset_after_ms + limit.period_ms().max(60_000) + SLACK_MS;
        assert!(limits.len() > 1 || ttl_ms <= most_ms, "{request:?}: {ttl_ms}, {status:?}");
    }
}

#[tokio::test]
async fn a_key_expires_when_it_is_idle_however_often_it_was_written() {
    for version in Version::ALL {
        let server = RedisServer::start(version);
        let store = store_on(&server).await;
        for algorithm in Algorithm::ALL {
            for period_ms in [40, 400, 100_000] {
                let of_hits = |hits| {
                    let burst = (algorithm == Algorithm::Gcra).then_some(5);
                    let overdraft = hits > 60;
                    let numbers = LimitSpec { hits, period_ms, overdraft, ..LimitSpec::default() };
                    checked(&LimitSpec { algorithm, burst, ..numbers })
                };
                let (one, changing) = ([of_hits(61)], [7, 1, 60, 61].map(of_hits));
                Box::pin(expires_when_idle(&server, &store, &one)).await;
                Box::pin(expires_when_idle(&server, &store, &changing)).await;
            }
        }
    }
}

#[tokio::test]
async fn rejected_requests_and_reads_write_nothing() {
    for version in Version::ALL {
        let server = RedisServer::start(version);
        let store = store_on(&server).await;
        let full: Vec<_> = Algorithm::ALL.map(|algorithm| limit(algorithm, 1, HOUR_MS)).into();
        let takes: Vec<_> = full.iter().map(|limit| take("full", limit)).collect();
        assert!(decide(&store, &takes).await.allowed);
        let dumps = || -> Vec<_> {
            keys(&server).iter().map(|key| about_key(&server, &["DUMP"], key)).collect()
        };
        let changes = || info_number(&server, "persistence", "rdb_changes_since_last_save");
        let (dumps_before, changes_before) = (dumps(), changes());
        let mut rejected = takes.clone();
        rejected.extend(mixed(12));
        assert!(!decide(&store, &rejected).await.allowed);
        let reads: Vec<_> = full
            .iter()
            .map(|limit| peek("full", limit))
            .chain(full.iter().map(|limit| CounterRequest { hits: 0, ..take("other", limit) }))
            .collect();
        decide(&store, &reads).await;
        assert_eq!(changes(), changes_before, "{version:?}");
        assert_eq!(dumps(), dumps_before, "{version:?}");
    }
}

fn log_of(hits: u64, period_ms: u64) -> Limit {
    limit(Algorithm::SlidingWindowLog, hits, period_ms)
}

/// Takes a hit at each of these times.
async fn hit_at(store: &Layered, request: &CounterRequest, moments: std::ops::Range<u64>) {
    for at_ms in moments {
        let decision = store
            .transact(vec![request.clone()], OnStoreFailure::Error, DecideContext::at(at_ms))
            .await;
        assert!(decision.unwrap().allowed, "at {at_ms}");
    }
}

fn memory_usage(server: &RedisServer, request: &CounterRequest) -> u64 {
    let key = std::str::from_utf8(request.key.as_bytes()).unwrap();
    let reply = server.command(&["MEMORY", "USAGE", key, "SAMPLES", "0"]);
    let Reply::Int(bytes) = reply else { panic!("{reply:?}") };
    u64::try_from(bytes).unwrap()
}

#[tokio::test]
async fn a_log_uses_at_most_40_bytes_per_hit_beyond_the_first() {
    let server = RedisServer::start(Version::Redis70);
    let store = store_on(&server).await;
    let mut worst: (u64, u64, u64) = (0, 0, 1);
    for hits in [1, 10, 100, 1_000, 10_000] {
        let request = take(&format!("{hits} hits"), &log_of(hits, hits));
        hit_at(&store, &request, START_MS..START_MS + 1).await;
        let first = memory_usage(&server, &request);
        // Filled, and then sliding: an old hit leaves every millisecond.
        for now_ms in START_MS + 1..START_MS + 3 * hits.min(3_000) + hits {
            hit_at(&store, &request, now_ms..now_ms + 1).await;
            if now_ms % (hits / 20 + 1) == 0 {
                let used = (now_ms - START_MS + 1).min(hits);
                let (bytes, over) = (memory_usage(&server, &request), used.saturating_sub(1));
                assert!(bytes <= first + 40 * over, "{used} hits: {bytes} bytes");
                let beyond = bytes.saturating_sub(first);
                if over >= 9 && beyond * worst.2 > worst.1 * over {
                    worst = (used, beyond, over);
                }
            }
        }
        eprintln!("{hits} hits: first {first}, at the end {}", memory_usage(&server, &request));
    }
    let (used, beyond, over) = worst;
    eprintln!("worst: {beyond} bytes for {over} hits beyond the first of {used}");
}

#[tokio::test]
async fn a_decision_on_a_long_log_reads_logarithmically_many_records() {
    let server = RedisServer::start(Version::Redis70);
    let store = store_on(&server).await;
    let mut most = Vec::new();
    for hits in [10_u64, 10_000] {
        let request = take(&format!("{hits} hits"), &log_of(hits, 2 * hits));
        hit_at(&store, &request, START_MS..START_MS + hits).await;
        let mut reads_max = 0;
        for now_ms in (0..40).map(|at| START_MS + hits + at * (3 * hits / 40)) {
            let before = calls(&server, "getrange");
            store
                .transact(vec![request.clone()], OnStoreFailure::Error, DecideContext::at(now_ms))
                .await
                .unwrap();
            reads_max = reads_max.max(calls(&server, "getrange") - before);
        }
        most.push(reads_max);
    }
    eprintln!("GETRANGE of one decision: {} with 10 hits, {} with 10,000", most[0], most[1]);
    // Twice the logarithm of 10,000: a galloping search followed by a binary search in the last
    // stride.
    assert!(most[1] <= most[0] + 2 * 14, "{most:?}");
}

#[tokio::test]
async fn other_data_under_a_key_is_an_error_or_overwritten() {
    for version in Version::ALL {
        let server = RedisServer::start(version);
        let store = store_on(&server).await;
        for algorithm in Algorithm::ALL {
            let request = take("strange", &limit(algorithm, 5, HOUR_MS));
            let key = request.key.as_bytes();
            server.command(&[b"SET".as_slice(), key, b"xyz"]);
            let short = store
                .transact(vec![request.clone()], OnStoreFailure::Error, DecideContext::now())
                .await;
            let refused = is_error(&short, "wrong_type");
            // Less than one sub-window counts as empty.
            let none = algorithm == Algorithm::SlidingWindowCounter && short.is_ok();
            assert!(refused || none, "{version:?} {algorithm:?}: {short:?}");
            server.command(&[b"DEL".as_slice(), key]);
            server.command(&[b"LPUSH".as_slice(), key, b"xyz"]);
            let list = store
                .transact(vec![request.clone()], OnStoreFailure::Error, DecideContext::now())
                .await;
            let refused = is_error(&list, "wrong_type");
            // MGET returns no value for a list: the counter starts empty.
            assert!(refused || list.is_ok_and(|decision| decision.allowed), "{algorithm:?}");
        }
        assert!(decide(&store, &mixed(6)).await.allowed, "{version:?}");
    }
}

/// The CPU time of 2,000 runs in Redis, printed for comparison; the runs must not fail.
#[tokio::test]
async fn the_cpu_time_of_script_runs_is_measured() {
    const RUNS: u32 = 2_000;
    let server = RedisServer::start(Version::Redis70);
    let store = store_on(&server).await;
    let three = |algorithm| -> Vec<CounterRequest> {
        let limit = limit(algorithm, 1_000_000, HOUR_MS);
        (0..3).map(|at| take(&format!("{at}"), &limit)).collect()
    };
    let long_log = take("long", &log_of(10_000, 10_000));
    hit_at(&store, &long_log, START_MS..START_MS + 10_000).await;
    let short_log = take("short", &log_of(10, 10));
    hit_at(&store, &short_log, START_MS..START_MS + 10).await;
    let cases = [
        ("3 buckets", three(Algorithm::TokenBucket), START_MS),
        ("3 fixed windows", three(Algorithm::FixedWindow), START_MS),
        ("a sliding log of 10", vec![short_log], START_MS + 10),
        ("a sliding log of 10,000", vec![long_log], START_MS + 10_000),
    ];
    for (name, requests, from_ms) in cases {
        let before = server.used_cpu();
        for run in 0..RUNS {
            let decision = store
                .transact(
                    requests.clone(),
                    OnStoreFailure::Error,
                    DecideContext::at(from_ms + u64::from(run)),
                )
                .await
                .unwrap();
            assert!(decision.allowed, "{name}");
        }
        let each = (server.used_cpu() - before) / RUNS;
        eprintln!("{name}: {each:?} of Redis's CPU a run, its network included");
    }
}

#[tokio::test]
async fn a_server_that_refuses_writes_is_not_ready_until_it_accepts_them() {
    for version in Version::ALL {
        let server = RedisServer::start(version);
        let store = store_on(&server).await;
        let memory = |max: &str| server.command(&["CONFIG", "SET", "maxmemory", max]);
        assert!(decide(&store, &mixed(3)).await.allowed, "{version:?}");
        memory("1");
        let full = store.transact(mixed(3), OnStoreFailure::Error, DecideContext::now()).await;
        assert!(is_error(&full, "oom"), "{version:?}: {full:?}");
        assert!(is_error(&store.ready().await, "oom"), "{version:?}");
        memory("0");
        assert_eq!(store.ready().await, Ok(()), "{version:?}");
    }
}
