//! Binds, wires, serves, drains.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic_health::server::HealthReporter;

use crate::clock::{Clock, SystemClock};
use crate::grpc::Grpc;
use crate::http;
use crate::metrics::Metrics;
use crate::proto::envoy::service::ratelimit::v3::rate_limit_service_server as rls;
use crate::proto::tidegate::v1::rate_limit_service_server as api;
use crate::rules::parse;
use crate::service::Service;
use crate::settings::{Serve, StoreUrl};
use crate::store::Store;
use crate::store::memory::MemoryStore;
use crate::store::redis::RedisStore;

/// How long calls in flight may take once the service is told to end.
const DRAIN_MAX: Duration = Duration::from_secs(10);

/// How long the start waits for a connection to Redis.
const CONNECT_MAX: Duration = Duration::from_secs(1);

/// How often the store is asked whether it is there, and states that are due are dropped.
const TICK: Duration = Duration::from_millis(500);

/// Streams that one connection may have open.
const STREAMS_MAX: u32 = 1_024;

/// A service with its ports bound.
pub struct Bound {
    grpc: TcpListener,
    http: TcpListener,
    service: Arc<Service>,
    settings: Serve,
}

/// Loads the limits, prepares the store and binds the ports.
///
/// # Errors
/// What is wrong with a setting, a limits file or a port, for people.
pub async fn bind(settings: Serve) -> Result<Bound, String> {
    let metrics = Metrics::new().map_err(|error| format!("metrics: {error}"))?;
    let rules = parse::load(&settings.limits).map_err(|errors| errors.to_string())?;
    let store = match &settings.store {
        StoreUrl::Memory => {
            Store::Memory(MemoryStore::new(settings.memory_max_keys, Arc::new(SystemClock)))
        }
        StoreUrl::Redis(url) => {
            let redis = RedisStore::connect(url, settings.store_timeout, metrics.clone())?;
            // A server that is there answers within this; without one the service starts too.
            let _ = redis.connected(CONNECT_MAX).await;
            Store::Redis(Box::new(redis))
        }
    };
    metrics.store_up.set(if matches!(store, Store::Memory(_)) { 1.0 } else { 0.0 });
    metrics.loaded(SystemClock.now_ms());
    let grpc = listen("--grpc-addr", settings.grpc_addr).await?;
    let http = listen("--http-addr", settings.http_addr).await?;
    let service = Arc::new(Service::new(rules, store, metrics, "tg"));
    Ok(Bound { grpc, http, service, settings })
}

async fn listen(flag: &str, addr: SocketAddr) -> Result<TcpListener, String> {
    TcpListener::bind(addr).await.map_err(|error| format!("{flag} {addr}: {error}"))
}

impl Bound {
    /// Where gRPC and HTTP are served.
    ///
    /// # Errors
    /// The operating system does not say.
    pub fn addrs(&self) -> std::io::Result<(SocketAddr, SocketAddr)> {
        Ok((self.grpc.local_addr()?, self.http.local_addr()?))
    }

    /// Serves until `shutdown` ends, then finishes what is in flight.
    ///
    /// # Errors
    /// A server ended by itself.
    pub async fn serve(self, shutdown: impl Future<Output = ()>) -> Result<(), String> {
        let (health, health_service) = tonic_health::server::health_reporter();
        // Told before the first call can come.
        report(&health, self.service.store().ready().await.is_ok()).await;
        let reflection = tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(crate::proto::DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
            .build_v1()
            .map_err(|error| format!("reflection: {error}"))?;
        let settings = &self.settings;
        let grpc = Grpc::new(Arc::clone(&self.service), settings.bounds(), settings.max_in_flight);
        let (stop, stopped) = watch::channel(false);
        let server = Server::builder()
            .max_concurrent_streams(STREAMS_MAX)
            .http2_keepalive_interval(Some(Duration::from_secs(30)))
            .http2_keepalive_timeout(Some(Duration::from_secs(10)))
            .add_service(api::RateLimitServiceServer::new(grpc.clone()))
            .add_service(rls::RateLimitServiceServer::new(grpc))
            .add_service(health_service)
            .add_service(reflection)
            .serve_with_incoming_shutdown(
                TcpIncoming::from(self.grpc).with_nodelay(Some(true)),
                told(stopped.clone()),
            );
        let mut grpc = tokio::spawn(server);
        let pages = axum::serve(self.http, http::router(Arc::clone(&self.service)))
            .with_graceful_shutdown(told(stopped.clone()));
        let http = tokio::spawn(pages.into_future());
        let ticking = tokio::spawn(tick(Arc::clone(&self.service), health, stopped));
        tokio::select! {
            () = shutdown => {}
            ended = &mut grpc => return Err(format!("the gRPC server ended: {ended:?}")),
        }
        stop.send_replace(true);
        drain(grpc, http).await;
        ticking.abort();
        Ok(())
    }
}

async fn told(mut stopped: watch::Receiver<bool>) {
    // An error says that the sender is gone, which also means to stop.
    let _ = stopped.wait_for(|stopped| *stopped).await;
}

async fn drain<A, B>(grpc: JoinHandle<A>, http: JoinHandle<B>) {
    let cut = grpc.abort_handle();
    if timeout(DRAIN_MAX, grpc).await.is_err() {
        tracing::warn!("calls were still in flight after {DRAIN_MAX:?}; they are cut off");
        cut.abort();
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
        let ready = service.store().ready().await;
        if was_ready != Some(ready.is_ok()) {
            match &ready {
                Ok(()) => tracing::info!("the store decides"),
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
