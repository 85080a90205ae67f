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
mod lane;
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

use tokio::sync::Semaphore;
use tokio::task::{JoinSet, LocalSet, spawn_local};
use tokio::time::interval;

use self::call::{Failure, Service};
use self::lane::{Lane, LaneHandle};
use self::message::Requests;
use self::pace::{Alarm, Arrivals};
use self::tally::Tally;
use super::dial::Target;
use super::progress::{self, Progress};
use super::signals::{Completion, Signals};
use crate::clock::Stopwatch;
use crate::settings::Bench;

/// If no request ends for this long while some are in flight, the service is given up.
const SILENCE_MAX: Duration = Duration::from_secs(5);

/// Requests in flight in an open loop, at most. Beyond it, sending waits, and the requests count as
/// late.
const OPEN_IN_FLIGHT_MAX: u32 = 10_000;

/// Generates the load and prints the report. After Ctrl-C the report is of the requests so far.
///
/// # Errors
/// No request was answered. The message is for people.
pub fn run(settings: &Bench) -> Result<Completion, String> {
    let requests = Requests::new(settings)?;
    let runtime = super::runtime()?;
    let (result, completion) = LocalSet::new().block_on(&runtime, load(settings, requests))?;
    super::print(&if settings.json { report::json(&result) } else { report::text(&result) })?;
    if completion != Completion::Complete {
        super::print_error("interrupted: these are the results so far\n");
    }
    Ok(completion)
}

async fn load(
    settings: &Bench,
    requests: Requests,
) -> Result<(report::Result, Completion), String> {
    let mut signals = Signals::new()?;
    let service = Rc::new(Service::new(settings)?);
    let mut lanes = Vec::with_capacity(settings.connections);
    for _ in 0..settings.connections {
        lanes.push(Lane::open(Rc::clone(&service)).await?);
    }
    let run = Rc::new(Run::new(settings, requests));
    let cpu_before = report::cpu_ns();
    let (mut is_silent, mut completion) = (false, Completion::Complete);
    tokio::select! {
        sent = send_all(&run, &lanes, settings) => sent?,
        () = silence(&run) => is_silent = true,
        () = show_progress(&run) => {}
        stopped = signals.next() => completion = stopped,
    }
    if is_silent {
        let unanswered = run.sent.get() - run.ended.get();
        run.tally.borrow_mut().fail(format!("no answer for {SILENCE_MAX:?}"), unanswered);
    }
    let cpu_ns = report::cpu_ns().zip(cpu_before).map(|(after, before)| after - before);
    let tally = run.tally.take();
    if tally.answered == 0 {
        return Err(why_unanswered(service.target(), tally, completion).await);
    }
    Ok((report::Result { tally, sent: run.sent.get(), from: run.from, cpu_ns }, completion))
}

async fn why_unanswered(target: &Target, tally: Tally, completion: Completion) -> String {
    let nothing = match completion {
        Completion::Complete => "nothing was sent in --duration; lengthen it",
        Completion::Stopped(_) => "interrupted before the first measured answer",
    };
    let why = tally.errors.into_keys().next().unwrap_or_else(|| nothing.to_owned());
    target.explain(&why).await.unwrap_or_else(|| format!("no answer from {target}: {why}"))
}

/// The state of one load, shared by its tasks.
struct Run {
    watch: Stopwatch,
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
    fn new(settings: &Bench, requests: Requests) -> Self {
        let (from, until) = match settings.requests {
            Some(_) => (Duration::ZERO, Duration::MAX),
            None => (settings.warmup, settings.warmup + settings.duration),
        };
        Self {
            watch: Stopwatch::start(),
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
    async fn send(&self, lane: &mut LaneHandle, start: Duration) -> bool {
        let message = self.requests.borrow_mut().next();
        let outcome = lane.call(message).await;
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
async fn send_all(run: &Rc<Run>, lanes: &[Rc<Lane>], settings: &Bench) -> Result<(), String> {
    match settings.rate {
        None => closed(run, lanes, settings.in_flight).await,
        Some(rate) => {
            let arrivals = Arrivals::new(rate.get(), settings.seed);
            open(run, lanes, arrivals).await.map_err(|error| format!("timer: {error}"))?;
        }
    }
    Ok(())
}

async fn closed(run: &Rc<Run>, lanes: &[Rc<Lane>], in_flight: usize) {
    let mut workers = JoinSet::new();
    for lane in lanes.iter().cycle().take(in_flight) {
        let (run, mut lane) = (Rc::clone(run), lane.handle());
        workers.spawn_local(async move {
            let mut now = run.watch.elapsed();
            while run.may_send(now) && run.send(&mut lane, now).await {
                now = run.watch.elapsed();
            }
        });
    }
    while workers.join_next().await.is_some() {}
}

async fn open(run: &Rc<Run>, lanes: &[Rc<Lane>], mut arrivals: Arrivals) -> io::Result<()> {
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
        let (run, mut lane) = (Rc::clone(run), lane.handle());
        spawn_local(async move {
            run.send(&mut lane, start).await;
            drop(place);
        });
    }
    // All permits are back when all requests have ended.
    let _ = places.acquire_many(OPEN_IN_FLIGHT_MAX).await;
    Ok(())
}

/// Shows on a terminal how far the load is. Never completes.
async fn show_progress(run: &Run) {
    let progress = Progress::new();
    let mut ticks = interval(progress::INTERVAL);
    loop {
        ticks.tick().await;
        let elapsed = run.watch.elapsed();
        let (sent, ended) = (run.sent.get(), run.ended.get());
        let share = match run.until {
            Duration::MAX => format!("{ended} of {}", run.requests_max),
            until => format!("{:.0} s of {:.0} s", elapsed.as_secs_f64(), until.as_secs_f64()),
        };
        let (rate, in_flight) = (ended as f64 / elapsed.as_secs_f64().max(1e-9), sent - ended);
        let errors: u64 = run.tally.borrow().errors.values().sum();
        progress
            .show(&format!("{share}: {rate:.0} a second, {in_flight} in flight, {errors} errors"));
    }
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
