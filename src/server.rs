//! Binds, wires, serves, drains.

mod admin;
mod health;
mod life;
mod listen;
mod parts;
mod reload;
mod talk;
mod worker;

use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tonic_health::pb::health_server::{Health, HealthServer};
use tracing_appender::non_blocking::WorkerGuard;

use crate::clock::{Clock, Stopwatch, SystemClock};
use crate::grpc::routes::Routes;
use crate::http;
use crate::metrics::Metrics;
use crate::rules::parse::{Files, rules_of};
use crate::rules::reload::Notice;
use crate::service::{Load, Rules, Service};
use crate::settings::Serve;
use health::Tick;
use life::{Follow, Life, Phase};
use listen::{accept, accept_waiting, listen};
use parts::{Parts, Stores};
use reload::Reload;
use talk::Terms;
use worker::Worker;

/// How long the start waits for a connection to Redis.
const CONNECT_MAX: Duration = Duration::from_secs(1);

/// How long the end waits for a collector of spans.
const FLUSH_MAX: Duration = Duration::from_secs(3);

/// A service with its ports bound.
pub struct Bound {
    grpc: TcpListener,
    http: TcpListener,
    admin: Option<TcpListener>,
    service: Arc<Service>,
    parts: Arc<Parts>,
    reload: Reload,
    /// Dropped last: writes what waits.
    _log_guard: Option<WorkerGuard>,
}

/// Loads the limits, prepares the store and binds the ports.
///
/// # Errors
/// What is wrong with a setting, a limits file or a port, for people.
pub async fn bind(settings: Serve) -> Result<Bound, String> {
    let metrics =
        Metrics::new(settings.metric_max_series).map_err(|error| format!("metrics: {error}"))?;
    let grpc = listen("--grpc-addr", settings.grpc_addr).await?;
    let http = listen("--http-addr", settings.http_addr).await?;
    let admin = admin::bind(settings.admin_addr).await?;
    let files = Files::read(&settings.limits);
    let rules = rules_of(&files, settings.switches.into()).map_err(|errors| errors.to_string())?;
    rules.warnings().for_each(|warning| tracing::warn!("{warning}"));
    let stores = Stores::of(&settings, &metrics)?;
    let load = Load::of(&files, 1, SystemClock.now_ms());
    metrics.loaded(load.at_ms);
    let rules = Arc::new(Rules::new(rules, load, &metrics, settings.spelling()?));
    let reload = Reload::start(&settings, &files, Arc::clone(&rules), metrics.clone());
    let reload = reload.map_err(|error| format!("a thread to read limits on: {error}"))?;
    let in_flight = Arc::new(Semaphore::new(settings.max_in_flight));
    let (log, log_guard) = parts::decision_log(&settings.log, &metrics).unzip();
    let tracing = parts::tracing(&settings.traces, &metrics)?;
    let parts = Arc::new(Parts { settings, rules, metrics, stores, in_flight, log, tracing });
    let service = Arc::new(parts.service()?);
    // A store that is there answers within this; without one the service starts too.
    let _ = service.store().connected(CONNECT_MAX).await;
    if let Some(warning) = service.store().warning().await {
        tracing::warn!("{warning}");
    }
    Ok(Bound { grpc, http, admin, service, parts, reload, _log_guard: log_guard })
}

impl Bound {
    /// Where gRPC and HTTP are served.
    ///
    /// # Errors
    /// The operating system does not say.
    pub fn addrs(&self) -> std::io::Result<(SocketAddr, SocketAddr)> {
        Ok((self.grpc.local_addr()?, self.http.local_addr()?))
    }

    /// Where operators are served, where they are.
    ///
    /// # Errors
    /// The operating system does not say.
    pub fn admin_addr(&self) -> std::io::Result<Option<SocketAddr>> {
        self.admin.as_ref().map(TcpListener::local_addr).transpose()
    }

    /// What asks for limits to be read now, whether or not they seem to have changed.
    pub fn reload(&self) -> Arc<Notice> {
        self.reload.notice()
    }

