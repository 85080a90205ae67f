//! Binds, wires, serves, drains.

mod reload;
mod worker;

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tonic_health::pb::health_server::{Health, HealthServer};
use tonic_health::server::HealthReporter;

use crate::clock::{Clock, SystemClock};
use crate::grpc::Grpc;
use crate::grpc::routes::Routes;
use crate::http::{self, Pages};
use crate::metrics::Metrics;
use crate::rules::parse::{Files, rules_of};
use crate::rules::reload::Notice;
use crate::service::{Load, Readiness, Rules, Service};
use crate::settings::Serve;
use crate::store::Store;
use crate::store::fallback::Fallback;
use crate::store::memory::MemoryStore;
use crate::store::redis::{Options, RedisStore, Shared};
use reload::Reload;
use worker::Worker;

/// How long calls in flight may take once the service is told to end.
const DRAIN_MAX: Duration = Duration::from_secs(10);

/// How long the start waits for a connection to Redis.
const CONNECT_MAX: Duration = Duration::from_secs(1);

/// How often the store is asked whether it is there, and states that are due are dropped.
const TICK: Duration = Duration::from_millis(500);

/// How long the acceptor waits where no connection can be had, for want of descriptors mostly.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(50);

/// A service with its ports bound.
pub struct Bound {
    grpc: TcpListener,
    http: TcpListener,
    service: Arc<Service>,
    parts: Arc<Parts>,
    reload: Reload,
}

/// What the services of all threads share.
struct Parts {
    settings: Serve,
    rules: Arc<Rules>,
    metrics: Metrics,
    stores: Stores,
    in_flight: Arc<Semaphore>,
}

/// What the stores of all threads have in common.
enum Stores {
    Memory(Arc<MemoryStore>),
    Redis(Box<Options>, Arc<Shared>),
}

/// Loads the limits, prepares the store and binds the ports.
///
/// # Errors
/// What is wrong with a setting, a limits file or a port, for people.
pub async fn bind(settings: Serve) -> Result<Bound, String> {
    let metrics =
        Metrics::new(settings.metric_max_series).map_err(|error| format!("metrics: {error}"))?;
    let files = Files::read(&settings.limits);
    let rules = rules_of(&files, settings.switches.into()).map_err(|errors| errors.to_string())?;
    rules.warnings().for_each(|warning| tracing::warn!("{warning}"));
    let stores = Stores::of(&settings, &metrics)?;
    let grpc = listen("--grpc-addr", settings.grpc_addr).await?;
    let http = listen("--http-addr", settings.http_addr).await?;
    let load = Load::of(&files, 1, SystemClock.now_ms());
    metrics.loaded(load.at_ms);
    let rules = Arc::new(Rules::new(rules, load, &metrics, "tg"));
    let reload = Reload::start(&settings, &files, Arc::clone(&rules), metrics.clone());
    let reload = reload.map_err(|error| format!("a thread to read limits on: {error}"))?;
    let in_flight = Arc::new(Semaphore::new(settings.max_in_flight));
    let parts = Arc::new(Parts { settings, rules, metrics, stores, in_flight });
    let service = Arc::new(parts.service()?);
    // A store that is there answers within this; without one the service starts too.
    let _ = service.store().connected(CONNECT_MAX).await;
    if let Some(warning) = service.store().warning().await {
        tracing::warn!("{warning}");
    }
    Ok(Bound { grpc, http, service, parts, reload })
}

async fn listen(flag: &str, addr: SocketAddr) -> Result<TcpListener, String> {
    TcpListener::bind(addr).await.map_err(|error| format!("{flag} {addr}: {error}"))
}

impl Stores {
    fn of(settings: &Serve, metrics: &Metrics) -> Result<Self, String> {
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
                let shared = Shared::new(settings.deny_cache(), fallback, metrics.clone());
                Self::Redis(Box::new(options), Arc::new(shared))
            }
        })
    }

    /// The store for this thread.
    fn open(&self) -> Result<Store, String> {
        Ok(match self {
            Self::Memory(memory) => Store::Memory(Arc::clone(memory)),
            Self::Redis(options, shared) => {
                Store::Redis(Box::new(RedisStore::connect(options, Arc::clone(shared))?))
            }
        })
    }
}

impl Parts {
    /// A service for this thread, with a connection of its own to the store.
    fn service(&self) -> Result<Service, String> {
        let store = self.stores.open()?;
        let policy = self.settings.on_store_failure;
        Ok(Service::new(Arc::clone(&self.rules), store, policy, self.metrics.clone()))
    }

    fn pages(&self, service: &Arc<Service>) -> Pages {
        let (bounds, style) = (self.settings.bounds(), self.settings.style());
        let (service, in_flight) = (Arc::clone(service), Arc::clone(&self.in_flight));
        Pages { service, bounds, style, in_flight }
    }

    async fn grpc(&self) -> Result<Grpc, String> {
        let in_flight = Arc::clone(&self.in_flight);
        let service = self.service()?;
        // As long as a first decision would wait.
        let _ = service.store().connected(self.settings.store_timeout).await;
        Ok(Grpc::new(service, self.settings.bounds(), self.settings.style(), in_flight))
    }
}

