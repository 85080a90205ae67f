//! One connection to one Redis server.
//!
//! The client library reconnects in the background. Each script run is sent once: the library must
//! not repeat a command after a lost connection, because the first one may have taken hits.
//!
//! A server without the script answers NOSCRIPT. Then the script is loaded and run again. Of
//! several runs that find it missing, one loads it and the others wait.
//!
//! A connection that stays silent is replaced, because a network that drops packets reports no
//! error. So is one that leads to a replica; see [`Backoff`].

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fred::clients::Client;
use fred::error::Error;
use fred::interfaces::{ClientLike, EventInterface, KeysInterface, LuaInterface};
use fred::types::config::UnresponsiveConfig;
use fred::types::config::{Config, ConnectionConfig, TcpConfig};
use fred::types::scripts::Script;
use fred::types::{
    Builder, ClusterHash, CustomCommand, InfoKind, Key, Value, config::ReconnectPolicy,
};
use tokio::sync::{Mutex, watch};
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::backoff::Backoff;
use super::fred_error::{run_error, store_error};
use super::script::SCRIPT;
use super::wire::Call;
use crate::clock::uptime_us;
use crate::store_error::{Code, StoreError, readable};

/// Loads of the script per run. Two, because a run that waits for another's load may see it fail.
const LOADS_MAX: usize = 2;

/// Commands that may wait for one connection.
const BUFFER_MAX: usize = 100_000;

/// The longest wait for an answer before a connection is replaced, unless the timeout of a run is
/// longer. A network that drops packets reports no error.
const UNRESPONSIVE_MAX: Duration = Duration::from_millis(300);

/// Reconnects at once, then with growing pauses, in milliseconds. They stay short enough that a
/// server is found within a second of its return, and have jitter, so that replicas do not all
/// reconnect at the same moment.
const RECONNECT: ReconnectPolicy = ReconnectPolicy::Exponential {
    attempts: 0,
    max_attempts: 0,
    min_delay: 10,
    max_delay: 250,
    base: 2,
    jitter: 10,
};

/// A client of one server.
pub(super) struct Connection {
    client: Client,
    script: Script,
    /// Locked while a run loads the script.
    loading: Mutex<()>,
    /// The timeout of one run.
    timeout: Duration,
    /// The task that connects and reconnects.
    connecting: AbortHandle,
    /// The last error of the connection, or of an attempt to connect.
    last_error: Arc<parking_lot::Mutex<Option<StoreError>>>,
    /// Whether the connection was ended for good.
    ended: watch::Sender<bool>,
    /// Limits how often a connection that leads to a replica is replaced.
    reconnects: Arc<Backoff>,
}

impl Connection {
    /// Connects in the background.
    pub(super) fn connect(mut config: Config, timeout: Duration) -> Result<Self, String> {
        config.fail_fast = false;
        let client = builder(config, timeout)
            .build()
            .map_err(|error| format!("store: {}", error.details()))?;
        let last_error = Arc::<parking_lot::Mutex<Option<StoreError>>>::default();
        let last = Arc::clone(&last_error);
        client.on_error(move |(error, _server)| {
            *last.lock() = Some(store_error(&error));
            ready(Ok(()))
        });
        let connecting = client.connect().abort_handle();
        Ok(Self {
            client,
            script: Script::from_lua(SCRIPT),
            loading: Mutex::new(()),
            timeout,
            connecting,
            last_error,
            ended: watch::Sender::new(false),
            reconnects: Arc::default(),
        })
    }

    pub(super) async fn connected(&self, deadline: Duration) -> Result<(), StoreError> {
        let connected = timeout(deadline, self.client.wait_for_connect()).await;
        match connected {
            Ok(result) => result.map_err(|error| store_error(&error)),
            Err(_) => Err(StoreError::Unavailable("not connected in time".into())),
        }
    }

    /// Waits for a connection without a time limit, or until [`Connection::end`].
    pub(super) async fn ready(&self) {
        while !self.client.is_connected() {
            let mut ended = self.ended.subscribe();
            tokio::select! {
                _ = ended.wait_for(|ended| *ended) => return,
                // An error concerns one attempt to connect; others follow.
                _ = self.client.wait_for_connect() => {}
            }
        }
    }

