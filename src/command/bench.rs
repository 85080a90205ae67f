//! `tidegate bench`: generates load for a running service and reports throughput and latency.
//!
//! There are two ways to send. A closed loop keeps a number of requests in flight: it finds the
//! highest throughput, and its latencies mean little, because a slow answer also delays the next
//! request. An open loop (`--rate`) sends at moments of its own, whatever comes back, and counts
//! latency from the moment when a request was due, so that requests queued behind a slow answer are
//! counted in full.
//!
//! One thread does everything, on the `h2` crate: a generator that used as much CPU as the service
//! would measure itself. Its own CPU time is part of the report.

mod call;
mod message;
mod pace;
mod report;
mod tally;
mod template;

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use h2::client::SendRequest;
use tokio::sync::Semaphore;
use tokio::task::{JoinSet, LocalSet, spawn_local};
use tokio::time::interval;

use self::call::{Failure, Service};
use self::message::Requests;
use self::pace::{Alarm, Arrivals};
use self::tally::Tally;
use crate::clock::Stopwatch;
use crate::settings::Bench;

/// If no request ends for this long while some are in flight, the service is given up.
const SILENCE_MAX: Duration = Duration::from_secs(5);

/// Requests in flight in an open loop, at most. Beyond it, sending waits, and the requests count as
/// late.
const OPEN_IN_FLIGHT_MAX: u32 = 10_000;

/// A connection that requests are sent on.
type Lane = SendRequest<bytes::Bytes>;

/// Generates the load and prints the report.
///
/// # Errors
/// No request was answered. The message is for people.
pub fn run(settings: &Bench) -> Result<(), String> {
    let requests = Requests::new(settings)?;
    let runtime = super::runtime()?;
    let result = LocalSet::new().block_on(&runtime, load(settings, requests))?;
    super::print(&if settings.json { report::json(&result) } else { report::text(&result) })
}

async fn load(settings: &Bench, requests: Requests) -> Result<report::Result, String> {
    let service = Rc::new(Service::new(&settings.addr)?);
    let mut lanes = Vec::with_capacity(settings.connections);
    for _ in 0..settings.connections {
        lanes.push(service.connect().await?);
    }
    let run = Rc::new(Run::new(settings, service, requests));
    let cpu_before = report::cpu_ns();
    let all_ended = tokio::select! {
        sent = send_all(&run, lanes, settings) => sent.map(|()| true)?,
        () = silence(&run) => false,
    };
    if !all_ended {
        let unanswered = run.sent.get() - run.ended.get();
        run.tally.borrow_mut().fail(format!("no answer for {SILENCE_MAX:?}"), unanswered);
    }
    let cpu_ns = report::cpu_ns().zip(cpu_before).map(|(after, before)| after - before);
    let tally = run.tally.take();
    if tally.answered == 0 {
        let why = tally.errors.into_keys().next();
        let why = why.unwrap_or_else(|| "nothing was sent in --duration; lengthen it".to_owned());
        return Err(format!("no answer from {}: {why}", settings.addr));
    }
    Ok(report::Result { tally, sent: run.sent.get(), from: run.from, cpu_ns })
}

/// The state of one load, shared by its tasks.
struct Run {
    watch: Stopwatch,
    service: Rc<Service>,
    requests: RefCell<Requests>,
    tally: RefCell<Tally>,
    /// Requests that start from here on are measured.
    from: Duration,
    until: Duration,
    requests_max: u64,
    sent: Cell<u64>,
    ended: Cell<u64>,
}

impl Run {
    fn new(settings: &Bench, service: Rc<Service>, requests: Requests) -> Self {
        let (from, until) = match settings.requests {
            Some(_) => (Duration::ZERO, Duration::MAX),
            None => (settings.warmup, settings.warmup + settings.duration),
        };
        Self {
            watch: Stopwatch::start(),
            service,
            requests: RefCell::new(requests),
            tally: RefCell::default(),
            from,
            until,
            requests_max: settings.requests.unwrap_or(u64::MAX),
            sent: Cell::new(0),
            ended: Cell::new(0),
        }
    }

    /// Reserves the next request, for a given moment; `None` after the last one.
    fn may_send(&self, at: Duration) -> bool {
        let may = at < self.until && self.sent.get() < self.requests_max;
        self.sent.set(self.sent.get() + u64::from(may));
        may
    }

    /// Sends the next request and records its result from `start`. Returns false if the connection
    /// is lost.
    async fn send(&self, lane: &mut Lane, start: Duration) -> bool {
        let message = self.requests.borrow_mut().next();
        let outcome = self.service.call(lane, message).await;
        self.ended.set(self.ended.get() + 1);
        let goes_on = !matches!(outcome, Err(Failure::Lost(_)));
        // A lost connection is always recorded: there may be no further request to measure.
        if start >= self.from || !goes_on {
            self.tally.borrow_mut().count(outcome, start, self.watch.elapsed());
        }
        goes_on
    }
}

/// Sends all requests and waits until all of them have ended.
async fn send_all(run: &Rc<Run>, lanes: Vec<Lane>, settings: &Bench) -> Result<(), String> {
    match settings.rate {
        None => closed(run, &lanes, settings.in_flight).await,
        Some(rate) => {
            let arrivals = Arrivals::new(rate.get(), settings.seed);
            open(run, &lanes, arrivals).await.map_err(|error| format!("timer: {error}"))?;
        }
    }
    Ok(())
}

async fn closed(run: &Rc<Run>, lanes: &[Lane], in_flight: usize) {
    let mut workers = JoinSet::new();
    for lane in lanes.iter().cycle().take(in_flight) {
        let (run, mut lane) = (Rc::clone(run), lane.clone());
        workers.spawn_local(async move {
            let mut now = run.watch.elapsed();
            while run.may_send(now) && run.send(&mut lane, now).await {
                now = run.watch.elapsed();
            }
        });
    }
    while workers.join_next().await.is_some() {}
}

async fn open(run: &Rc<Run>, lanes: &[Lane], mut arrivals: Arrivals) -> io::Result<()> {
    let alarm = Alarm::new()?;
    let places = Arc::new(Semaphore::new(OPEN_IN_FLIGHT_MAX as usize));
    for lane in lanes.iter().cycle() {
        let start = arrivals.next();
        if !run.may_send(start) {
            break;
        }
        let early = start.saturating_sub(run.watch.elapsed());
        if !early.is_zero() {
            alarm.wait(early).await?;
        }
        let place = Arc::clone(&places).acquire_owned().await;
        let (run, mut lane) = (Rc::clone(run), lane.clone());
        spawn_local(async move {
            run.send(&mut lane, start).await;
            drop(place);
        });
    }
    // All permits are back when all requests have ended.
    let _ = places.acquire_many(OPEN_IN_FLIGHT_MAX).await;
    Ok(())
}

/// Completes when requests have been in flight for [`SILENCE_MAX`] and none has ended.
async fn silence(run: &Run) {
    let mut ticks = interval(SILENCE_MAX);
    let mut before = None;
    loop {
        ticks.tick().await;
        let ended = run.ended.get();
        if before == Some(ended) && run.sent.get() > ended {
            return;
        }
        before = Some(ended);
    }
}
