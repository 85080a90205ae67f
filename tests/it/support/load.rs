//! An open-loop load: requests at a steady rate, whatever comes back.
//!
//! It has a thread, a runtime and a connection of its own, so that a test that waits for processes
//! does not hold it up, and the store of a test in this process does not either.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, mpsc as blocking};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tidegate::proto::tidegate::v1 as api;
use tokio::runtime::Builder;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};
use tonic::{Code, Status};

use super::client::{Caller, Request};
use super::process;

/// How often requests that are due are sent.
const TICK: Duration = Duration::from_millis(1);

/// What came of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// When it was sent, from the load's start.
    pub sent: Duration,
    /// From there to its answer.
    pub latency: Duration,
    pub outcome: Outcome,
    /// Who decided; `Unspecified` where nobody did.
    pub source: api::DecisionSource,
    /// The smallest and the largest of the limits that the answer tells; 0 without an answer.
    pub limits: (u64, u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Allowed,
    Rejected,
    /// No decision.
    Failed(Code),
}

/// A load that runs until it is stopped or dropped.
pub struct Load {
    start: Instant,
    answered: Arc<Mutex<Vec<Sample>>>,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<u64>>,
}

impl Load {
    /// Sends `request` so many times a second to the service at `addr`.
    ///
    /// # Panics
    /// When nobody listens there.
    pub fn start(addr: SocketAddr, rate_per_second: u32, request: &Request) -> Self {
        let answered = Arc::new(Mutex::new(Vec::new()));
        let (end, ended) = oneshot::channel();
        let (started, is_started) = blocking::channel();
        let stream = (request.clone(), Arc::clone(&answered));
        let thread = thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let caller = Caller::of(addr).await;
                let start = Instant::now();
                started.send(start).expect("who starts a load waits for it");
                let (request, answered) = stream;
                let stream = Stream { caller, request, start, rate_per_second, answered };
                stream.run(ended).await
            })
        });
        let start = is_started.recv().expect("the service listens");
        Self { start, answered, end: Some(end), thread: Some(thread) }
    }

    /// Time since the start, as samples count it.
    pub fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Waits until such an answer is there; the first of them by when it was sent.
    ///
    /// # Panics
    /// When that takes longer than `deadline`.
    pub fn wait_for(&self, deadline: Duration, wanted: impl Fn(&Sample) -> bool) -> Sample {
        let found = || {
            let answered = self.answered.lock().unwrap();
            answered
                .iter()
                .filter(|sample| wanted(sample))
                .min_by_key(|sample| sample.sent)
                .copied()
        };
        process::wait_until(deadline, found).unwrap_or_else(|| {
            let answered = self.answered.lock().unwrap();
            panic!("no such answer after {:?}; the last: {:?}", self.now(), answered.last())
        })
    }

    /// Goes on for so long: until a request that was sent then is answered.
    ///
    /// # Panics
    /// When none is in time.
    pub fn go_on_for(&self, time: Duration) {
        const SLACK: Duration = Duration::from_secs(30);
        let end = self.now() + time;
        self.wait_for(time + SLACK, |sample| sample.sent >= end);
    }

    /// Sends no more, waits for all answers, and gives them in the order of sending.
    ///
    /// # Panics
    /// When a request was sent of which nothing came, not even an error.
    pub fn stop(mut self) -> Samples {
        drop(self.end.take());
        let sent = self.thread.take().expect("it was not stopped").join().expect("the load runs");
        let mut samples = std::mem::take(&mut *self.answered.lock().unwrap());
        assert_eq!(samples.len() as u64, sent, "every request ends in something");
        samples.sort_by_key(|sample| sample.sent);
        Samples(samples)
    }
}

struct Stream {
    caller: Caller,
    request: Request,
    start: Instant,
    rate_per_second: u32,
    answered: Arc<Mutex<Vec<Sample>>>,
}

