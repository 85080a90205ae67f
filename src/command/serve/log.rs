//! The log on standard error. A thread of its own writes it, so that a reader who stands still
//! holds up nobody; what then is too much for the queue is dropped.

use std::fmt;
use std::io::{IsTerminal, stderr};

use serde_json::json;
use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;

use crate::clock::{Clock, SystemClock, moment};
use crate::settings::Log;

/// Lines that wait to be written.
const WAITING_MAX: usize = 1_024;

/// Starts the log. Dropping what this gives waits a second at most until all is written.
///
/// # Errors
/// What is wrong with the settings, for people.
pub(super) fn start(log: &Log) -> Result<WorkerGuard, String> {
    let level = log.level.as_str();
    // What libraries have to say is ours to say in one line, of an outage, or is about callers, who
    // could fill the log. Who asks for more gets theirs too.
    let quiet = ["warn", "info"].contains(&level);
    let libraries = ["fred", "h2", "notify", "rustls"].map(|library| format!(",{library}=error"));
    let directives = if quiet { level.to_owned() + &libraries.concat() } else { level.to_owned() };
    let filter = EnvFilter::try_new(directives).map_err(|error| format!("--log: {error}"))?;
    let queue = NonBlockingBuilder::default().buffered_lines_limit(WAITING_MAX).thread_name("log");
    let (writer, guard) = queue.finish(stderr());
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer);
    let started = if is_json(log) {
        // No spans: fields stand beside the message, where collectors look for them.
        let json = lines.json().flatten_event(true).with_current_span(false);
        json.with_span_list(false).try_init()
    } else {
        lines.with_ansi(stderr().is_terminal()).try_init()
    };
    started.map(|()| guard).map_err(|error| format!("--log: {error}"))
}

pub(super) fn is_json(log: &Log) -> bool {
    log.format.is_json(stderr().is_terminal())
}

/// The line of an error that ends the service.
pub(super) fn write_error(f: &mut fmt::Formatter<'_>, error: &str) -> fmt::Result {
    let line = json!({
        "timestamp": moment(SystemClock.now_ms()),
        "level": "ERROR",
        "message": error.trim_end(),
        "target": "tidegate",
    });
    write!(f, "{line}")
}
