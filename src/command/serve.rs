//! `tidegate serve`: the service with its log and signals.

use std::io::IsTerminal;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;
use tracing_subscriber::EnvFilter;

use crate::rules::reload;
use crate::server;
use crate::settings::{Log, Serve};

/// Serves until SIGTERM or SIGINT, of which a second one ends it at once; SIGHUP reads the limits
/// again.
///
/// # Errors
/// What kept the service from starting, for people.
pub fn run(settings: Serve) -> Result<(), String> {
    start_log(&settings.log)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("runtime: {error}"))?;
    runtime.block_on(serve(settings))
}

async fn serve(settings: Serve) -> Result<(), String> {
    // Before the ports are told, so that nobody can send a signal too early.
    let mut ends = Ends::new()?;
    let mut hangups = listen(SignalKind::hangup())?;
    let bound = server::bind(settings).await?;
    let limits = bound.reload();
    tokio::spawn(async move {
        while hangups.recv().await.is_some() {
            limits.tell(reload::Signal::Force);
        }
    });
    let (grpc, http) = bound.addrs().map_err(|error| error.to_string())?;
    tracing::info!("grpc on {grpc}");
    tracing::info!("http on {http}");
    if let Some(admin) = bound.admin_addr().map_err(|error| error.to_string())? {
        tracing::info!("admin on {admin}");
    }
    let (first, told) = oneshot::channel();
    let twice = async {
        ends.next().await;
        // Who serves may have ended by itself.
        let _ = first.send(());
        ends.next().await;
    };
    tokio::select! {
        served = Box::pin(bound.serve(async { drop(told.await) })) => served,
        () = twice => Err("ended at once by a second signal; calls in flight are cut off".to_owned()),
    }
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

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

fn listen(kind: SignalKind) -> Result<Signal, String> {
    signal(kind).map_err(|error| format!("signals: {error}"))
}

fn start_log(log: &Log) -> Result<(), String> {
    let level = log.level.as_str();
    // Of an outage one line is enough, which is ours; who asks for more gets the client's too.
    let quiet = ["warn", "info"].contains(&level);
    let directives = if quiet { format!("{level},fred=error") } else { level.to_owned() };
    let filter = EnvFilter::try_new(directives).map_err(|error| format!("--log: {error}"))?;
    let to_terminal = std::io::stderr().is_terminal();
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let started = if log.format.is_json(to_terminal) {
        // No spans: fields stand beside the message, where collectors look for them.
        let json = lines.json().flatten_event(true).with_current_span(false);
        json.with_span_list(false).try_init()
    } else {
        lines.with_ansi(to_terminal).try_init()
    };
    started.map_err(|error| format!("--log: {error}"))
}
