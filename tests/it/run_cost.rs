//! No script run blocks Redis for long: the work of one request is bounded, and long logs drop
//! expired records in steps. Work is measured in bytes written, because times depend on the
//! machine.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on panics")]

use std::collections::VecDeque;

use tidegate::decide::{CounterRequest, Mode};
use tidegate::limit::{Algorithm, Limit};
use tonic::Code;

use crate::counters::{limit, take};
use crate::support::client::{Request, Served, request};
use crate::support::resp::field;
use crate::support::servers::{RedisServer, Version};
use crate::support::stores::{Layered, store_on};

const START_MS: u64 = 1_700_000_000_000;

const PERIOD_MS: u64 = 3_000;

/// The most bytes that one write to a log may cost: 256 records that are copied or moved, the
/// header, and the commands around them.
const WRITTEN_BYTES_MAX: u64 = 256 * 13 + 1_000;

/// Keeps an append-only file, whose size shows how much a run has written.
fn server_that_counts(version: Version) -> RedisServer {
    RedisServer::start_with(version, &["--appendonly", "yes", "--appendfsync", "no"])
}

fn written_bytes(server: &RedisServer) -> u64 {
    let info = server.info("persistence");
    field(&info, "aof_current_size").unwrap().parse().unwrap()
}

/// A model of a log: the times of its hits, with which every answer must agree.
#[derive(Default)]
struct Model {
    hits: VecDeque<u64>,
}

impl Model {
    fn used(&mut self, now_ms: u64) -> u64 {
        while self.hits.front().is_some_and(|at_ms| at_ms + PERIOD_MS <= now_ms) {
            self.hits.pop_front();
        }
        self.hits.len() as u64
    }
}

/// Takes a hit at each of these times; each decision must equal the model's, and none may write
/// more than allowed.
async fn slide(
    (server, store): (&RedisServer, &Layered),
    (counter_request, model): (&CounterRequest, &mut Model),
    moments_ms: impl Iterator<Item = u64>,
) {
    // Loads the script, which is written too.
    let read = [CounterRequest { mode: Mode::Peek, ..counter_request.clone() }];
    store.inner().transact_batch(&[&read], Some(START_MS)).await.unwrap();
    let mut written = written_bytes(server);
    for now_ms in moments_ms {
        let used = model.used(now_ms);
        let counter_requests = std::slice::from_ref(counter_request);
        let decided =
            store.inner().transact_batch(&[counter_requests], Some(now_ms)).await.unwrap();
        let fits = used < counter_request.limit.hits();
        assert_eq!(decided[0].allowed, fits, "{used} used at {now_ms}");
        if fits {
            model.hits.push_back(now_ms);
        }
        let left = counter_request.limit.hits() - model.hits.len() as u64;
        assert_eq!(decided[0].statuses[0].remaining, left, "at {now_ms}");
        let total = written_bytes(server);
        let own = total - written;
        assert!(own <= WRITTEN_BYTES_MAX, "{own} bytes in one run with {used} hits, at {now_ms}");
        written = total;
    }
}

fn log(hits: u64) -> Limit {
    limit(Algorithm::SlidingWindowLog, hits, PERIOD_MS)
}

#[tokio::test]
async fn a_long_log_drops_expired_records_in_bounded_steps() {
    for version in Version::ALL {
        let server = server_that_counts(version);
        let store = store_on(&server).await;
        let counter_request = take("user", &log(2_500));
        let mut model = Model::default();
        slide(
            (&server, &store),
            (&counter_request, &mut model),
            START_MS..START_MS + 2 * PERIOD_MS,
        )
        .await;
    }
}

/// A log in the format of the previous version: one hit per millisecond, oldest first.
fn log_of_the_version_before(moments_ms: std::ops::Range<u64>, dead: u32) -> Vec<u8> {
    let record = |at_ms: u64| {
        let total = at_ms - moments_ms.start + 1;
        [&at_ms.to_le_bytes()[..6], &total.to_le_bytes()[..7]].concat()
    };
    let newest = moments_ms.end - 1;
    let body: Vec<u8> = (moments_ms.start..newest).flat_map(record).collect();
    let len = u32::try_from(newest - moments_ms.start).unwrap();
    let base = u64::from(dead).to_le_bytes();
    [&dead.to_le_bytes(), &len.to_le_bytes(), &base[..7], &record(newest), &body].concat()
}

#[tokio::test]
async fn a_long_log_of_the_previous_version_is_read_and_shrinks_in_bounded_steps() {
    for version in Version::ALL {
        let server = server_that_counts(version);
        let store = store_on(&server).await;
        let counter_request = take("user", &log(5_000));
        let last_ms = START_MS + PERIOD_MS;
        let moments_ms = START_MS - 700..last_ms;
        let stored = log_of_the_version_before(moments_ms.clone(), 650);
        server.command(&[b"SET".as_slice(), counter_request.key.as_bytes(), &stored]);
        let mut model = Model { hits: moments_ms.collect() };
        slide((&server, &store), (&counter_request, &mut model), last_ms..last_ms + PERIOD_MS)
            .await;
    }
}

fn many(key: &str, count: usize) -> Request {
    (0..count).fold(request("edge"), |request, at| request.about(key, format!("{at}")))
}

#[tokio::test]
async fn a_request_that_would_block_the_store_is_refused() {
    let served = Served::with_limits(
        "
domain: edge
descriptors:
  - { key: window, rate_limit: { limit: 9, period: 1h } }
  - { key: log, rate_limit: { limit: 1000, period: 1h, algorithm: sliding_window_log } }
  - key: counter
    rate_limit:
      { limit: 9, period: 1000s, algorithm: sliding_window_counter, sub_windows: 1000 }
  - key: windows
    rate_limit:
      - { limit: 1, period: 1s }
      - { limit: 1, period: 1m }
      - { limit: 1, period: 1h }
",
    );
    let caller = served.caller().await;
    for (key, passes, refused) in
        [("window", 256, 257), ("log", 10, 256), ("counter", 4, 256), ("windows", 64, 256)]
    {
        assert!(caller.allows(&many(key, passes)).await, "{passes} of {key}");
        if refused <= 256 {
            let status = caller.check(&many(key, refused)).await.unwrap_err();
            assert_eq!(status.code(), Code::InvalidArgument, "{refused} of {key}");
            let message = status.message();
            assert!(message.starts_with("descriptors: "), "{message}");
            assert!(message.ends_with("into several requests"), "{message}");
        }
    }
}
