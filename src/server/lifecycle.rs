//! How far the service is on its way to the end. Every part follows it by itself.

use tokio::sync::watch;

/// From the first to the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    /// Calls are welcome.
    Serving,
    /// Calls are answered, and callers are told to go elsewhere.
    Leaving,
    /// Calls in flight are finished.
    Stopping,
}

/// Decides the phase.
#[derive(Debug)]
pub(super) struct Lifecycle(watch::Sender<Phase>);

/// Follows it.
#[derive(Clone, Debug)]
pub(super) struct PhaseWatch(watch::Receiver<Phase>);

impl Lifecycle {
    pub(super) fn new() -> (Self, PhaseWatch) {
        let (life, follow) = watch::channel(Phase::Serving);
        (Self(life), PhaseWatch(follow))
    }

    pub(super) fn enter(&self, phase: Phase) {
        self.0.send_replace(phase);
    }
}

impl PhaseWatch {
    pub(super) fn now(&self) -> Phase {
        *self.0.borrow()
    }

    /// Waits until the phase is this one or a later one.
    pub(super) async fn reached(&mut self, phase: Phase) {
        // An error says that nobody decides any more, which is an end too.
        let _ = self.0.wait_for(|now| *now >= phase).await;
    }

    /// The same, for those who keep nothing.
    pub(super) async fn until(mut self, phase: Phase) {
        self.reached(phase).await;
    }
}
