//! One server, per thread: its queue, its connection, and whether it is known to be down.
//!
//! A server that did not answer a request in time is marked down, and further requests fail at once
//! instead of waiting for it. From then on, a probe requests a decision ten times per second. The
//! first answer marks the server up again; so does a late answer to an earlier run.
//!
//! If a single request of a run may have caused its error, and the run wrote nothing, each of its
//! requests is sent again in its own run, all of them concurrently. Such causes are a key that
//! holds something else, a key that the user has no permission for, a full server that still
//! rejects, and a slot that is migrating. Rejected: halving the run until the cause is found. It
//! needs fewer runs for a single cause, but several round trips in sequence; and while a slot
//! migrates most halves fail too, which makes about twice as many runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::connection::Connection;
use super::flags::ServerFlags;
use super::probe::probe;
use super::queue::{BatchKey, NewRequest, Queue, QueuedRequest};
use super::shared::Shared;
use super::slot::slot;
use super::wire;
use crate::clock::{Stopwatch, uptime_us};
use crate::decide::{CounterRequest, Mode};
use crate::decision::Decision;
use crate::store::context::DecideContext;
use crate::store_error::{Code, StoreError};
use crate::trace::Run;

/// The pause between probes of a server that is down.
const PROBE_EVERY: Duration = Duration::from_millis(100);

/// The timeout of a probe. It may be longer than that of a decision, because no caller waits.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

/// Probe numbers to try until one is in a given slot. On average every 16,384th number is.
const PROBES_MAX: u32 = 200_000;

/// One server.
pub(super) struct Node {
    name: Arc<str>,
    queue: Queue,
    connection: Connection,
    /// The timeout of a decision.
    timeout_us: u64,
    down: AtomicBool,
    /// The error for which it was last marked down.
    down_reason: Mutex<Option<StoreError>>,
    /// Whether it left the cluster, so that no more requests are sent to it.
    retired: AtomicBool,
    /// The counter request that the probe sends.
    probe: Mutex<CounterRequest>,
    /// The server's flags, shared with other threads.
    flags: Arc<ServerFlags>,
    in_cluster: bool,
    shared: Arc<Shared>,
}

/// The options of a node.
pub(super) struct NodeOptions {
    /// The server's name, by which threads share its flags.
    pub(super) name: String,
    pub(super) connection: Connection,
    pub(super) queue: Queue,
    /// The timeout of a decision.
    pub(super) timeout: Duration,
    /// Whether it is used as a node of a cluster, and not as a single server.
    pub(super) in_cluster: bool,
}

impl Node {
    /// A server, which is probed with the counter request `probe`.
    pub(super) fn new(options: NodeOptions, probe: CounterRequest, shared: Arc<Shared>) -> Self {
        let NodeOptions { name, connection, queue, timeout, in_cluster } = options;
        let timeout_us = u64::try_from(timeout.as_micros()).unwrap_or(u64::MAX);
        let (down, retired) = (AtomicBool::new(false), AtomicBool::new(false));
        let name: Arc<str> = name.into();
        let (down_reason, probe, flags) =
            (Mutex::default(), Mutex::new(probe), shared.servers.flags(&name));
        Self {
            name,
            queue,
            connection,
            timeout_us,
            down,
            down_reason,
            retired,
            probe,
            flags,
            in_cluster,
            shared,
        }
    }

    pub(super) const fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Decides a request in the next script run.
    pub(super) async fn enqueue(
        self: &Arc<Self>,
        batch_key: BatchKey,
        counters: Arc<Vec<CounterRequest>>,
        context: DecideContext,
    ) -> Result<Decision, StoreError> {
        if self.flags.is_clustered() {
            return Err(StoreError::Clustered);
        }
        if self.is_down() || self.is_retired() {
            return Err(self.down_error());
        }
        let deadline_us = uptime_us() + self.timeout_us;
        let request = NewRequest { counters, context, deadline_us };
        let enqueued = self.queue.push(batch_key, request);
        if enqueued.run {
            tokio::spawn(Arc::clone(self).drain(batch_key));
        }
        if let Some(timer_us) = enqueued.timer_us {
            tokio::spawn(Arc::clone(self).expire_requests(timer_us));
        }
        let abandoned = |_gone| Err(StoreError::Lost("the script run was abandoned".to_owned()));
        enqueued.answer.await.unwrap_or_else(abandoned)
    }

