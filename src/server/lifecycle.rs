//! The phases of the service on its way to its end. Each part of the server follows them by itself.

use tokio::sync::watch;

/// The phases, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    /// Serving.
    Serving,
    /// Still answering calls, while health and `/readyz` report that it is not ready.
    Leaving,
    /// Finishing the calls in flight.
    Stopping,
}

/// Sets the phase.
#[derive(Debug)]
pub(super) struct Lifecycle(watch::Sender<Phase>);

/// Follows the phase.
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

    /// Waits until this phase or a later one is reached.
    pub(super) async fn reached(&mut self, phase: Phase) {
        // The sender is gone, which is an end too.
        let _ = self.0.wait_for(|now| *now >= phase).await;
    }

    /// As `reached`, for callers that give up their handle.
    pub(super) async fn until(mut self, phase: Phase) {
        self.reached(phase).await;
    }
}
