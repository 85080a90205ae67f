//! Ctrl-C and SIGTERM for commands that run for a while.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// It did everything.
    Complete,
    /// A signal with this number stopped it. It printed its results so far.
    Stopped(u8),
}

/// Both signals, from now on.
pub(super) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// # Errors
    /// The operating system refuses a handler.
    pub(super) fn new() -> Result<Self, String> {
        let listen = |kind| signal(kind).map_err(|error| format!("signals: {error}"));
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
        })
    }

    /// Waits for the next one.
    pub(super) async fn next(&mut self) -> Completion {
        let kind = tokio::select! {
            _ = self.interrupt.recv() => SignalKind::interrupt(),
            _ = self.terminate.recv() => SignalKind::terminate(),
        };
        Completion::Stopped(u8::try_from(kind.as_raw_value()).unwrap_or(0))
    }
}