    /// Whether the server decides: it answers, it did not refuse the last decision that would have
    /// written, and it is not a cluster node that `--store` names as a single server.
    pub(super) async fn ready(self: &Arc<Self>) -> Result<(), StoreError> {
        if self.is_down() {
            return Err(self.down_error());
        }
        let refused = self.flags.refuses();
        let ready = if refused {
            self.send_probe(Duration::from_micros(self.timeout_us)).await
        } else {
            self.connection.ping().await
        };
        if let Err(error) = &ready
            && (!refused || error.is_of_the_server())
        {
            self.mark_down(error);
        }
        ready?;
        self.check_topology().await
    }

    /// Checks that a server used as a single server is not a node of a cluster.
    pub(super) async fn check_topology(&self) -> Result<(), StoreError> {
        if self.in_cluster {
            return Ok(());
        }
        // If the check fails, the result of the last one is kept.
        if let Ok(is_clustered) = self.connection.is_in_cluster().await {
            self.flags.set_clustered(is_clustered);
        }
        if self.flags.is_clustered() { Err(StoreError::Clustered) } else { Ok(()) }
    }

    /// Decides requests in one script run, without queueing.
    pub(super) async fn run_now<'a, R>(
        &self,
        requests: R,
        at_ms: Option<u64>,
    ) -> Result<Vec<Decision>, StoreError>
    where
        R: Iterator<Item = &'a [CounterRequest]> + Clone,
    {
        self.round_trip(requests, at_ms, false).await
    }

    async fn round_trip<'a, R>(
        &self,
        requests: R,
        at_ms: Option<u64>,
        asking: bool,
    ) -> Result<Vec<Decision>, StoreError>
    where
        R: Iterator<Item = &'a [CounterRequest]> + Clone,
    {
        let call = wire::Call::of(requests.clone(), at_ms);
        let watch = Stopwatch::start();
        let reply = self.connection.call_script(call, asking).await;
        self.shared.metrics.evalsha_seconds.record(watch.elapsed());
        let reply = reply.map_err(|error| self.record_error(error))?;
        let decisions: Vec<_> = wire::decisions(requests.clone(), &reply)?.collect();
        // A server whose memory is full still rejects. Only taken hits show that it writes again.
        if self.flags.refuses() && any_taken(requests, &decisions) {
            self.flags.set_refuses(false);
        }
        Ok(decisions)
    }

    /// Records for all threads what the error of a run shows about the server.
    fn record_error(&self, error: StoreError) -> StoreError {
        if !self.in_cluster && error.is_of_a_cluster_node() {
            self.flags.set_clustered(true);
            return StoreError::Clustered;
        }
        if error.is_of_a_replica() {
            self.connection.reconnect();
        }
        if error.is_refusal() {
            self.flags.set_refuses(true);
        }
        error
    }

    /// Moves the probe of a cluster node to one of its own slots, because a node refuses keys of
    /// other slots.
    pub(super) fn probe_own_slot(&self, is_own: impl Fn(u16) -> bool) {
        let is_in_own = |probe: &CounterRequest| is_own(slot(probe.key.as_bytes()));
        let mut current = self.probe.lock();
        if !is_in_own(&current) {
            let mut others = (1..PROBES_MAX).filter_map(|number| probe(number).ok());
            if let Some(own) = others.find(is_in_own) {
                *current = own;
            }
        }
    }

    pub(super) const fn timeout_us(&self) -> u64 {
        self.timeout_us
    }

    pub(super) fn is_down(&self) -> bool {
        self.down.load(Ordering::Relaxed)
    }

    fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Relaxed)
    }

    /// Ends the connection of a server that left the cluster.
    pub(super) fn retire(&self) {
        self.retired.store(true, Ordering::Relaxed);
        self.mark_up();
        self.queue.answer_waiting(|| Err(self.down_error()));
        self.connection.end();
    }

    /// The error of requests while the server is down, with the reason if it is known.
    fn down_error(&self) -> StoreError {
        let why = self.connection.last_error().or_else(|| self.down_reason.lock().clone());
        let why = why.map_or_else(String::new, |why| format!(": {}", why.details()));
        StoreError::Unavailable(format!("known to be down{why}"))
    }

    /// Sends run after run until no request waits.
    async fn drain(self: Arc<Self>, batch_key: BatchKey) {
        loop {
            // Requests can expire while there is no connection, so the run is taken after this.
            self.connection.ready().await;
            let Some(run) = self.queue.next_run(batch_key) else { return };
            self.send(run, batch_key.asking).await;
        }
    }

    /// Answers requests whose deadline has passed, until no request waits.
    async fn expire_requests(self: Arc<Self>, mut timer_us: u64) {
        loop {
            sleep(Duration::from_micros(timer_us.saturating_sub(uptime_us()))).await;
            let late = |sent| if sent { StoreError::Timeout } else { self.connection.not_sent() };
            let expired = self.queue.expire(uptime_us(), late);
            if let Some(error) = expired.error {
                self.mark_down(&error);
            }
            match expired.next_us {
                Some(next_us) => timer_us = next_us,
                None => return,
            }
        }
    }

    /// Sends a run. If a single request may have caused its error, sends each of them alone.
    async fn send(self: &Arc<Self>, run: Vec<QueuedRequest>, asking: bool) {
        let decided = self.execute(&run, asking).await;
        match &decided {
            Err(error) if run.len() > 1 && error.may_concern_one_request() => {
                self.send_separately(run, asking).await;
            }
            _ => self.conclude(&run, decided),
        }
    }

    /// Sends each request of a run that still waits in its own run, all of them concurrently.
    async fn send_separately(self: &Arc<Self>, run: Vec<QueuedRequest>, asking: bool) {
        let mut runs = JoinSet::new();
        for waiting in self.queue.still_awaited(run) {
            let node = Arc::clone(self);
            runs.spawn(async move {
                let run = [waiting];
                let decided = node.execute(&run, asking).await;
                node.conclude(&run, decided);
            });
        }
        while runs.join_next().await.is_some() {}
    }

    async fn execute(
        &self,
        run: &[QueuedRequest],
        asking: bool,
    ) -> Result<Vec<Decision>, StoreError> {
        let sent_us = uptime_us();
        let at_ms = run.first().and_then(|first| first.context.at_ms);
        let requests = run.iter().map(|waiting| &waiting.counters[..]);
        let requests_count = u32::try_from(run.len()).unwrap_or(u32::MAX);
        self.shared.metrics.run_requests.record(f64::from(requests_count));
        let decided = self.round_trip(requests, at_ms, asking).await;
        trace(run, sent_us, decided.as_ref().err());
        match decided {
            Err(error) if error.code() == Some(&Code::WrongType) && writes_midway(run) => {
                let why = error.details();
                Err(StoreError::BadReply(format!("some hits may be taken: {why}")))
            }
            decided => decided,
        }
    }

    /// Answers the requests of a run, and marks the server up or down by the result.
    fn conclude(
        self: &Arc<Self>,
        run: &[QueuedRequest],
        decided: Result<Vec<Decision>, StoreError>,
    ) {
        match decided {
            Ok(decisions) => {
                self.mark_up();
                let pairs = run.iter().zip(decisions);
                self.queue.answer(pairs.map(|(waiting, decision)| (waiting.id, Ok(decision))));
            }
            Err(error) => {
                if error.is_of_the_server() {
                    self.mark_down(&error);
                }
                self.queue.answer(run.iter().map(|waiting| (waiting.id, Err(error.clone()))));
            }
        }
    }

    /// Marks the server down. Requests that wait to be sent fail at once.
    fn mark_down(self: &Arc<Self>, why: &StoreError) {
        if self.is_retired() || self.down.swap(true, Ordering::Relaxed) {
            return;
        }
        *self.down_reason.lock() = Some(why.clone());
        self.shared.outages.begin(&self.name, why, &self.shared.metrics);
        self.queue.answer_waiting(|| Err(self.down_error()));
        tokio::spawn(Arc::clone(self).probe_until_up());
    }

    /// Marks the server up: it decides, or it is no longer used.
    pub(super) fn mark_up(&self) {
        if self.is_down() && self.down.swap(false, Ordering::Relaxed) {
            self.connection.reset_backoff();
            self.shared.outages.end(&self.name, &self.shared.metrics);
        }
    }

    async fn probe_until_up(self: Arc<Self>) {
        while self.is_down() {
            sleep(PROBE_EVERY).await;
            match self.send_probe(PROBE_TIMEOUT).await {
                Err(error) if error.is_of_the_server() => {}
                // It answers. It may refuse only the probe.
                Ok(()) | Err(_) => self.mark_up(),
            }
        }
    }

    /// Requests a decision that writes.
    async fn send_probe(&self, deadline: Duration) -> Result<(), StoreError> {
        let probe = [self.probe.lock().clone()];
        let run = async {
            self.connection.ready().await;
            self.run_now(std::iter::once(&probe[..]), None).await
        };
        match timeout(deadline, Box::pin(run)).await {
            Ok(Ok(_decisions)) => Ok(()),
            // The probe's slot has moved to another node. The next map moves the probe as well.
            Ok(Err(error)) if error.code().is_some_and(Code::is_redirect) => Ok(()),
            Ok(Err(error)) => Err(error),
            Err(_elapsed) => Err(StoreError::Timeout),
        }
    }
}

