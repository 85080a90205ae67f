//! The server: binds the ports, starts the threads, serves, and drains at the end.

mod acceptors;
mod admin;
mod certificates;
mod connection;
mod frames;
mod health;
mod lifecycle;
mod listen;
mod memory;
mod pages;
mod places;
mod reload;
mod shared;
mod socket;
mod stream;
mod tls;
mod worker;

use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tonic::service;
use tonic_health::pb::health_server::{Health, HealthServer};
use tonic_reflection::server as reflection;
use tracing_appender::non_blocking::WorkerGuard;

use crate::body::ARRIVAL_MAX;
use crate::clock::{Clock, Stopwatch, SystemClock};
use crate::follow::Control;
use crate::grpc::CallBudgets;
use crate::grpc::calls::{CALL_BYTES, SWEEPS_MAX};
use crate::grpc::routes::Routes;
use crate::grpc::rpc::SERVICES;
use crate::http;
use crate::memory_budget::MemoryBudget;
use crate::metrics::{Metrics, Shed};
use crate::rules::parse::{Files, rules_of};
use crate::service::{Load, Rules, Service};
use crate::settings::{Address, Connections, Serve};
use crate::store_error::StoreError;
use connection::ConnectionOptions;
use health::Maintenance;
use lifecycle::{Lifecycle, Phase, PhaseWatch};
use listen::Acceptor;
use memory::{MemoryLimit, Watch};
use pages::Answers;
use reload::Reload;
use shared::{CONNECT_MAX, SharedState, Stores};
use worker::Worker;

/// How long the shutdown waits for the collector of traces.
const FLUSH_MAX: Duration = Duration::from_secs(3);

/// Bytes reserved at most for messages that arrive slowly.
const SLOW_MESSAGES_MAX: usize = 64 << 20;

/// Bytes reserved at most for pages that are read slowly.
const UNREAD_PAGES_MAX: usize = 64 << 20;

/// Bytes reserved at most for open calls, unless `--max-in-flight` needs more.
const OPEN_CALLS_MAX: usize = 64 << 20;

/// Bytes reserved at most for streams of health and reflection.
const STREAMS_MAX: usize = 64 << 20;

/// The interval of sweeps over open calls, to which the time that a call may wait for the store is
/// added. A call must not reach its last sweep before its message had [`ARRIVAL_MAX`] to arrive.
/// The first sweep may come at once.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);
const _: () = assert!(SWEEP_INTERVAL.as_secs() * (SWEEPS_MAX as u64 - 1) > ARRIVAL_MAX.as_secs());

/// The longest message of a health or reflection call, in bytes.
const ASIDE_BYTES_MAX: usize = 4 << 10;

/// A service whose ports are bound.
pub struct Bound {
    grpc: Acceptor,
    http: Acceptor,
    admin: Option<TcpListener>,
    service: Arc<Service>,
    shared: Arc<SharedState>,
    reload: Reload,
    memory: MemoryLimit,
    /// Dropped last, because it flushes the log.
    _log_guard: Option<WorkerGuard>,
}

