//! The decision log: a sample of the decisions, one JSON line each, on standard error.
//!
//! It does not depend on `--log` and `--log-format`. Decisions are sampled at random: a fixed
//! stride aliases with callers that take turns. Values of requests appear as in `/top`: hashed
//! where the rule asks for it, and where no rule matches. The request path never waits: the number
//! of lines per second is bounded, a separate thread writes them, and lines that do not fit its
//! queue are counted and dropped.

use std::io::{self, Write, stderr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tracing_appender::non_blocking::{NonBlocking, NonBlockingBuilder, WorkerGuard};

use super::answer::{Answer, LimitAnswer};
use super::error::DecideError;
use super::offender;
use crate::clock::{Clock, SystemClock, moment, uptime_us};
use crate::key;
use crate::metrics::LogLines;
use crate::printable::printable_line;
use crate::request::Request;
use crate::trace::Parent;

/// Lines queued for writing.
const WAITING_MAX: usize = 4_096;

/// Descriptors and limits listed in a line, at most. The line also has their total numbers.
const LISTED_MAX: usize = 32;

/// The decision log of all threads.
pub struct DecisionLog {
    /// The sampled share, of 2^32.
    share: u64,
    rate: Rate,
    writer: NonBlocking,
    /// Lines dropped from the queue that are already counted in the metric.
    dropped: AtomicU64,
    lines: LogLines,
}

/// Standard error, with counts of lines written and lost.
struct Counted(LogLines);

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        stderr().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        stderr().flush()
    }

    /// Writes one line.
    fn write_all(&mut self, line: &[u8]) -> io::Result<()> {
        let written = stderr().write_all(&printable_line(line, false));
        let count = if written.is_ok() { &self.0.written } else { &self.0.lost };
        count.increment(1);
        written
    }
}

/// A limit per second. The upper 32 bits hold the current second, the lower 32 bits its number of
/// lines.
#[derive(Debug)]
struct Rate {
    max: u32,
    had: AtomicU64,
}

/// A request and the outcome of deciding it.
pub(super) struct Decided<'a> {
    pub(super) request: &'a Request,
    pub(super) answer: Result<&'a Answer<'a>, &'a DecideError>,
    /// How long it took.
    pub(super) elapsed: Duration,
    /// The span of the call, if it is traced.
    pub(super) span: Option<&'a Parent>,
}

impl DecisionLog {
    /// Logs a share of all decisions, from 0 to 1, and at most `lines_max` per second. Dropping the
    /// guard flushes the queue within a second.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // 0 to 2^32
    pub fn start(share: f64, lines_max: u32, lines: LogLines) -> (Self, WorkerGuard) {
        let queue = NonBlockingBuilder::default().buffered_lines_limit(WAITING_MAX);
        let (writer, guard) = queue.thread_name("decision-log").finish(Counted(lines.clone()));
        let share = (share.clamp(0.0, 1.0) * 2_f64.powi(32)).ceil() as u64;
        let rate = Rate { max: lines_max, had: AtomicU64::new(0) };
        (Self { share, rate, writer, dropped: AtomicU64::new(0), lines }, guard)
    }

    /// Logs a decision if it is sampled.
    pub(super) fn log(&self, decided: &Decided<'_>) {
        if u64::from(fastrand::u32(..)) >= self.share {
            return;
        }
        if !self.rate.takes(uptime_us() / 1_000_000) {
            self.lines.over_rate.increment(1);
            return;
        }
        let mut line = line(decided.request, decided.answer);
        line["duration_us"] = u64::try_from(decided.elapsed.as_micros()).unwrap_or(u64::MAX).into();
        if let Some(span) = decided.span {
            line["trace_id"] = span.trace_id().into();
        }
        // The queue counts the lines that it drops.
        let _ = self.writer.clone().write_all(format!("{line}\n").as_bytes());
        let dropped = self.writer.error_counter().dropped_lines() as u64;
        let before = self.dropped.fetch_max(dropped, Ordering::Relaxed);
        self.lines.lost.increment(dropped.saturating_sub(before));
    }
}

impl Rate {
    fn takes(&self, second: u64) -> bool {
        let second = second << 32;
        let next = |had: u64| {
            let count =
                if had & !u64::from(u32::MAX) == second { had & u64::from(u32::MAX) } else { 0 };
            (count < u64::from(self.max)).then_some(second | (count + 1))
        };
        self.had.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok()
    }
}

fn line(request: &Request, answer: Result<&Answer<'_>, &DecideError>) -> Value {
    let mut line = json!({
        "timestamp": moment(SystemClock.now_ms()),
        "level": "INFO",
        "target": "tidegate::decision",
        "message": "decided",
        "domain": key::shortened(request.domain()),
    });
    let limits = match answer {
        Ok(answer) => {
            line["decision"] = if answer.allowed { "allowed" } else { "rejected" }.into();
            line["source"] = answer.source.name().into();
            line["rejected_by"] = answer.rejected_by(LISTED_MAX).collect();
            line["unknown_domain"] = answer.domain.is_none().into();
            &answer.limits[..]
        }
        Err(error) => {
            line["decision"] = "none".into();
            line["error"] = error.kind().into();
            &[]
        }
    };
    line["descriptors"] = descriptors(request, limits, answer.is_ok_and(|a| a.allowed));
    if request.only_refunds() {
        line["refund"] = true.into();
    }
    line["descriptors_count"] = request.descriptors().len().into();
    line["limits_count"] = limits.len().into();
    line
}

fn descriptors(request: &Request, limits: &[LimitAnswer<'_>], allowed: bool) -> Value {
    let listed = limits.iter().take(LISTED_MAX);
    let descriptor = |(at, descriptor): (usize, crate::request::Descriptor<'_>)| {
        let own = listed.clone().filter(|limit| limit.descriptor == at);
        let rule = own.clone().find_map(|limit| limit.matched);
        json!({
            "entries": offender::shown(rule, descriptor.entries),
            "hits": descriptor.hits,
            "limits": own.map(|limit| result(limit, allowed)).collect::<Vec<_>>(),
        })
    };
    request.descriptors().enumerate().take(LISTED_MAX).map(descriptor).collect()
}

fn result(limit: &LimitAnswer<'_>, allowed: bool) -> Value {
    let mut result = json!({ "rule": limit.rule, "result": limit.result(allowed).name() });
    // An unlimited rule has no limit.
    if let Some(definition) = limit.definition {
        result["limit"] = definition.hits().into();
        result["remaining"] = limit.status.remaining.into();
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_a_second_and_no_more() {
        let rate = Rate { max: 3, had: AtomicU64::new(0) };
        let taken = |second| (0..10).filter(|_| rate.takes(second)).count();
        assert_eq!([taken(0), taken(1), taken(1), taken(7)], [3, 3, 0, 3]);
    }
}