    /// Replaces a connection that leads to a replica, unless that was done a short time ago. The
    /// host name is resolved and the sentinels are queried again; the server that they name must be
    /// a primary.
    pub(super) fn reconnect(&self) {
        if !self.client.is_connected() || !self.reconnects.begin(uptime_us()) {
            return;
        }
        let (client, reconnects) = (self.client.clone(), Arc::clone(&self.reconnects));
        tokio::spawn(async move {
            // Answers come in order: after this one, no earlier run waits for its answer.
            let _ = timeout(UNRESPONSIVE_MAX, client.ping::<()>(None)).await;
            // Returns once there is a connection, or the client has ended.
            let _ = client.force_reconnection().await;
            reconnects.end();
        });
    }

    /// Notes that the server decides: if it becomes a replica, its connection is replaced at once.
    pub(super) fn reset_backoff(&self) {
        self.reconnects.reset();
    }

    /// Ends the connection and all attempts to connect.
    pub(super) fn end(&self) {
        self.connecting.abort();
        self.ended.send_replace(true);
    }

    /// The error of a request that was not sent in time.
    pub(super) fn not_sent(&self) -> StoreError {
        if self.client.is_connected() {
            return StoreError::Unavailable("busy with earlier requests".to_owned());
        }
        match self.last_error() {
            // For example a wrong password.
            Some(error @ StoreError::Answered(_)) => error,
            Some(error) => StoreError::Unavailable(format!("not connected: {}", error.details())),
            None => StoreError::Unavailable("not connected".to_owned()),
        }
    }

    /// The last error, while there is no connection.
    pub(super) fn last_error(&self) -> Option<StoreError> {
        if self.client.is_connected() { None } else { self.last_error.lock().clone() }
    }

    /// Runs the script, and loads it if the server does not have it. `asking`: sends ASKING before
    /// the run, because an ASK redirect led here.
    pub(super) async fn call_script(&self, call: Call, asking: bool) -> Result<Bytes, StoreError> {
        let run = async {
            let mut loads = 0;
            loop {
                let call = call.clone();
                let reply =
                    if asking { self.evalsha_asking(call).await } else { self.evalsha(call).await };
                match reply.map_err(|error| run_error(&error)) {
                    Err(error) if error.code() == Some(&Code::NoScript) && loads < LOADS_MAX => {
                        // Nothing ran, so an error of the load took nothing.
                        self.load().await.map_err(|error| store_error(&error))?;
                        loads += 1;
                    }
                    result => return result,
                }
            }
        };
        // Boxed, because fred's futures take many kilobytes. There is no timeout here: requests
        // have their own deadlines, and a run without an answer ends when fred closes the
        // connection.
        Box::pin(run).await
    }

    /// The server's eviction policy; `None` if its memory has no limit.
    pub(super) async fn eviction_policy(&self) -> Result<Option<String>, StoreError> {
        let info = self.client.info::<String>(Some(InfoKind::Memory));
        let info = Box::pin(self.with_timeout(info)).await?;
        let field = |name: &str| {
            let value = |line: &str| line.strip_prefix(name)?.strip_prefix(':').map(str::to_owned);
            info.lines().find_map(value)
        };
        let bounded = field("maxmemory").is_some_and(|bytes| bytes.trim() != "0");
        Ok(field("maxmemory_policy").filter(|_| bounded).map(|policy| readable(policy.trim())))
    }

    pub(super) async fn ping(&self) -> Result<(), StoreError> {
        Box::pin(self.with_timeout(self.client.ping::<()>(None))).await
    }

    pub(super) async fn remove(&self, keys: &[&Vec<u8>]) -> Result<(), StoreError> {
        const KEYS_MAX: usize = 1_000;
        for chunk in keys.chunks(KEYS_MAX) {
            let chunk: Vec<Key> = chunk.iter().map(|key| key.as_slice().into()).collect();
            self.client.del::<(), _>(chunk).await.map_err(|error| store_error(&error))?;
        }
        Ok(())
    }

