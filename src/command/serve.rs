//! `tidegate serve`: runs the service, with its log and signals.
//!
//! SIGTERM and SIGINT begin a graceful shutdown, a second one of either ends the process at once,
//! and SIGHUP reads the limits again. The handlers are installed before the ports are announced, so
//! a signal sent by a supervisor is never lost. Requests are served by worker threads of the
//! `server` module; the runtime here only has the main task and a few threads for blocking work.

mod log;

use std::io::{IsTerminal, stderr};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

use crate::clock::Stopwatch;
use crate::period;
use crate::server::{self, Bound, Drain};
use crate::settings::Serve;

/// Threads for blocking work, in addition to the worker threads.
const BLOCKING_THREADS: usize = 4;

/// Serves until SIGTERM or SIGINT; a second one ends the process at once. SIGHUP reads the limits
/// again.
///
/// # Errors
/// The service could not start. The text is for people, or the last line of a JSON log.
pub fn run(settings: Serve) -> Result<(), Failure> {
    let json = log::is_json(&settings.log);
    run_logged(settings).map_err(|error| Failure { error, json })
}

/// Why the service ended.
#[derive(Clone, Debug)]
pub struct Failure {
    error: String,
    json: bool,
}

impl Failure {
    /// Prints it as the last line of the log.
    pub fn print(&self) {
        if self.json {
            super::print_error(&log::error_line(&self.error));
        } else {
            super::print_failure(&self.error);
        }
    }
}

fn run_logged(settings: Serve) -> Result<(), String> {
    // Dropped last: it flushes the log.
    let _log = log::start(&settings.log)?;
    allow_open_files(settings.connections.max_connections);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        // The blocking work is rendering large pages: more threads would only use memory.
        .max_blocking_threads(BLOCKING_THREADS)
        .build()
        .map_err(|error| format!("runtime: {error}"))?;
    runtime.block_on(serve(settings))
}

/// Raises the limit on open files. Every connection is one, and the usual soft limit is 1,024.
fn allow_open_files(connections: usize) {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        // Further files: limits, Redis connections and the HTTP port.
        let wanted = connections as u64 + 2_048;
        if current.is_none_or(|current| current >= wanted) {
            return;
        }
        let allowed = maximum.map_or(wanted, |maximum| maximum.min(wanted));
        let raised = setrlimit(Resource::Nofile, Rlimit { current: Some(allowed), maximum });
        if raised.is_err() || allowed < wanted {
            tracing::warn!(allowed, "--max-connections may need {wanted} open files");
        }
    }
}

async fn serve(settings: Serve) -> Result<(), String> {
    // Before the ports are announced, so that no signal can arrive too early.
    let mut ends = Ends::new()?;
    let mut hangups = listen(SignalKind::hangup())?;
    let bound = server::bind(settings).await?;
    let limits = bound.reload();
    tokio::spawn(async move {
        while hangups.recv().await.is_some() {
            limits.read_now();
        }
    });
    tell_start(&bound);
    let (grpc, http) = bound.addrs().map_err(|error| error.to_string())?;
    tracing::info!("grpc on {grpc}");
    tracing::info!("http on {http}");
    if let Some(admin) = bound.admin_addr().map_err(|error| error.to_string())? {
        tracing::info!("admin on {admin}");
    }
    let running = Stopwatch::start();
    let (first, told) = oneshot::channel();
    let twice = async {
        let drain = ends.next().await;
        // The server may have ended by itself.
        let _ = first.send(drain);
        ends.next().await;
    };
    let shutdown = async { told.await.unwrap_or(Drain::Announced) };
    tokio::select! {
        served = Box::pin(bound.serve(shutdown)) => served?,
        () = twice => return Err(
            "a second signal ended the service at once; calls in flight were cut off".to_owned()
        ),
    }
    let uptime = period::format(running.elapsed().as_secs().saturating_mul(1_000));
    tracing::info!(uptime, "ended");
    Ok(())
}

/// Logs what is served, in one line.
fn tell_start(bound: &Bound) {
    let (snapshot, settings) = (bound.rules().snapshot(), bound.settings());
    let rules: usize = snapshot.rules.domains().map(|domain| domain.rules().count()).sum();
    tracing::info!(
        domains = snapshot.rules.domains().count(),
        rules,
        limits = %settings.limits.display(),
        hash = snapshot.load.hash,
        store = %settings.store.url,
        "tidegate {} starts",
        env!("CARGO_PKG_VERSION")
    );
}

/// SIGTERM and SIGINT.
struct Ends {
    terminate: Signal,
    interrupt: Signal,
}

impl Ends {
    fn new() -> Result<Self, String> {
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
        })
    }

    /// Waits for the next one. Ctrl-C at a terminal is of a person, who wants no delay.
    async fn next(&mut self) -> Drain {
        tokio::select! {
            _ = self.terminate.recv() => Drain::Announced,
            _ = self.interrupt.recv() => match stderr().is_terminal() {
                true => Drain::AtOnceIfIdle,
                false => Drain::Announced,
            },
        }
    }
}

fn listen(kind: SignalKind) -> Result<Signal, String> {
    signal(kind).map_err(|error| format!("signals: {error}"))
}
