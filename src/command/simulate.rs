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
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{Receiver, channel};

use crate::clock::SystemClock;
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
use trace::Recorded;

/// A replay waits for a slow server, because no caller waits for it.
const STORE_TIMEOUT: Duration = Duration::from_secs(10);

/// Lines that are read ahead.
const LINES_AHEAD: usize = 256;

/// The longest line of a trace.
const LINE_BYTES_MAX: u64 = 16 << 20;

/// Replays a trace and prints its decisions.
///
/// # Errors
/// The limits, the trace or the store have a mistake. The text is for people.
pub fn run(settings: &Simulate) -> Result<(), String> {
    let runtime = super::runtime()?;
    let result = runtime.block_on(simulate(settings));
    // The reader thread may still be blocked on input.
    runtime.shutdown_background();
    result
}

async fn simulate(settings: &Simulate) -> Result<(), String> {
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
    };
    let mut terminate = signal(SignalKind::terminate()).map_err(|error| error.to_string())?;
    let result = tokio::select! {
        result = replay.all(lines_of(trace)) => result,
        _ = tokio::signal::ctrl_c() => Err("interrupted".to_owned()),
        _ = terminate.recv() => Err("terminated".to_owned()),
    };
    let cleaned = replay.clean_up().await;
    match (result, cleaned) {
        (Err(stopped), Err(remains)) => Err(format!("{stopped}; {remains}")),
        (result, cleaned) => result.and(cleaned),
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
}

impl Replay {
    async fn all(&mut self, mut lines: Receiver<io::Result<Vec<u8>>>) -> Result<(), String> {
        let mut number = 0_u64;
        while let Some(line) = lines.recv().await {
            number += 1;
            let line = line.map_err(|error| format!("line {number}: {error}"))?;
            if !line.trim_ascii().is_empty() {
                self.one(&line).await.map_err(|error| format!("line {number}: {error}"))?;
            }
        }
        if let Some(summary) = self.summary.take() {
            self.out.write_all(summary.table().as_bytes()).map_err(|error| error.to_string())?;
        }
        self.out.flush().map_err(|error| error.to_string())
    }

    async fn one(&mut self, line: &[u8]) -> Result<(), String> {
        let (request, at_ms) = Recorded::parse(line)?;
        let snapshot = self.service.snapshot();
        self.note_keys(&snapshot, &request)?;
        let answer = self.service.decide(&snapshot, &request, DecideContext::at(at_ms)).await;
        let answer = answer.map_err(|error| error.to_string())?;
        match &mut self.summary {
            Some(summary) => {
                summary.count(request.domain(), &answer);
                Ok(())
            }
            None => writeln!(self.out, "{}", decision(&answer, request.descriptors().len()))
                .map_err(|error| error.to_string()),
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
