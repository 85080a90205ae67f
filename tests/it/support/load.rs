//! An open-loop load: requests at a steady rate, regardless of the answers.
//!
//! It has a thread, a runtime and a connection of its own, so that neither a test that waits for
//! processes nor a store in this process delays it.

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
use super::web::{Answer, Web, WebRequest};

/// The interval at which due requests are sent.
const TICK: Duration = Duration::from_millis(1);

/// After each of so many requests, a control is sent.
const CONTROL_EVERY: u64 = 4;

/// The result of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// When it was sent, from the load's start.
    pub sent: Duration,
    /// The time from there to its answer.
    pub latency: Duration,
    pub outcome: Outcome,
    /// The source of the decision; `Unspecified` without a decision.
    pub source: api::DecisionSource,
    /// The smallest and the largest limit in the answer; 0 without an answer.
    pub limits: (u64, u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Allowed,
    Rejected,
    /// No decision.
    Failed(Code),
}

type Latencies = Arc<Mutex<Vec<Duration>>>;

/// A load that runs until it is stopped or dropped.
pub struct Load {
    start: Instant,
    answered: Arc<Mutex<Vec<Sample>>>,
    controls: Latencies,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<u64>>,
}

impl Load {
    /// Sends `request` at this rate to the service at `addr`.
    ///
    /// # Panics
    /// When the address does not accept connections.
    pub fn start(addr: SocketAddr, rate_per_second: u32, request: &Request) -> Self {
        let request = request.clone();
        let connect =
            async move || Target::Service(Box::new(Caller::of(addr).await), request, None);
        Self::on(connect, rate_per_second)
    }

    /// As [`Load::start`], but also sends `control` from time to time, on the same connection. If
    /// that needs no store, its latency is the delay that the machine and the service add to every
    /// request.
    ///
    /// # Panics
    /// As [`Load::start`].
    pub fn start_beside(
        addr: SocketAddr,
        rate_per_second: u32,
        request: &Request,
        control: &Request,
    ) -> Self {
        let controls = Latencies::default();
        let request = request.clone();
        let control = Some((control.clone(), Arc::clone(&controls)));
        let connect =
            async move || Target::Service(Box::new(Caller::of(addr).await), request, control);
        Self { controls, ..Self::on(connect, rate_per_second) }
    }

    /// Sends an HTTP request at this rate over one connection to the proxy at `addr`, which calls
    /// the service; at a lower rate if the machine, which four programs share, does not keep up.
    pub fn through(
        addr: SocketAddr,
        rate_per_second: u32,
        ask: impl FnOnce(Web) -> WebRequest,
    ) -> Self {
        let ask = Box::new(ask(Web::http2_on(addr)));
        Self::on(async || Target::Proxy(ask), rate_per_second)
    }

    fn on(connect: impl AsyncFnOnce() -> Target + Send + 'static, rate_per_second: u32) -> Self {
        let answered = Arc::new(Mutex::new(Vec::new()));
        let (end, ended) = oneshot::channel();
        let (started, is_started) = blocking::channel();
        let kept = Arc::clone(&answered);
        let thread = thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let target = connect().await;
                let start = Instant::now();
                started.send(start).expect("who starts a load waits for it");
                Stream { target, start, rate_per_second, answered: kept }.run(ended).await
            })
        });
        let start = is_started.recv().expect("the service listens");
        Self {
            start,
            answered,
            controls: Latencies::default(),
            end: Some(end),
            thread: Some(thread),
        }
    }

    /// The time since the start, as in samples.
    pub fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Waits for such an answer; returns the one that was sent first.
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

    /// Continues for this time, until a request that was sent then is answered.
    ///
    /// # Panics
    /// When none is in time.
    pub fn go_on_for(&self, time: Duration) {
        const SLACK: Duration = Duration::from_secs(30);
        let end = self.now() + time;
        self.wait_for(time + SLACK, |sample| sample.sent >= end);
    }

    /// Stops sending, waits for all answers, and returns them in the order of sending.
    ///
    /// # Panics
    /// When a request got neither an answer nor an error.
    pub fn stop(self) -> Samples {
        self.stop_beside().0
    }

    /// As [`Load::stop`]; also returns the latency of the slowest control.
    ///
    /// # Panics
    /// As [`Load::stop`].
    pub fn stop_beside(mut self) -> (Samples, Duration) {
        drop(self.end.take());
        let sent = self.thread.take().expect("it was not stopped").join().expect("the load runs");
        let mut samples = std::mem::take(&mut *self.answered.lock().unwrap());
        assert_eq!(samples.len() as u64, sent, "every request ends in something");
        samples.sort_by_key(|sample| sample.sent);
        let slowest = self.controls.lock().unwrap().iter().max().copied();
        (Samples(samples), slowest.unwrap_or_default())
    }
}

/// The request and its target.
enum Target {
    /// With a control, and the channel for its latencies.
    Service(Box<Caller>, Request, Option<(Request, Latencies)>),
    Proxy(Box<WebRequest>),
}

impl Target {
    /// A load on the service itself is an open loop.
    const fn in_flight_max(&self) -> usize {
        match self {
            Self::Service(..) => usize::MAX,
            Self::Proxy(_) => 200,
        }
    }
}

/// The decision in an answer: the sample's last three fields.
type Told = (Outcome, api::DecisionSource, (u64, u64));

struct Stream {
    target: Target,
    start: Instant,
    rate_per_second: u32,
    answered: Arc<Mutex<Vec<Sample>>>,
}

