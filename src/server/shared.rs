//! The state that the services of all threads share, and the construction of a service per thread.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tracing_appender::non_blocking::WorkerGuard;

use super::places::Places;
use crate::clock::SystemClock;
use crate::grpc::{CallBudgets, Grpc};
use crate::http::{IsLeaving, Pages, SharedPage};
use crate::metrics::{InUse, Metrics};
use crate::service::{DecisionLog, FailurePolicy, Rules, Service};
use crate::settings::{Log, Serve, Traces};
use crate::store::AnyStore;
use crate::store::fallback::Fallback;
use crate::store::memory::MemoryStore;
use crate::store::outage::{Outages, Policy};
use crate::store::redis::{Options, RedisStore, Shared};
use crate::store::resilient::{Resilience, Resilient};
use crate::trace::Tracing;

/// How long the start waits for a connection to Redis.
pub(super) const CONNECT_MAX: Duration = Duration::from_secs(1);

/// The state that the services of all threads share.
pub(super) struct SharedState {
    pub(super) settings: Serve,
    pub(super) rules: Arc<Rules>,
    pub(super) metrics: Metrics,
    pub(super) stores: Stores,
    pub(super) in_flight: Arc<Semaphore>,
    pub(super) budgets: CallBudgets,
    pub(super) places: Places,
    pub(super) log: Option<Arc<DecisionLog>>,
    pub(super) tracing: Option<Arc<Tracing>>,
}

/// The part of the stores that all threads share.
pub(super) enum Stores {
    Memory(Arc<MemoryStore>),
    Redis(Box<Options>, Arc<Shared>, Arc<Resilience>),
}

impl Stores {
    pub(super) fn of(settings: &Serve, metrics: &Metrics) -> Result<Self, String> {
        Ok(match settings.store.access()? {
            None => {
                metrics.store_up.set(1.0);
                let clock = Arc::new(SystemClock);
                Self::Memory(Arc::new(MemoryStore::new(settings.memory_max_keys, clock)))
            }
            Some(access) => {
                metrics.store_up.set(0.0);
                let options = Options {
                    access,
                    timeout: settings.store_timeout,
                    batch_max: settings.store_batch_max,
                };
                let memory = MemoryStore::new(settings.memory_max_keys, Arc::new(SystemClock));
                let fallback = Fallback::new(Arc::new(memory), settings.replicas);
                let policy =
                    Policy { default: settings.on_store_failure, replicas: settings.replicas };
                let outages = Arc::new(Outages::new(policy));
                let layers = Resilience::new(settings.deny_cache(), fallback, metrics.clone());
                let layers = layers.counting_in(Arc::clone(&outages));
                let shared = Shared::with_outages(metrics.clone(), outages);
                Self::Redis(Box::new(options), Arc::new(shared), Arc::new(layers))
            }
        })
    }

    /// Opens the store for this thread.
    fn open(&self) -> Result<AnyStore, String> {
        Ok(match self {
            Self::Memory(memory) => AnyStore::Memory(Arc::clone(memory)),
            Self::Redis(options, shared, layers) => {
                let redis = RedisStore::connect(options, Arc::clone(shared))?;
                AnyStore::Redis(Box::new(Resilient::new(redis, Arc::clone(layers))))
            }
        })
    }
}

/// Starts the decision log, if it is enabled.
pub(super) fn decision_log(
    settings: &Log,
    metrics: &Metrics,
) -> Option<(Arc<DecisionLog>, WorkerGuard)> {
    let share = settings.decision_log_sample;
    let start =
        || DecisionLog::start(share, settings.decision_log_rate, metrics.decision_log.clone());
    (share > 0.0).then(start).map(|(log, guard)| (Arc::new(log), guard))
}

/// Starts tracing, if it is enabled.
pub(super) fn tracing(
    settings: &Traces,
    metrics: &Metrics,
) -> Result<Option<Arc<Tracing>>, String> {
    let start = |options| Tracing::start(&options, metrics.spans.clone()).map(Arc::new);
    settings.options().map(start).transpose()
}

impl SharedState {
    /// A service for this thread, with its own connection to the store.
    pub(super) fn service(&self) -> Result<Service, String> {
        let store = self.stores.open()?;
        let policy = FailurePolicy::ByDomain(self.settings.on_store_failure);
        let service = Service::new(Arc::clone(&self.rules), store, policy, self.metrics.clone());
        let service = service.bounded_by(Arc::clone(&self.in_flight));
        Ok(service.seen_by(self.log.clone(), self.tracing.clone()))
    }

    pub(super) fn pages(&self, service: Arc<Service>, is_leaving: IsLeaving) -> Pages {
        let (bounds, style) = (self.settings.bounds(), self.settings.style());
        let (places, calls) = (self.places.clone(), Arc::clone(&self.in_flight));
        let calls_max = self.settings.max_in_flight;
        let in_use = move || InUse {
            calls: calls_max - calls.available_permits(),
            connections: places.taken(),
        };
        Pages {
            service,
            bounds,
            style,
            is_leaving,
            in_use: Box::new(in_use),
            limits: SharedPage::default(),
        }
    }

    pub(super) async fn grpc(&self) -> Result<Grpc, String> {
        let service = self.service()?;
        // Waits as long as a first decision would. Calls that need no store wait for this too.
        let _ = service.store().connected(self.settings.store_timeout.min(CONNECT_MAX)).await;
        Ok(Grpc::new(service, self.settings.bounds(), self.settings.style(), self.budgets.clone()))
    }
}
