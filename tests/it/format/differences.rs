//! What a build of format 1 does with bytes that only later formats write. ARCHITECTURE.md, "Stored
//! bytes", promises it.

use std::collections::VecDeque;

use tidegate::decide::CounterRequest;
use tidegate::decision::Status;
use tidegate::limit::{Algorithm, HITS_MAX, Limit};
use tidegate::store::redis::SCRIPT;

use super::recorded::{self, Script};
use crate::counters::{MONTH_MS, drained_in_ms, key, limit, monthly_bucket, peek, take};
use crate::random::Random;
use crate::support::servers::{RedisServer, Version};

/// A moment in 2023.
const START_MS: u64 = 1_700_000_000_000;

/// A build of format 1 and today's, on one server.
fn builds(server: &RedisServer) -> [Script; 2] {
    [Script::load(server, &recorded::script(1)), Script::load(server, SCRIPT)]
}

fn status(script: &mut Script, counter: CounterRequest, at_ms: u64) -> Status {
    script.decide(&[vec![counter]], at_ms)[0].statuses[0]
}

#[test]
fn format_1_reads_a_larger_debt_as_2_to_the_53_minus_1_units_and_keeps_that_much() {
    let server = RedisServer::start(Version::Redis70);
    let [mut old, mut todays] = builds(&server);
    let limit = monthly_bucket();
    let hits = |hits| CounterRequest { hits, ..take("debt", &limit) };
    let peek = || peek("debt", &limit);
    let bytes = |script: &mut Script| script.stored(key("debt", &limit).as_bytes()).unwrap().len();
    let exact = status(&mut todays, hits(30_000_000), START_MS);
    let (all, most) = (u128::from(MONTH_MS) * 30_000_000, u128::from(HITS_MAX));
    assert_eq!((exact.reset_after_ms, bytes(&mut todays)), (drained_in_ms(all), 32));
    let saturated = status(&mut old, peek(), START_MS);
    assert!(!saturated.within_limit);
    assert_eq!((saturated.remaining, saturated.reset_after_ms), (0, drained_in_ms(most)));
    assert_eq!(status(&mut todays, peek(), START_MS).reset_after_ms, drained_in_ms(all), "a peek");
    status(&mut old, hits(1), START_MS);
    assert_eq!(bytes(&mut old), 19);
    assert_eq!(status(&mut todays, peek(), START_MS), saturated, "a hit that format 1 takes");
}

/// The hits that a log admitted in the last two periods, oldest first: moments and hits.
struct Admitted {
    limit: Limit,
    hits: VecDeque<(u64, u64)>,
}

impl Admitted {
    /// The hits of so many periods before a moment.
    fn within(&self, periods: u64, now_ms: u64) -> u64 {
        let gone_ms = now_ms - periods * self.limit.period_ms();
        let counting = self.hits.iter().filter(|(at_ms, _)| *at_ms > gone_ms);
        counting.map(|(_, hits)| hits).sum()
    }

    fn add(&mut self, hits: u64, now_ms: u64) {
        let gone_ms = now_ms - 2 * self.limit.period_ms();
        while self.hits.front().is_some_and(|(at_ms, _)| *at_ms <= gone_ms) {
            self.hits.pop_front();
        }
        self.hits.push_back((now_ms, hits));
    }

    /// That a decision counted all hits of the last period, and none that is older than two.
    fn assert_bounds(&self, asked: u64, status: &Status, now_ms: u64) {
        let hits_max = self.limit.hits();
        let (exact, most) = (self.within(1, now_ms), self.within(2, now_ms));
        assert!(exact <= hits_max, "at {now_ms}: {exact} hits in a period");
        let at_least = hits_max.saturating_sub(most);
        let expected = at_least..=hits_max - exact;
        assert!(expected.contains(&status.remaining), "at {now_ms}: {status:?}, not {expected:?}");
        assert!(status.within_limit || asked > at_least, "at {now_ms}: {status:?}");
    }
}

/// What a run met.
#[derive(Debug, Default)]
struct Seen {
    allowed: u64,
    /// Rejections of hits that fit.
    early: u64,
    /// Decisions after which records were being moved.
    moving: u64,
}

/// Two builds in turns on a log that is longer than what is copied at once.
fn fill_a_long_log(builds: &mut [Script; 2], random: &mut Random, name: &str) -> Seen {
    let limit = limit(Algorithm::SlidingWindowLog, 1_200, 1_000);
    let mut admitted = Admitted { limit, hits: VecDeque::new() };
    let (mut now_ms, mut turn, mut seen) = (START_MS, 1, Seen::default());
    for _ in 0..4_000 {
        now_ms += random.within(0..=2);
        // A move of records takes a few decisions: the other build often comes in between.
        if random.one_in(6) {
            turn = 1 - turn;
        }
        let hits = random.within(1..=2);
        let fits = admitted.within(1, now_ms) + hits <= limit.hits();
        let status =
            status(&mut builds[turn], CounterRequest { hits, ..take(name, &limit) }, now_ms);
        if status.within_limit {
            admitted.add(hits, now_ms);
        }
        admitted.assert_bounds(hits, &status, now_ms);
        seen.allowed += u64::from(status.within_limit);
        seen.early += u64::from(fits && !status.within_limit);
        let stored = builds[0].stored(key(name, &limit).as_bytes()).unwrap();
        seen.moving += u64::from(stored.get(31..34) == Some(&[0xff; 3]));
    }
    seen
}

#[test]
fn format_1_counts_hits_of_a_log_that_moves_records_up_to_a_period_longer_and_never_less() {
    let server = RedisServer::start(Version::Redis70);
    let mut builds = builds(&server);
    let mut early = 0;
    for seed in 0..3 {
        let seen = fill_a_long_log(&mut builds, &mut Random::of_seed(seed), &format!("log {seed}"));
        assert!(seen.allowed > 1_000 && seen.moving > 0, "{seen:?}");
        early += seen.early;
    }
    assert!(early > 0, "a build of format 1 decided on a log that moved records");
}