/// Loads the limits, prepares the store and binds the ports.
///
/// # Errors
/// A setting, a limits file or a port cannot be used. The message is for people.
pub async fn bind(mut settings: Serve) -> Result<Bound, String> {
    let memory = MemoryLimit::of(settings.memory_limit);
    memory.apply(&mut settings);
    let metrics = Metrics::new(settings.metric_max_series, &StoreError::KINDS)
        .map_err(|error| format!("metrics: {error}"))?;
    let (grpc, http) = acceptors::open(&settings, &metrics)?;
    let admin = admin::bind(settings.admin_addr)?;
    let files = Files::read(&settings.limits);
    let rules = rules_of(&files, settings.switches.into()).map_err(|errors| errors.to_string())?;
    rules.warnings().for_each(|warning| tracing::warn!("{warning}"));
    let stores = Stores::of(&settings, &metrics)?;
    let load = Load::of(&files, 1, SystemClock.now_ms());
    metrics.loaded(&load.hash, load.at_ms);
    let rules = Arc::new(Rules::new(rules, load, &metrics, settings.spelling()?));
    let reload = Reload::start(&settings, &files, Arc::clone(&rules), metrics.clone());
    let reload = reload.map_err(|error| format!("a thread to read limits on: {error}"))?;
    let in_flight = Arc::new(Semaphore::new(settings.max_in_flight));
    let (log, log_guard) = shared::decision_log(&settings.log, &metrics).unzip();
    let slow_messages =
        MemoryBudget::new(memory.budget(SLOW_MESSAGES_MAX), metrics.shed(Shed::Messages).clone());
    let open_calls = OPEN_CALLS_MAX.max(2 * settings.max_in_flight * CALL_BYTES);
    let open_calls = memory.budget(open_calls);
    let open_calls = MemoryBudget::new(open_calls, metrics.shed(Shed::OpenCalls).clone());
    let streams =
        MemoryBudget::new(memory.budget(STREAMS_MAX), metrics.shed(Shed::OpenCalls).clone());
    let (budgets, places) = (CallBudgets { slow_messages, open_calls, streams }, grpc.places());
    let tracing = shared::tracing(&settings.traces, &metrics)?;
    let shared =
        SharedState { settings, rules, metrics, stores, in_flight, budgets, places, log, tracing };
    let shared = Arc::new(shared);
    let service = Arc::new(shared.service()?);
    // A reachable store connects within this time. Without one, the service starts too.
    let _ = service.store().connected(CONNECT_MAX).await;
    if let Some(warning) = service.store().warning().await {
        tracing::warn!("{warning}");
    }
    Ok(Bound { grpc, http, admin, service, shared, reload, memory, _log_guard: log_guard })
}

/// How the shutdown begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drain {
    /// With `--drain-delay`, so that load balancers notice.
    Announced,
    /// Without it if nobody is connected.
    AtOnceIfIdle,
}

impl Bound {
    /// The addresses of the gRPC and the HTTP port.
    ///
    /// # Errors
    /// The operating system does not report an address.
    pub fn addrs(&self) -> std::io::Result<(Address, Address)> {
        Ok((self.grpc.address()?, self.http.address()?))
    }

    /// The address of the admin port, if it is enabled.
    ///
    /// # Errors
    /// The operating system does not report it.
    pub fn admin_addr(&self) -> std::io::Result<Option<SocketAddr>> {
        self.admin.as_ref().map(TcpListener::local_addr).transpose()
    }

    /// The rules in force.
    pub fn rules(&self) -> &Rules {
        &self.shared.rules
    }

    /// The settings.
    pub fn settings(&self) -> &Serve {
        &self.shared.settings
    }

    /// Requests a reload of the limits, even if the files seem unchanged.
    pub fn reload(&self) -> Control {
        self.reload.control()
    }

