//! Counters in Redis: every decision is one run of `lua/`, on Redis's own clock.
//!
//! The client is told to send a script once only: a second sending after a lost connection would
//! count hits twice. A server that has forgotten the script (a restart, SCRIPT FLUSH) says so
//! before it runs anything; then it is loaded, once for all who wait, and run again.

mod wire;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fred::bytes::Bytes;
use fred::clients::Client;
use fred::error::{Error, ErrorKind};
use fred::interfaces::{ClientLike, KeysInterface, LuaInterface};
use fred::types::config::{Config, ConnectionConfig, PerformanceConfig, TcpConfig};
use fred::types::config::{ServerConfig, UnresponsiveConfig};
use fred::types::scripts::Script;
use fred::types::{Builder, Key as RedisKey, config::ReconnectPolicy};
use tokio::sync::Mutex;

use super::{Decision, StoreError};
use crate::clock::Stopwatch;
use crate::decide::{Ask, Mode};
use crate::key::{Counter, Head, Key, Tail};
use crate::limit::{Limit, LimitSpec};
use crate::metrics::Metrics;

/// The parts of `lua/`, joined by the build.
pub const SCRIPT: &str = include_str!(concat!(env!("OUT_DIR"), "/decide.lua"));

/// How often one decision loads the script: another that loads it for both may fail.
const LOADS_MAX: usize = 2;

/// Commands that may wait for one connection.
const BUFFER_MAX: usize = 100_000;

/// Often enough that a restart of Redis between two requests costs neither of them.
const RECONNECT: ReconnectPolicy =
    ReconnectPolicy::Constant { attempts: 0, max_attempts: 0, delay: 10, jitter: 5 };

/// The store in a Redis server that replicas share.
pub struct RedisStore {
    client: Client,
    script: Script,
    /// What readiness is tested with once a decision was refused.
    probe: Ask,
    /// Whether the last decision was refused.
    refused: AtomicBool,
    /// Held by the one who loads the script.
    loading: Mutex<()>,
    /// What one decision may take.
    timeout: Duration,
    metrics: Metrics,
}

impl std::fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisStore").field("client", &self.client.id()).finish_non_exhaustive()
    }
}

impl RedisStore {
    /// Prepares a client for `url` and connects in the background: decisions fail with
    /// [`StoreError::Unavailable`] until it is connected.
    ///
    /// # Errors
    /// The URL is not one of a Redis server; the message does not repeat it, for its password.
    pub fn connect(url: &str, timeout: Duration, metrics: Metrics) -> Result<Self, String> {
        let mut config =
            Config::from_url(url).map_err(|error| format!("store: {}", error.details()))?;
        if !matches!(config.server, ServerConfig::Centralized { .. }) {
            return Err("store: only redis:// of one server is supported yet".into());
        }
        config.fail_fast = false;
        let client = builder(config, timeout)
            .build()
            .map_err(|error| format!("store: {}", error.details()))?;
        drop(client.connect());
        let script = Script::from_lua(SCRIPT);
        Ok(Self {
            client,
            script,
            loading: Mutex::new(()),
            timeout,
            metrics,
            probe: probe()?,
            refused: AtomicBool::new(false),
        })
    }

    /// Decides over `asks` in one script run.
    ///
    /// # Errors
    /// Redis could not be asked, refused, or its answer could not be read.
    pub async fn decide(&self, asks: &[Ask], at_ms: Option<u64>) -> Result<Decision, StoreError> {
        let call = wire::Call::of(asks, at_ms);
        let watch = Stopwatch::start();
        let replies = self.in_time(self.run(&call)).await;
        self.metrics.evalsha_seconds.record(watch.elapsed());
        self.metrics.store_up.set(if replies.is_ok() { 1.0 } else { 0.0 });
        let refused = matches!(replies, Err(StoreError::Refused(_)));
        if refused != self.refused.load(Ordering::Relaxed) {
            self.refused.store(refused, Ordering::Relaxed);
        }
        wire::decision(asks, &replies?)
    }

    /// Whether Redis decides: it answers and has not refused the last decision. One that has
    /// (no memory left, a replica, no permission) is asked for a decision that writes.
    ///
    /// # Errors
    /// Why it does not.
    pub async fn ready(&self) -> Result<(), StoreError> {
        if self.refused.load(Ordering::Relaxed) {
            return self.decide(std::slice::from_ref(&self.probe), None).await.map(drop);
        }
        let pong = self.in_time(self.client.ping::<()>(None)).await;
        self.metrics.store_up.set(if pong.is_ok() { 1.0 } else { 0.0 });
        pong
    }

