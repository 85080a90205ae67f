//! `tidegate serve`: the service with its log and signals.

use std::io::IsTerminal;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;
use tracing_subscriber::EnvFilter;

use crate::rules::reload;
use crate::server;
use crate::settings::Serve;

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

fn start_log(directives: &str) -> Result<(), String> {
    // Of an outage one line is enough, which is ours; who asks for more gets the client's too.
    let quiet = ["warn", "info"].contains(&directives);
    let directives = if quiet { format!("{directives},fred=error") } else { directives.to_owned() };
    let filter = EnvFilter::try_new(directives).map_err(|error| format!("--log: {error}"))?;
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let colours = std::io::stderr().is_terminal();
    log.with_ansi(colours).try_init().map_err(|error| format!("--log: {error}"))
}