    /// Serves until `shutdown` completes. Then reports that it is not ready, keeps answering for
    /// `--drain-delay`, and finishes the calls in flight.
    ///
    /// # Errors
    /// A server ended by itself.
    pub async fn serve(self, shutdown: impl Future<Output = Drain>) -> Result<(), String> {
        let (reporter, health) = tonic_health::server::health_reporter();
        let (life, follow) = Lifecycle::new();
        // Health is set before the first call can arrive.
        let tick = Maintenance::start(Arc::clone(&self.service), reporter).await;
        let workers = start_workers(&self.shared, &health, &follow).await?;
        let admin = self.admin.map(|admin| {
            let (service, bounds) = (Arc::clone(&self.service), self.shared.settings.bounds());
            let end = follow.clone().until(Phase::Stopping);
            tokio::spawn(admin::serve(admin, service, bounds, end))
        });
        let pages = self.shared.pages(Arc::clone(&self.service), is_leaving(&follow));
        let router = http::router(Arc::new(pages));
        let unread_bytes = self.memory.budget(UNREAD_PAGES_MAX);
        let unread = MemoryBudget::new(unread_bytes, self.shared.metrics.shed(Shed::Pages).clone());
        let CallBudgets { slow_messages, open_calls, streams } = self.shared.budgets.clone();
        let watch = Watch {
            limit: self.memory,
            budgets: vec![slow_messages, open_calls, streams, unread.clone()],
            ports: [self.grpc.places(), self.http.places()],
        };
        tokio::spawn(watch.run(follow.clone()));
        let answers = Answers {
            router,
            messages: self.shared.budgets.slow_messages.clone(),
            unread,
            hosts: self.shared.settings.ports.http_hosts.clone().into(),
        };
        let ports = [self.grpc.places(), self.http.places()];
        let is_idle = || ports.iter().all(|port| port.taken() == 0);
        let http = tokio::spawn(pages::serve(self.http, answers, follow.clone()));
        tokio::spawn(tick.run(follow));
        let Connections { drain_delay, drain_timeout, .. } = self.shared.settings.connections;
        {
            let mut dealing = pin!(deal(&self.grpc, &workers));
            let drain = tokio::select! {
                drain = shutdown => drain,
                error = dealing.as_mut() => return Err(error),
            };
            life.enter(Phase::Leaving);
            let is_at_once = drain == Drain::AtOnceIfIdle && is_idle();
            let drain_delay = if is_at_once { Duration::ZERO } else { drain_delay };
            tracing::info!("ending: not ready from now on, in {drain_delay:?} no more calls");
            tokio::select! {
                () = sleep(drain_delay) => {}
                error = dealing => return Err(error),
            }
        }
        life.enter(Phase::Stopping);
        let watch = Stopwatch::start();
        let all = async {
            for (accepted, worker) in self.grpc.close().into_iter().zip(workers.iter().cycle()) {
                // A worker that has ended serves no connections.
                let _ = worker.deal(accepted).await;
            }
            for worker in workers {
                worker.ended().await;
            }
            for port in [Some(http), admin].into_iter().flatten() {
                // Its own error was reported already.
                let _ = port.await;
            }
        };
        if timeout(drain_timeout, all).await.is_err() {
            tracing::warn!("calls were still in flight after {drain_timeout:?}; they are cut off");
        }
        self.service.store().flush().await;
        if let Some(tracing) = self.shared.tracing.clone() {
            let left = drain_timeout.saturating_sub(watch.elapsed());
            tracing.end(left.min(FLUSH_MAX)).await;
        }
        Ok(())
    }
}

/// Deals connections to the workers round robin. Returns only with an error.
async fn deal(acceptor: &Acceptor, workers: &[Worker]) -> String {
    for worker in workers.iter().cycle() {
        if let Err(error) = worker.deal(acceptor.accept().await).await {
            return error;
        }
    }
    "there is no thread to serve on".to_owned()
}

fn is_leaving(follow: &PhaseWatch) -> http::IsLeaving {
    let follow = follow.clone();
    Box::new(move || follow.now() >= Phase::Leaving)
}

/// Health and reflection. Their requests are short, and tonic allocates as many bytes as a message
/// claims.
fn aside(health: HealthServer<impl Health>) -> Result<service::Routes, String> {
    let reflection = || {
        let builder = reflection::Builder::configure()
            .register_encoded_file_descriptor_set(crate::proto::DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET);
        SERVICES.into_iter().fold(builder, reflection::Builder::with_service_name)
    };
    let failed = |error| format!("reflection: {error}");
    let v1 = reflection().build_v1().map_err(failed)?;
    let v1alpha = reflection().build_v1alpha().map_err(failed)?;
    Ok(service::Routes::new(health.max_decoding_message_size(ASIDE_BYTES_MAX))
        .add_service(v1.max_decoding_message_size(ASIDE_BYTES_MAX))
        .add_service(v1alpha.max_decoding_message_size(ASIDE_BYTES_MAX)))
}

async fn start_workers(
    shared: &Arc<SharedState>,
    health: &HealthServer<impl Health>,
    follow: &PhaseWatch,
) -> Result<Vec<Worker>, String> {
    let sweep = SWEEP_INTERVAL + 2 * shared.settings.store_timeout;
    let options =
        ConnectionOptions { age_max: shared.settings.connections.max_connection_age, sweep };
    let mut workers = Vec::new();
    let mut ready = Vec::new();
    for number in 0..shared.settings.threads() {
        let (shared, health) = (Arc::clone(shared), health.clone());
        let prepare = async move || {
            let grpc = shared.grpc().await?;
            Ok(Routes { grpc: Arc::new(grpc), aside: aside(health)? })
        };
        let (worker, prepared) = Worker::start(number, options, follow.clone(), prepare)
            .map_err(|error| format!("a thread to serve on: {error}"))?;
        workers.push(worker);
        ready.push(prepared);
    }
    for prepared in ready {
        prepared.await.map_err(|_gone| "a serving thread ended".to_owned())??;
    }
    Ok(workers)
}
