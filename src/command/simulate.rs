//! `tidegate simulate`: replays recorded requests with the clock of the recording.
//!
//! Each line of a trace has a time and a request. The replay decides them in order, at their times,
//! against new limits, and prints one decision per line or a summary per rule. So a change of
//! limits can be tested on the traffic of last week in seconds. It uses the same planner, stores
//! and decisions as the service. With Redis it works under a key prefix of its own and removes its
//! keys at the end.

mod summary;
mod trace;

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, IsTerminal, Write};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::mpsc::{Receiver, channel};

use super::progress::{self, Progress};
use super::signals::{Completion, Signals};
use crate::clock::{Stopwatch, SystemClock};
use crate::key::KeyFormat;
use crate::metrics::Metrics;
use crate::on_store_failure::OnStoreFailure;
use crate::request::Request;
use crate::rules::parse;
use crate::service::{Answer, FailurePolicy, LimitAnswer, Load, Rules, Service, Snapshot};
use crate::settings::{self, Simulate};
use crate::store::memory::MemoryStore;
use crate::store::redis::{Options, RedisStore, Shared};
use crate::store::{AnyStore, DecideContext};
use crate::store_error::StoreError;
use summary::Summary;
use trace::{Line, Recorded};

/// A replay waits for a slow server, because no caller waits for it.
const STORE_TIMEOUT: Duration = Duration::from_secs(10);

/// Lines that are read ahead.
const LINES_AHEAD: usize = 256;

/// The longest line of a trace.
const LINE_BYTES_MAX: u64 = 16 << 20;

/// Replays a trace and prints its decisions. After Ctrl-C they are those so far.
///
/// # Errors
/// The limits, the trace or the store have a mistake. The text is for people.
pub fn run(settings: &Simulate) -> Result<Completion, String> {
    let runtime = super::runtime()?;
    let result = runtime.block_on(simulate(settings));
    // The reader thread may still be blocked on input.
    runtime.shutdown_background();
    result
}

async fn simulate(settings: &Simulate) -> Result<Completion, String> {
    let mut signals = Signals::new()?;
    let rules = parse::load(&settings.limits, settings.switches.into())
        .map_err(|errors| errors.to_string())?;
    let trace = open(&settings.trace)?;
    let metrics =
        Metrics::new(0, &StoreError::KINDS).map_err(|error| format!("metrics: {error}"))?;
    let prefix = format!("tg-simulate-{:016x}", fastrand::u64(..));
    let store = open_store(&settings.store, &metrics).await?;
    let mut replay = Replay {
        service: Service::new(
            Arc::new(Rules::new(rules, Load::default(), &metrics, KeyFormat::readable(&prefix))),
            store,
            // A decision by the fallback is not a result of a replay.
            FailurePolicy::Always(OnStoreFailure::Error),
            metrics,
        ),
        prefix,
        keys: std::collections::HashSet::new(),
        summary: settings.summary.then(Summary::default),
        out: BufWriter::new(io::stdout().lock()),
        counts: Counts::default(),
        progress: Progress::unless(!settings.summary && io::stdout().is_terminal()),
    };
    let result = tokio::select! {
        result = replay.all(lines_of(trace)) => result.map(|()| Completion::Complete),
        stopped = signals.next() => Ok(stopped),
    };
    let result = result.and_then(|completion| replay.finish(completion));
    let cleaned = replay.clean_up().await;
    match (result, cleaned) {
        (Err(stopped), Err(remains)) => Err(format!("{stopped}; {remains}")),
        (result, cleaned) => cleaned.and(result),
    }
}

fn open(path: &Path) -> Result<Box<dyn BufRead + Send>, String> {
    if path == Path::new("-") {
        return Ok(Box::new(BufReader::new(io::stdin())));
    }
    let file = File::open(path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(Box::new(BufReader::new(file)))
}

/// Reads on a thread of its own, so that blocked input does not delay a signal.
fn lines_of(mut trace: Box<dyn BufRead + Send>) -> Receiver<io::Result<Vec<u8>>> {
    let (lines, received) = channel(LINES_AHEAD);
    std::thread::spawn(move || {
        loop {
            let mut line = Vec::new();
            let read = io::Read::take(&mut trace, LINE_BYTES_MAX).read_until(b'\n', &mut line);
            let ends = !matches!(read, Ok(bytes) if bytes > 0);
            if matches!(read, Ok(0)) || lines.blocking_send(read.map(|_| line)).is_err() || ends {
                return;
            }
        }
    });
    received
}

async fn open_store(settings: &settings::Store, metrics: &Metrics) -> Result<AnyStore, String> {
    let Some(access) = settings.access()? else {
        // A replay evicts nothing: its clock may go back to an earlier time.
        let keys_max = u32::MAX as usize;
        return Ok(AnyStore::Memory(Arc::new(MemoryStore::new(keys_max, Arc::new(SystemClock)))));
    };
    let options = Options { access, timeout: STORE_TIMEOUT, batch_max: 1 };
    let shared = Arc::new(Shared::new(metrics.clone()));
    let redis = RedisStore::connect(&options, shared)?;
    redis.connected(STORE_TIMEOUT).await.map_err(|error| format!("--store: {error}"))?;
    Ok(AnyStore::Replay(Box::new(redis)))
}

struct Replay {
    service: Service,
    prefix: String,
    /// Keys that the replay may have written, which are removed at the end.
    keys: std::collections::HashSet<Vec<u8>>,
    summary: Option<Summary>,
    out: BufWriter<io::StdoutLock<'static>>,
    counts: Counts,
    progress: Progress,
}

/// What became of the lines.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    lines: u64,
    decided: u64,
    /// Lines of the decision log that do not have the whole request.
    incomplete: u64,
}

