//! Writes the log to standard error from a thread of its own, so that a slow reader delays no
//! request. Lines that do not fit its queue are dropped.

use std::io::{self, IsTerminal, Write, stderr};

use serde_json::json;
use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;

use crate::clock::{Clock, SystemClock, moment};
use crate::printable::printable_line;
use crate::settings::Log;

/// Lines queued for writing.
const WAITING_MAX: usize = 1_024;

/// Starts the log. Dropping the returned guard flushes the queue within a second.
///
/// # Errors
/// A setting is wrong. The message is for people.
pub(super) fn start(log: &Log) -> Result<WorkerGuard, String> {
    let level = log.level.as_str();
    // At warn and info, libraries log errors only: we report outages in one line of our own, and
    // messages about callers could fill the log. Directives can enable more.
    let quiet = ["warn", "info"].contains(&level);
    let libraries = ["fred", "h2", "rustls"].map(|library| format!(",{library}=error"));
    let directives = if quiet { level.to_owned() + &libraries.concat() } else { level.to_owned() };
    let filter = EnvFilter::try_new(directives).map_err(|error| format!("--log: {error}"))?;
    let queue = NonBlockingBuilder::default().buffered_lines_limit(WAITING_MAX).thread_name("log");
    let keeps_colours = !is_json(log) && stderr().is_terminal();
    let (writer, guard) = queue.finish(SafeStderr { keeps_colours });
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer);
    let started = if is_json(log) {
        // No spans: fields appear beside the message, where collectors look for them.
        let json = lines.json().flatten_event(true).with_current_span(false);
        json.with_span_list(false).try_init()
    } else {
        lines.with_ansi(stderr().is_terminal()).try_init()
    };
    started.map(|()| guard).map_err(|error| format!("--log: {error}"))
}

/// Standard error. Characters that could deceive the reader of a terminal are escaped, whoever they come
/// from.
struct SafeStderr {
    keeps_colours: bool,
}

impl Write for SafeStderr {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        stderr().write_all(&printable_line(line, self.keeps_colours))?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        stderr().flush()
    }
}

pub(super) fn is_json(log: &Log) -> bool {
    log.format.is_json(stderr().is_terminal())
}

/// The error that ends the service, as a line of a JSON log.
pub(super) fn error_line(error: &str) -> String {
    let line = json!({
        "timestamp": moment(SystemClock.now_ms()),
        "level": "ERROR",
        "message": error.trim_end(),
        "target": "tidegate",
    });
    let line = format!("{line}\n");
    String::from_utf8_lossy(&printable_line(line.as_bytes(), false)).into_owned()
}