impl Stream {
    /// How many requests were sent until the end was asked for; all of them are answered.
    async fn run(self, mut ended: oneshot::Receiver<()>) -> u64 {
        let stream = Arc::new(self);
        let (mut calls, mut sent) = (JoinSet::new(), 0);
        let mut ticks = interval(TICK);
        // Those that were late are sent at once below.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                _ = &mut ended => break,
                _ = ticks.tick() => {}
            }
            while sent < stream.due() {
                let stream = Arc::clone(&stream);
                calls.spawn(async move { stream.send().await });
                sent += 1;
            }
            while calls.try_join_next().is_some() {}
        }
        while calls.join_next().await.is_some() {}
        sent
    }

    /// Requests that should have been sent by now.
    fn due(&self) -> u64 {
        let micros = u64::try_from(self.start.elapsed().as_micros()).expect("a test's time");
        micros * u64::from(self.rate_per_second) / 1_000_000
    }

    async fn send(&self) {
        let sent = self.start.elapsed();
        let answer = self.caller.check(&self.request).await;
        let latency = self.start.elapsed() - sent;
        let (outcome, source) = outcome_of(&answer);
        let limits = answer.map_or((0, 0), |answer| limits_of(&answer));
        self.answered.lock().unwrap().push(Sample { sent, latency, outcome, source, limits });
    }
}

fn outcome_of(
    answer: &Result<api::CheckRateLimitResponse, Status>,
) -> (Outcome, api::DecisionSource) {
    match answer {
        Ok(answer) if answer.decision() == api::Decision::Allowed => {
            (Outcome::Allowed, answer.source())
        }
        Ok(answer) => (Outcome::Rejected, answer.source()),
        Err(status) => (Outcome::Failed(status.code()), api::DecisionSource::Unspecified),
    }
}

fn limits_of(answer: &api::CheckRateLimitResponse) -> (u64, u64) {
    let limits = || answer.statuses.iter().map(|status| status.limit);
    (limits().min().unwrap_or(0), limits().max().unwrap_or(0))
}

/// What came of a load, in the order of sending.
#[derive(Clone, Debug)]
pub struct Samples(pub Vec<Sample>);

impl Samples {
    /// Those sent from `from` until before `to`.
    pub fn between(&self, from: Duration, to: Duration) -> Self {
        let within = |sample: &&Sample| (from..to).contains(&sample.sent);
        Self(self.0.iter().filter(within).copied().collect())
    }

    /// Those without a decision.
    pub fn errors(&self) -> Vec<Sample> {
        let failed = |sample: &&Sample| matches!(sample.outcome, Outcome::Failed(_));
        self.0.iter().filter(failed).copied().collect()
    }

    /// How many had this outcome.
    pub fn count(&self, outcome: Outcome) -> usize {
        self.0.iter().filter(|sample| sample.outcome == outcome).count()
    }

    /// Whether there were any, and each has a decision.
    pub fn all_answered(&self) -> bool {
        !self.0.is_empty() && self.errors().is_empty()
    }

    /// Of 1,000 requests, 999 took no longer; errors count as well.
    ///
    /// # Panics
    /// When there were none.
    pub fn p999(&self) -> Duration {
        let mut latencies: Vec<_> = self.0.iter().map(|sample| sample.latency).collect();
        latencies.sort();
        let rank = (latencies.len() * 999).div_ceil(1_000);
        latencies[rank.checked_sub(1).expect("requests were sent")]
    }

    /// The slowest, errors among them.
    pub fn slowest(&self) -> Option<Sample> {
        self.0.iter().max_by_key(|sample| sample.latency).copied()
    }

    /// The first request sent from `from` on that the store decided.
    pub fn first_by_store(&self, from: Duration) -> Option<Sample> {
        let by_store =
            |sample: &&Sample| sample.sent >= from && sample.source == api::DecisionSource::Store;
        self.0.iter().find(by_store).copied()
    }
}