    /// Serves until `shutdown` ends; then tells callers to go elsewhere, and after
    /// `--drain-delay` finishes what is in flight.
    ///
    /// # Errors
    /// A server ended by itself.
    pub async fn serve(self, shutdown: impl Future<Output = ()>) -> Result<(), String> {
        let (reporter, health) = tonic_health::server::health_reporter();
        let (life, follow) = Life::new();
        // Health is told before the first call can come.
        let tick = Tick::start(Arc::clone(&self.service), reporter).await;
        let workers = start_workers(&self.parts, &health, &follow).await?;
        if let Some(admin) = self.admin {
            let (service, bounds) = (Arc::clone(&self.service), self.parts.settings.bounds());
            let end = follow.clone().until(Phase::Stopping);
            tokio::spawn(admin::serve(admin, service, bounds, end));
        }
        let pages = self.parts.pages(self.service, is_leaving(&follow));
        let pages = axum::serve(self.http, http::router(Arc::new(pages)))
            .with_graceful_shutdown(follow.clone().until(Phase::Stopping));
        let http = tokio::spawn(pages.into_future());
        tokio::spawn(tick.run(follow));
        let settings = &self.parts.settings;
        {
            let mut accepting = pin!(accept(&self.grpc, &workers));
            tokio::select! {
                () = shutdown => {}
                error = accepting.as_mut() => return Err(error),
            }
            life.enter(Phase::Leaving);
            tracing::info!(
                "ending: not ready from now on, in {:?} no more calls",
                settings.drain_delay
            );
            tokio::select! {
                () = sleep(settings.drain_delay) => {}
                error = accepting => return Err(error),
            }
        }
        life.enter(Phase::Stopping);
        accept_waiting(self.grpc, &workers).await;
        let watch = Stopwatch::start();
        drain(workers, http, settings.drain_timeout).await;
        if let Some(tracing) = self.parts.tracing.clone() {
            let left = settings.drain_timeout.saturating_sub(watch.elapsed());
            tracing.end(left.min(FLUSH_MAX)).await;
        }
        Ok(())
    }
}

fn is_leaving(follow: &Follow) -> http::IsLeaving {
    let follow = follow.clone();
    Box::new(move || follow.now() >= Phase::Leaving)
}

async fn start_workers(
    parts: &Arc<Parts>,
    health: &HealthServer<impl Health>,
    follow: &Follow,
) -> Result<Vec<Worker>, String> {
    let terms = Terms { age_max: parts.settings.max_connection_age };
    let mut workers = Vec::new();
    let mut ready = Vec::new();
    for number in 0..parts.settings.threads() {
        let (parts, health) = (Arc::clone(parts), health.clone());
        let prepare = async move || {
            let grpc = parts.grpc().await?;
            let reflection = tonic_reflection::server::Builder::configure()
                .register_encoded_file_descriptor_set(crate::proto::DESCRIPTORS)
                .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
                // Not what operators call elsewhere.
                .with_service_name("tidegate.v1.RateLimitService")
                .with_service_name("envoy.service.ratelimit.v3.RateLimitService")
                .with_service_name("grpc.health.v1.Health")
                .with_service_name("grpc.reflection.v1.ServerReflection")
                .build_v1()
                .map_err(|error| format!("reflection: {error}"))?;
            Ok(Routes { grpc: Arc::new(grpc), health, reflection })
        };
        let (worker, prepared) = Worker::start(number, terms, follow.clone(), prepare)
            .map_err(|error| format!("a thread to serve on: {error}"))?;
        workers.push(worker);
        ready.push(prepared);
    }
    for prepared in ready {
        prepared.await.map_err(|_gone| "a serving thread ended".to_owned())??;
    }
    Ok(workers)
}

async fn drain<T>(workers: Vec<Worker>, http: JoinHandle<T>, within: Duration) {
    let all = async {
        for worker in workers {
            worker.ended().await;
        }
        // An error of its own was told already.
        let _ = http.await;
    };
    if timeout(within, all).await.is_err() {
        tracing::warn!("calls were still in flight after {within:?}; they are cut off");
    }
}
