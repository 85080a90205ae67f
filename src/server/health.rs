//! Periodic maintenance: health, histograms, expiry in the memory store, reconciliation with the
//! store.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use super::lifecycle::{Phase, PhaseWatch};
use crate::grpc::rpc::SERVICES;
use crate::service::{Readiness, Service};
use crate::store_error::StoreError;

/// The interval of the maintenance.
const TICK: Duration = Duration::from_millis(500);

/// How long one reconciliation may take, so that the rest is not delayed.
const RECONCILE_MAX: Duration = Duration::from_millis(200);

/// The services whose health can be asked for. The empty name stands for the process.
fn all() -> impl Iterator<Item = &'static str> {
    std::iter::once("").chain(SERVICES)
}

/// The periodic task, which runs until the service stops.
pub(super) struct Maintenance {
    service: Arc<Service>,
    health: HealthReporter,
    was_ready: Option<bool>,
}

impl Maintenance {
    /// Checks for the first time whether decisions can be made, and reports it.
    pub(super) async fn start(service: Arc<Service>, health: HealthReporter) -> Self {
        let mut tick = Self { service, health, was_ready: None };
        tick.sweep().await;
        tick
    }

    pub(super) async fn run(mut self, mut follow: PhaseWatch) {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut leaves = std::pin::pin!(follow.clone().until(Phase::Leaving));
        loop {
            tokio::select! {
                _ = ticks.tick() => self.sweep().await,
                () = &mut leaves => break,
            }
        }
        self.report(ServingStatus::NotServing).await;
        loop {
            tokio::select! {
                // Calls are still answered: hits admitted without the store are still reconciled.
                _ = ticks.tick() => {
                    let ready = self.service.ready().await;
                    self.tidy(ready.as_ref()).await;
                }
                () = follow.reached(Phase::Stopping) => break,
            }
        }
        self.end_watches().await;
    }

    async fn sweep(&mut self) {
        let ready = self.service.ready().await;
        if self.was_ready != Some(ready.is_ok()) {
            match &ready {
                Ok(Readiness::Store) => tracing::info!("the store decides"),
                Ok(Readiness::Fallback(error)) => {
                    tracing::warn!(%error, "deciding by --on-store-failure");
                }
                Err(error) => tracing::warn!(%error, "no decisions"),
            }
            self.was_ready = Some(ready.is_ok());
            let serves = ready.is_ok();
            let status = if serves { ServingStatus::Serving } else { ServingStatus::NotServing };
            self.report(status).await;
        }
        self.tidy(ready.as_ref()).await;
    }

    async fn tidy(&self, ready: Result<&Readiness, &StoreError>) {
        self.service.metrics().run_upkeep();
        if let Some(memory) = self.service.store().memory() {
            memory.drop_due();
        }
        if ready == Ok(&Readiness::Store) {
            self.service.store().reconcile(RECONCILE_MAX).await;
        }
    }

    async fn report(&self, status: ServingStatus) {
        for service in all() {
            self.health.set_service_status(service, status).await;
        }
    }

    /// Watchers have been notified. An open watch would hold its connection for ever.
    async fn end_watches(&mut self) {
        for service in all() {
            self.health.clear_service_status(service).await;
        }
    }
}
