//! `tidegate serve`: the service with its log and signals.

use std::io::IsTerminal;

use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

use crate::rules::reload::Signal;
use crate::server;
use crate::settings::Serve;

/// Serves until SIGTERM or SIGINT; SIGHUP reads the limits again.
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
    let mut terminate = signal(SignalKind::terminate()).map_err(|error| error.to_string())?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(|error| error.to_string())?;
    let mut hangup = signal(SignalKind::hangup()).map_err(|error| error.to_string())?;
    let bound = server::bind(settings).await?;
    let reload = bound.reload();
    let reloading = tokio::spawn(async move {
        while hangup.recv().await.is_some() {
            reload.tell(Signal::Force);
        }
    });
    let (grpc, http) = bound.addrs().map_err(|error| error.to_string())?;
    tracing::info!("grpc on {grpc}");
    tracing::info!("http on {http}");
    let shutdown = async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("ending: finishing what is in flight");
    };
    let served = Box::pin(bound.serve(shutdown)).await;
    reloading.abort();
    served
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
