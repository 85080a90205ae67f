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
use super::web::{Answer, Web, WebRequest};

/// How often requests that are due are sent.
const TICK: Duration = Duration::from_millis(1);

/// Of so many requests, the last is followed by a control.
const CONTROL_EVERY: u64 = 4;

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
    /// Sends `request` so many times a second to the service at `addr`.
    ///
    /// # Panics
    /// When nobody listens there.
    pub fn start(addr: SocketAddr, rate_per_second: u32, request: &Request) -> Self {
        let request = request.clone();
        let connect =
            async move || Target::Service(Box::new(Caller::of(addr).await), request, None);
        Self::on(connect, rate_per_second)
    }

    /// As [`Load::start`], and now and then sends `control` too, on the same connection. Where that
    /// needs no store, its latency is what the machine and the service make every request wait.
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

    /// Sends an HTTP request so many times a second over one connection to the proxy at `addr`,
    /// which asks the service; fewer where the machine does not keep up, for three programs and
    /// this one share it.
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
    pub fn stop(self) -> Samples {
        self.stop_beside().0
    }

    /// As [`Load::stop`]; with them the latency of the slowest control.
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

/// What is asked, and where.
enum Target {
    /// With a control, and where its latencies go.
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

/// What an answer says: the sample's last three fields.
type Told = (Outcome, api::DecisionSource, (u64, u64));

struct Stream {
    target: Target,
    start: Instant,
    rate_per_second: u32,
    answered: Arc<Mutex<Vec<Sample>>>,
}

impl Stream {
    /// How many requests were sent until the end was asked for; all of them are answered.
    async fn run(self, mut ended: oneshot::Receiver<()>) -> u64 {
        let stream = Arc::new(self);
        let (mut calls, mut sent, mut left_out) = (JoinSet::new(), 0, 0);
        let mut ticks = interval(TICK);
        // Those that were late are sent at once below.
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

    /// Requests that should have been sent by now.
    fn due(&self) -> u64 {
        let micros = u64::try_from(self.start.elapsed().as_micros()).expect("a test's time");
        micros * u64::from(self.rate_per_second) / 1_000_000
    }

    async fn send(&self) {
        let sent = self.start.elapsed();
        let (outcome, source, limits) = match &self.target {
            Target::Service(caller, request, _) => told_by_service(caller.check(request).await),
            Target::Proxy(ask) => told_by_proxy(ask.try_send().await),
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

fn told_by_service(answer: Result<api::CheckRateLimitResponse, Status>) -> Told {
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

fn told_by_proxy(answer: Option<Answer>) -> Told {
    let Some(answer) = answer else { return nothing(Code::Unavailable) };
    let outcome = match answer.status {
        200 => Outcome::Allowed,
        429 => Outcome::Rejected,
        _ => return nothing(Code::Unknown),
    };
    // Such as `3, 3;w=60, 9;w=3600`: the tightest, and then all of them.
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
        self.quantile(999)
    }

    /// Of 100 requests, 99 took no longer.
    ///
    /// # Panics
    /// When there were none.
    pub fn p99(&self) -> Duration {
        self.quantile(990)
    }

    fn quantile(&self, thousandths: usize) -> Duration {
        let mut latencies: Vec<_> = self.0.iter().map(|sample| sample.latency).collect();
        latencies.sort();
        let rank = (latencies.len() * thousandths).div_ceil(1_000);
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
