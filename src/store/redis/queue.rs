//! Requests on their way to Redis: what arrives while script runs are under way travels together
//! in the next one.
//!
//! There is no timer: a request that finds no run under way is sent at once, together with those
//! that the same turn of the runtime brings. A run is bounded by what it asks, so that none holds
//! Redis for long, and the runs under way are few, so that under load each of them is large.

use std::collections::VecDeque;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::super::{Decision, StoreError};
use crate::decide::Ask;
use crate::limit::Shape;

/// Runs under way at once: while Redis works on one, the next is on the wire.
const RUNS_MAX: usize = 2;

/// What the asks of one run may weigh together, a request that alone is heavier aside: some 0.3 ms
/// of Redis, measured, about a microsecond and a half a unit on a machine that has other work too.
const WEIGHT_MAX: usize = 256;

/// A request that waits for its decision.
pub(super) struct Waiting {
    pub(super) asks: Vec<Ask>,
    /// The moment of a replay.
    pub(super) at_ms: Option<u64>,
    pub(super) answer: oneshot::Sender<Result<Decision, StoreError>>,
}

/// The requests that wait, and how many runs are under way.
pub(super) struct Queue {
    inner: Mutex<Inner>,
    /// The most requests in one run.
    requests_max: usize,
}

#[derive(Default)]
struct Inner {
    waiting: VecDeque<Waiting>,
    runs: usize,
}

impl Queue {
    pub(super) fn new(requests_max: usize) -> Self {
        Self { inner: Mutex::default(), requests_max }
    }

    /// Adds a request. Whether the caller has to begin a run: few enough are under way.
    pub(super) fn push(&self, waiting: Waiting) -> bool {
        let mut inner = self.inner.lock();
        inner.waiting.push_back(waiting);
        let begins = inner.runs < RUNS_MAX;
        inner.runs += usize::from(begins);
        begins
    }

    /// The requests of the next run, in the order in which they came; where there are none, the
    /// caller's run is over. Those whose caller has given up are dropped.
    pub(super) fn next_run(&self) -> Option<Vec<Waiting>> {
        let mut inner = self.inner.lock();
        let mut run: Vec<Waiting> = Vec::new();
        let mut weight = 0;
        while let Some(next) = inner.waiting.front() {
            weight += next.weight();
            let full = run.len() >= self.requests_max || weight > WEIGHT_MAX;
            if run.first().is_some_and(|first| full || first.at_ms != next.at_ms) {
                break;
            }
            let given_up = next.answer.is_closed();
            let next = inner.waiting.pop_front().filter(|_| !given_up);
            run.extend(next);
        }
        if run.is_empty() {
            inner.runs -= 1;
            return None;
        }
        Some(run)
    }
}

impl Waiting {
    /// Answers, unless who waited has given up.
    pub(super) fn answer(self, decision: Result<Decision, StoreError>) {
        drop(self.answer.send(decision));
    }

    fn weight(&self) -> usize {
        let weight = |ask: &Ask| match ask.limit.shape() {
            Shape::FixedWindow | Shape::Bucket(_) => 2,
            Shape::SlidingWindowCounter(windows) => 2 + windows.count as usize / 8,
            // It may be searched.
            Shape::SlidingWindowLog => 6,
        };
        self.asks.iter().map(weight).sum()
    }
}