    /// Removes counters, for a replay that cleans up after itself.
    ///
    /// # Errors
    /// Redis could not be asked or refused.
    pub async fn remove(&self, keys: Vec<Vec<u8>>) -> Result<(), StoreError> {
        const KEYS_MAX: usize = 1_000;
        for some in keys.chunks(KEYS_MAX) {
            let some: Vec<RedisKey> = some.iter().map(|key| key.as_slice().into()).collect();
            self.client.del::<(), _>(some).await.map_err(|error| store_error(&error))?;
        }
        Ok(())
    }

    /// Waits until the client is connected.
    ///
    /// # Errors
    /// It could not connect within `deadline`.
    pub async fn connected(&self, deadline: Duration) -> Result<(), StoreError> {
        let connected = tokio::time::timeout(deadline, self.client.wait_for_connect()).await;
        match connected {
            Ok(result) => result.map_err(|error| store_error(&error)),
            Err(_) => Err(StoreError::Unavailable("no connection in time".into())),
        }
    }

    /// Asks Redis once a connection is there, both within the time that a decision has.
    async fn in_time<T>(
        &self,
        answer: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, StoreError> {
        let asked = async {
            self.client.wait_for_connect().await?;
            answer.await
        };
        match tokio::time::timeout(self.timeout, asked).await {
            Ok(result) => result.map_err(|error| store_error(&error)),
            Err(_elapsed) if self.client.is_connected() => Err(StoreError::Timeout),
            Err(_elapsed) => Err(StoreError::Unavailable("not connected".to_owned())),
        }
    }

    async fn run(&self, call: &wire::Call) -> Result<Vec<Bytes>, Error> {
        for _ in 0..LOADS_MAX {
            match self.evalsha(call).await {
                Err(error) if is_unknown_script(&error) => self.load().await?,
                result => return result,
            }
        }
        self.evalsha(call).await
    }

    async fn evalsha(&self, call: &wire::Call) -> Result<Vec<Bytes>, Error> {
        let hash = self.script.sha1().clone();
        self.client.evalsha(hash, call.keys.clone(), call.args.clone()).await
    }

    /// Loads the script, or waits for another request that is loading it.
    async fn load(&self) -> Result<(), Error> {
        let Ok(_loading) = self.loading.try_lock() else {
            drop(self.loading.lock().await);
            return Ok(());
        };
        self.client.script_load::<(), _>(SCRIPT).await
    }
}

/// A counter of our own, in debt or not: overdraft always writes.
fn probe() -> Result<Ask, String> {
    let spec = LimitSpec { hits: 1, period_ms: 1_000, overdraft: true, ..LimitSpec::default() };
    let limit = Limit::new(&spec).map_err(|error| error.to_string())?;
    let counter = Counter {
        // No limits file has a domain without a name.
        head: &Head::of("tg", ""),
        slot_by: &[],
        entries: std::iter::once(("probe", "")),
        tail: &Tail::of(&limit, 0),
    };
    Ok(Ask { key: Key::of(&counter), limit, hits: 1, mode: Mode::Take, shadow: true })
}

fn builder(config: Config, timeout: Duration) -> Builder {
    let mut builder = Builder::from_config(config);
    builder
        .set_policy(RECONNECT)
        .with_performance_config(|performance: &mut PerformanceConfig| {
            performance.default_command_timeout = timeout;
        })
        .with_connection_config(|connection: &mut ConnectionConfig| {
            connection.connection_timeout = Duration::from_secs(1);
            connection.internal_command_timeout = Duration::from_secs(1);
            connection.max_command_attempts = 1;
            connection.max_command_buffer_len = BUFFER_MAX;
            connection.auto_client_setname = false;
            connection.tcp = TcpConfig { nodelay: Some(true), ..TcpConfig::default() };
            connection.unresponsive = UnresponsiveConfig {
                max_timeout: Some(Duration::from_millis(300)),
                interval: Duration::from_millis(100),
            };
        });
    builder
}

fn is_unknown_script(error: &Error) -> bool {
    error.details().starts_with("NOSCRIPT")
}

fn store_error(error: &Error) -> StoreError {
    let details = error.details().to_owned();
    match error.kind() {
        ErrorKind::Timeout => StoreError::Timeout,
        ErrorKind::IO | ErrorKind::Canceled | ErrorKind::Backpressure | ErrorKind::Routing => {
            StoreError::Unavailable(details)
        }
        ErrorKind::Parse | ErrorKind::Protocol => StoreError::Garbled(details),
        ErrorKind::Config
        | ErrorKind::Auth
        | ErrorKind::InvalidCommand
        | ErrorKind::InvalidArgument
        | ErrorKind::Url
        | ErrorKind::Unknown
        | ErrorKind::Cluster
        | ErrorKind::Sentinel
        | ErrorKind::NotFound => StoreError::Refused(details),
    }
}