impl Stream {
    /// The number of requests sent until the end was requested; all of them are answered.
    async fn run(self, mut ended: oneshot::Receiver<()>) -> u64 {
        let stream = Arc::new(self);
        let (mut calls, mut sent, mut left_out) = (JoinSet::new(), 0, 0);
        let mut ticks = interval(TICK);
        // Late requests are sent at once below.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                _ = &mut ended => break,
                _ = ticks.tick() => {}
            }
            while sent + left_out < stream.due() {
                if calls.len() >= stream.target.in_flight_max() {
                    left_out += 1;
                    continue;
                }
                sent += 1;
                let of_it = Arc::clone(&stream);
                calls.spawn(async move { of_it.send().await });
                if sent % CONTROL_EVERY == 0 {
                    let of_it = Arc::clone(&stream);
                    calls.spawn(async move { of_it.send_control().await });
                }
            }
            while calls.try_join_next().is_some() {}
        }
        while calls.join_next().await.is_some() {}
        sent
    }

    /// The number of requests that should have been sent by now.
    fn due(&self) -> u64 {
        let micros = u64::try_from(self.start.elapsed().as_micros()).expect("a test's time");
        micros * u64::from(self.rate_per_second) / 1_000_000
    }

    async fn send(&self) {
        let sent = self.start.elapsed();
        let (outcome, source, limits) = match &self.target {
            Target::Service(caller, request, _) => read_service_answer(caller.check(request).await),
            Target::Proxy(ask) => read_proxy_answer(ask.try_send().await),
        };
        let latency = self.start.elapsed() - sent;
        self.answered.lock().unwrap().push(Sample { sent, latency, outcome, source, limits });
    }

    async fn send_control(&self) {
        let Target::Service(caller, _, Some((control, latencies))) = &self.target else { return };
        let sent = self.start.elapsed();
        caller.check(control).await.expect("what needs no store is answered");
        latencies.lock().unwrap().push(self.start.elapsed() - sent);
    }
}

fn read_service_answer(answer: Result<api::CheckRateLimitResponse, Status>) -> Told {
    match answer {
        Ok(answer) => {
            let allowed = answer.decision() == api::Decision::Allowed;
            let outcome = if allowed { Outcome::Allowed } else { Outcome::Rejected };
            let limits = answer.statuses.iter().map(|status| status.limit);
            (outcome, answer.source(), ends(limits))
        }
        Err(status) => nothing(status.code()),
    }
}

fn read_proxy_answer(answer: Option<Answer>) -> Told {
    let Some(answer) = answer else { return nothing(Code::Unavailable) };
    let outcome = match answer.status {
        200 => Outcome::Allowed,
        429 => Outcome::Rejected,
        _ => return nothing(Code::Unknown),
    };
    // Such as `3, 3;w=60, 9;w=3600`: the tightest limit, and then all of them.
    let policies = answer.header("x-ratelimit-limit").unwrap_or_default().split(", ").skip(1);
    let limits = policies.filter_map(|policy| policy.split(';').next()?.parse().ok());
    (outcome, api::DecisionSource::Unspecified, ends(limits))
}

const fn nothing(code: Code) -> Told {
    (Outcome::Failed(code), api::DecisionSource::Unspecified, (0, 0))
}

/// The smallest and the largest.
fn ends(limits: impl Iterator<Item = u64> + Clone) -> (u64, u64) {
    (limits.clone().min().unwrap_or(0), limits.max().unwrap_or(0))
}

/// The results of a load, in the order of sending.
#[derive(Clone, Debug)]
pub struct Samples(pub Vec<Sample>);

impl Samples {
    /// The samples sent from `from` until before `to`.
    pub fn between(&self, from: Duration, to: Duration) -> Self {
        let within = |sample: &&Sample| (from..to).contains(&sample.sent);
        Self(self.0.iter().filter(within).copied().collect())
    }

    /// The samples without a decision.
    pub fn errors(&self) -> Vec<Sample> {
        let failed = |sample: &&Sample| matches!(sample.outcome, Outcome::Failed(_));
        self.0.iter().filter(failed).copied().collect()
    }

    /// The number of samples with this outcome.
    pub fn count(&self, outcome: Outcome) -> usize {
        self.0.iter().filter(|sample| sample.outcome == outcome).count()
    }

    /// Whether there are samples, and each has a decision.
    pub fn all_answered(&self) -> bool {
        !self.0.is_empty() && self.errors().is_empty()
    }

    /// The 99.9th percentile of latency; errors count as well.
    ///
    /// # Panics
    /// When there are no samples.
    pub fn p999(&self) -> Duration {
        self.quantile(999)
    }

    /// The 99th percentile of latency.
    ///
    /// # Panics
    /// When there are no samples.
    pub fn p99(&self) -> Duration {
        self.quantile(990)
    }

    fn quantile(&self, thousandths: usize) -> Duration {
        let mut latencies: Vec<_> = self.0.iter().map(|sample| sample.latency).collect();
        latencies.sort();
        let rank = (latencies.len() * thousandths).div_ceil(1_000);
        latencies[rank.checked_sub(1).expect("requests were sent")]
    }

    /// The slowest, including errors.
    pub fn slowest(&self) -> Option<Sample> {
        self.0.iter().max_by_key(|sample| sample.latency).copied()
    }

    /// The first request sent at or after `from` that the store decided.
    pub fn first_by_store(&self, from: Duration) -> Option<Sample> {
        let by_store =
            |sample: &&Sample| sample.sent >= from && sample.source == api::DecisionSource::Store;
        self.0.iter().find(by_store).copied()
    }
}