/// Whether any request took hits.
fn any_taken<'a>(
    requests: impl Iterator<Item = &'a [CounterRequest]>,
    decisions: &[Decision],
) -> bool {
    let takes = |counter: &CounterRequest| counter.mode == Mode::Take && counter.hits > 0;
    let mut pairs = requests.zip(decisions);
    pairs.any(|(counters, decision)| decision.allowed && counters.iter().any(takes))
}

/// Whether a run writes before it has read every state: if one counter has two limits in it.
fn writes_midway(run: &[QueuedRequest]) -> bool {
    let mut limits = HashMap::new();
    let mut counters = run.iter().flat_map(|waiting| &*waiting.counters);
    counters.any(|counter| {
        limits.insert(counter.key.as_bytes(), counter.limit).is_some_and(|it| it != counter.limit)
    })
}

/// Records a span of the run for each of its traced requests.
fn trace(run: &[QueuedRequest], sent_us: u64, error: Option<&StoreError>) {
    for span in run.iter().filter_map(|waiting| waiting.context.span.as_ref()) {
        let took = Duration::from_micros(uptime_us().saturating_sub(sent_us));
        span.run(&Run { took, requests: run.len(), error: error.map(StoreError::kind) });
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // The end of its outage will not be noticed.
        if self.is_down() {
            self.shared.outages.forget(&self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::{Limit, LimitSpec};

    #[test]
    fn a_counter_with_two_limits_is_written_midway() {
        let of = |hits| {
            let limit = Limit::new(&LimitSpec { hits, period_ms: 1_000, ..LimitSpec::default() });
            let counters =
                Arc::new(vec![CounterRequest { limit: limit.unwrap(), ..probe(0).unwrap() }]);
            QueuedRequest { id: 0, counters, context: DecideContext::now() }
        };
        assert!(!writes_midway(&[of(10), of(10)]));
        assert!(writes_midway(&[of(10), of(20)]));
    }
}