impl Bound {
    /// Where gRPC and HTTP are served.
    ///
    /// # Errors
    /// The operating system does not say.
    pub fn addrs(&self) -> std::io::Result<(SocketAddr, SocketAddr)> {
        Ok((self.grpc.local_addr()?, self.http.local_addr()?))
    }

    /// What asks for limits to be read now, whether or not they seem to have changed.
    pub fn reload(&self) -> Arc<Notice> {
        self.reload.notice()
    }

    /// Serves until `shutdown` ends, then finishes what is in flight.
    ///
    /// # Errors
    /// A server ended by itself.
    pub async fn serve(self, shutdown: impl Future<Output = ()>) -> Result<(), String> {
        let (health, health_service) = tonic_health::server::health_reporter();
        let service = self.service;
        // Told before the first call can come.
        report(&health, service.ready().await.is_ok()).await;
        let (stop, stopped) = watch::channel(false);
        let workers = start_workers(&self.parts, &health_service, &stopped).await?;
        let pages = axum::serve(self.http, http::router(Arc::new(self.parts.pages(&service))))
            .with_graceful_shutdown(ended(stopped.clone()));
        let http = tokio::spawn(pages.into_future());
        let ticking = tokio::spawn(tick(service, health, stopped));
        tokio::select! {
            () = shutdown => {}
            error = accept(&self.grpc, &workers) => return Err(error),
        }
        drop(self.grpc);
        stop.send_replace(true);
        drain(workers, http).await;
        ticking.abort();
        Ok(())
    }
}

async fn start_workers(
    parts: &Arc<Parts>,
    health: &HealthServer<impl Health>,
    stopped: &watch::Receiver<bool>,
) -> Result<Vec<Worker>, String> {
    let mut workers = Vec::new();
    let mut ready = Vec::new();
    for number in 0..parts.settings.threads() {
        let (parts, health) = (Arc::clone(parts), health.clone());
        let prepare = async move || {
            let grpc = parts.grpc().await?;
            let reflection = tonic_reflection::server::Builder::configure()
                .register_encoded_file_descriptor_set(crate::proto::DESCRIPTORS)
                .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
                .build_v1()
                .map_err(|error| format!("reflection: {error}"))?;
            Ok(Routes { grpc: Arc::new(grpc), health, reflection })
        };
        let (worker, prepared) = Worker::start(number, stopped.clone(), prepare)
            .map_err(|error| format!("a thread to serve on: {error}"))?;
        workers.push(worker);
        ready.push(prepared);
    }
    for prepared in ready {
        prepared.await.map_err(|_gone| "a serving thread ended".to_owned())??;
    }
    Ok(workers)
}

/// Deals connections to the workers in turn; returns only with an error.
async fn accept(listener: &TcpListener, workers: &[Worker]) -> String {
    for worker in workers.iter().cycle() {
        let connection = loop {
            let accepted = listener.accept().await.and_then(|(connection, _)| {
                connection.set_nodelay(true)?;
                connection.into_std()
            });
            match accepted {
                Ok(connection) => break connection,
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    sleep(ACCEPT_BACKOFF).await;
                }
            }
        };
        if let Err(error) = worker.deal(connection).await {
            return error;
        }
    }
    "there is no thread to serve on".to_owned()
}

/// Ends when the service is told to stop.
async fn told(stopped: &mut watch::Receiver<bool>) {
    // An error says that the sender is gone, which also means to stop.
    let _ = stopped.wait_for(|stopped| *stopped).await;
}

async fn ended(mut stopped: watch::Receiver<bool>) {
    told(&mut stopped).await;
}

async fn drain<T>(workers: Vec<Worker>, http: JoinHandle<T>) {
    let all = async {
        for worker in workers {
            worker.ended().await;
        }
    };
    if timeout(DRAIN_MAX, all).await.is_err() {
        tracing::warn!("calls were still in flight after {DRAIN_MAX:?}; they are cut off");
    }
    // Pages wait for nobody: a scrape comes again.
    http.abort();
}

async fn report(health: &HealthReporter, serving: bool) {
    use tonic_health::ServingStatus::{NotServing, Serving};
    let status = if serving { Serving } else { NotServing };
    for service in
        ["", "tidegate.v1.RateLimitService", "envoy.service.ratelimit.v3.RateLimitService"]
    {
        health.set_service_status(service, status).await;
    }
}

/// Keeps health, histograms and the memory store current.
async fn tick(service: Arc<Service>, health: HealthReporter, stopped: watch::Receiver<bool>) {
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut was_ready = None;
    loop {
        ticks.tick().await;
        if *stopped.borrow() {
            report(&health, false).await;
            return;
        }
        let ready = service.ready().await;
        if was_ready != Some(ready.is_ok()) {
            match &ready {
                Ok(Readiness::Store) => tracing::info!("the store decides"),
                Ok(Readiness::Fallback(error)) => {
                    tracing::warn!(%error, "deciding by --on-store-failure");
                }
                Err(error) => tracing::warn!(%error, "no decisions"),
            }
            was_ready = Some(ready.is_ok());
            report(&health, ready.is_ok()).await;
        }
        service.metrics().run_upkeep();
        if let Store::Memory(memory) = service.store() {
            memory.drop_due();
        }
    }
}