    /// Waits for a connection and an answer, both within the timeout of one decision.
    async fn with_timeout<T>(
        &self,
        answer: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, StoreError> {
        let answered = async {
            self.client.wait_for_connect().await?;
            answer.await
        };
        match timeout(self.timeout, answered).await {
            Ok(result) => result.map_err(|error| store_error(&error)),
            Err(_elapsed) if self.client.is_connected() => Err(StoreError::Timeout),
            Err(_elapsed) => Err(self.not_sent()),
        }
    }

    async fn evalsha(&self, call: Call) -> Result<Bytes, Error> {
        let hash = self.script.sha1().clone();
        self.client.evalsha(hash, call.keys, call.args).await
    }

    /// Sends ASKING and the script in one pipeline, because ASKING applies to the very next command
    /// only.
    async fn evalsha_asking(&self, call: Call) -> Result<Bytes, Error> {
        let hash = self.script.sha1().clone();
        let pipeline = self.client.pipeline();
        let asking = CustomCommand::new_static("ASKING", ClusterHash::Random, false);
        pipeline.custom::<(), Value>(asking, Vec::new()).await?;
        let evalsha = CustomCommand::new_static("EVALSHA", ClusterHash::Random, false);
        let count = i64::try_from(call.keys.len()).unwrap_or(i64::MAX);
        let mut args: Vec<Value> = vec![hash.into(), count.into()];
        args.extend(call.keys.into_iter().map(Value::from));
        args.extend(call.args.into_iter().map(Value::from));
        pipeline.custom::<(), Value>(evalsha, args).await?;
        let (_, reply): (Value, Bytes) = pipeline.all().await?;
        Ok(reply)
    }

    /// The nodes of a cluster and their slots, as this node reports them.
    pub(super) async fn cluster_slots(&self) -> Result<Vec<SlotRange>, StoreError> {
        let slots = CustomCommand::new_static("CLUSTER", ClusterHash::Random, false);
        let reply = self.client.custom::<Value, _>(slots, vec!["SLOTS"]);
        let reply = Box::pin(self.with_timeout(reply)).await?;
        let unreadable = || StoreError::BadReply("CLUSTER SLOTS".to_owned());
        slot_ranges(&reply).ok_or_else(unreadable)
    }

    /// Whether the server is a node of a cluster. Uses HELLO, which needs no permission.
    pub(super) async fn is_in_cluster(&self) -> Result<bool, StoreError> {
        let hello = CustomCommand::new_static("HELLO", ClusterHash::Random, false);
        let reply = self.client.custom::<Value, _>(hello, Vec::<Value>::new());
        let Value::Array(fields) = Box::pin(self.with_timeout(reply)).await? else {
            return Err(StoreError::BadReply("HELLO".to_owned()));
        };
        let is_text = |value: &Value, text: &str| value.as_str().is_some_and(|it| it == text);
        let mode = fields.chunks_exact(2).find(|field| is_text(&field[0], "mode"));
        Ok(mode.is_some_and(|field| is_text(&field[1], "cluster")))
    }

    /// Loads the script, or waits for another run that is loading it.
    async fn load(&self) -> Result<(), Error> {
        let Ok(_loading) = self.loading.try_lock() else {
            drop(self.loading.lock().await);
            return Ok(());
        };
        self.client.script_load::<(), _>(SCRIPT).await
    }
}

/// A range of slots: the first, the last, the host of their node (empty: the reporting node's) and
/// its port.
pub(super) type SlotRange = (u16, u16, String, u16);

fn slot_ranges(reply: &Value) -> Option<Vec<SlotRange>> {
    let Value::Array(ranges) = reply else { return None };
    let range = |range: &Value| {
        let Value::Array(range) = range else { return None };
        let [first, last, Value::Array(master), ..] = &range[..] else { return None };
        let [host, port, ..] = &master[..] else { return None };
        let number = |value: &Value| u16::try_from(value.as_u64()?).ok();
        let host = host.as_string().unwrap_or_default();
        Some((number(first)?, number(last)?, host, number(port)?))
    };
    ranges.iter().map(range).collect()
}

fn builder(config: Config, timeout: Duration) -> Builder {
    let mut builder = Builder::from_config(config);
    builder.set_policy(RECONNECT).with_connection_config(|connection: &mut ConnectionConfig| {
        connection.connection_timeout = Duration::from_secs(1);
        connection.internal_command_timeout = Duration::from_secs(1);
        connection.max_command_attempts = 1;
        connection.max_command_buffer_len = BUFFER_MAX;
        connection.auto_client_setname = false;
        connection.tcp = TcpConfig { nodelay: Some(true), ..TcpConfig::default() };
        connection.unresponsive = UnresponsiveConfig {
            max_timeout: Some(timeout.max(UNRESPONSIVE_MAX)),
            interval: Duration::from_millis(100),
        };
    });
    builder
}