/// Lines between two looks at the clock for the progress.
const LINES_PER_LOOK: u64 = 256;

impl Replay {
    async fn all(&mut self, mut lines: Receiver<io::Result<Vec<u8>>>) -> Result<(), String> {
        let mut shown = Stopwatch::start();
        while let Some(line) = lines.recv().await {
            self.counts.lines += 1;
            let number = self.counts.lines;
            if number.is_multiple_of(LINES_PER_LOOK) && shown.elapsed() >= progress::INTERVAL {
                shown = Stopwatch::start();
                self.progress.show(&format!("{} requests replayed", self.counts.decided));
                // A signal can end the replay here, however fast lines are read and decided.
                tokio::task::yield_now().await;
            }
            let line = line.map_err(|error| format!("line {number}: {error}"))?;
            if line.trim_ascii().is_empty() {
                continue;
            }
            let decided =
                self.one(&line).await.map_err(|error| format!("line {number}: {error}"))?;
            if decided.is_break() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Prints what is not printed yet.
    fn finish(&mut self, completion: Completion) -> Result<Completion, String> {
        self.progress.show("");
        if let Some(summary) = self.summary.take() {
            let _ = super::unless_closed(self.out.write_all(summary.table().as_bytes()))?;
        }
        let _ = super::unless_closed(self.out.flush())?;
        let Counts { decided, incomplete, .. } = self.counts;
        if completion != Completion::Complete {
            super::print_error(&format!("interrupted: these are the first {decided} requests\n"));
        }
        if incomplete > 0 {
            super::print_error(&format!(
                "warning: {incomplete} lines of the decision log were skipped: they list only some of \
                 the request's descriptors\n"
            ));
        }
        Ok(completion)
    }

    /// Decides the request of a line. `Break` if nobody reads the decisions.
    async fn one(&mut self, line: &[u8]) -> Result<ControlFlow<()>, String> {
        let (request, at_ms) = match Recorded::parse(line)? {
            Line::Request { request, at_ms } => (request, at_ms),
            Line::Incomplete => {
                self.counts.incomplete += 1;
                return Ok(ControlFlow::Continue(()));
            }
            Line::Other => return Ok(ControlFlow::Continue(())),
        };
        let snapshot = self.service.snapshot();
        self.note_keys(&snapshot, &request)?;
        let answer = self.service.decide(&snapshot, &request, DecideContext::at(at_ms)).await;
        let answer = answer.map_err(|error| error.to_string())?;
        self.counts.decided += 1;
        match &mut self.summary {
            Some(summary) => {
                summary.count(request.domain(), &answer);
                Ok(ControlFlow::Continue(()))
            }
            None => super::unless_closed(writeln!(
                self.out,
                "{}",
                decision(&answer, request.descriptors().len())
            )),
        }
    }

    fn note_keys(&mut self, snapshot: &Snapshot, request: &Request) -> Result<(), String> {
        if matches!(self.service.store(), AnyStore::Memory(_)) {
            return Ok(());
        }
        let Some(domain) = snapshot.rules.domain(request.domain()) else { return Ok(()) };
        let plan = snapshot.plan(domain, request).map_err(|error| error.to_string())?;
        self.keys.extend(plan.counters.into_iter().map(|counter| counter.key.as_bytes().to_vec()));
        Ok(())
    }

    async fn clean_up(&mut self) -> Result<(), String> {
        let keys: Vec<_> = std::mem::take(&mut self.keys).into_iter().collect();
        match self.service.store() {
            AnyStore::Replay(redis) => redis
                .remove(&keys)
                .await
                .map_err(|error| format!("keys {}* remain: {error}", self.prefix)),
            AnyStore::Memory(_) | AnyStore::Redis(_) => Ok(()),
        }
    }
}

/// One decision as JSON; a descriptor that matched no limit is null.
fn decision(answer: &Answer<'_>, descriptors: usize) -> Value {
    let mut statuses = Vec::new();
    for at in 0..descriptors {
        let met = answer.limits.iter();
        let met = met.filter(|limit| limit.descriptor == at && limit.definition.is_some());
        let before = statuses.len();
        statuses.extend(met.map(status_json));
        if statuses.len() == before {
            statuses.push(Value::Null);
        }
    }
    json!({ "allowed": answer.allowed, "delay_ms": answer.delay_ms, "statuses": statuses })
}

fn status_json(limit: &LimitAnswer<'_>) -> Value {
    let status = &limit.status;
    let never = if status.within_limit { json!(0) } else { json!(-1) };
    json!({
        "within_limit": status.within_limit,
        "limit": limit.definition.map_or(0, |definition| definition.hits()),
        "remaining": status.remaining,
        "reset_after_ms": status.reset_after_ms,
        "retry_after_ms": status.retry_after_ms.map_or(never, |wait_ms| json!(wait_ms)),
        "delay_ms": status.delay_ms,
    })
}
