//! One server as one thread sees it: the requests on their way to it, the connection, and whether
//! it is known to be down.
//!
//! A server that let a request wait in vain is known to be down: requests do not wait for it any
//! more, but fail at once. From then on a probe asks it for a decision ten times a second; the
//! first answer, also a late one to an earlier run, says that it is back.
//!
//! Where one request may be the cause of a run's error, and nothing was written, each request of the
//! run is asked for again in a run of its own, all at once: a key that holds something else, a key
//! that the user may not touch, a full server that still rejects, a slot that is half moved. Halving
//! the run until the cause is found would be fewer runs where there is one cause, but round trip after
//! round trip; and of a slot that is half moved most halves fail too, into about twice as many runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::connection::Connection;
use super::findings::Findings;
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

/// How often a server that is down is asked whether it is back.
const PROBE_EVERY: Duration = Duration::from_millis(100);

/// How long a probe may take: longer than a decision, for nobody waits.
const PROBE_MAX: Duration = Duration::from_secs(1);

/// Probes among which there is one for each slot: a slot has every 16,384th of them.
const PROBES_MAX: u32 = 200_000;

/// One server.
pub(super) struct Node {
    name: Arc<str>,
    queue: Queue,
    connection: Connection,
    /// What a decision may take.
    timeout_us: u64,
    down: AtomicBool,
    /// What was the matter when it was found to be down last.
    why: Mutex<Option<StoreError>>,
    /// Whether nobody is to ask it any more.
    retired: AtomicBool,
    /// A counter that the probe writes.
    probe: Mutex<CounterRequest>,
    /// What any thread found out about it.
    findings: Arc<Findings>,
    in_cluster: bool,
    shared: Arc<Shared>,
}

/// How a server is reached.
pub(super) struct NodeOptions {
    /// Names it among those that all threads ask.
    pub(super) name: String,
    pub(super) connection: Connection,
    pub(super) queue: Queue,
    /// What a decision may take.
    pub(super) timeout: Duration,
    /// Whether it is asked as a node of a cluster, and not as a server by itself.
    pub(super) in_cluster: bool,
}

impl Node {
    /// A server, and what is written to see whether it decides.
    pub(super) fn new(options: NodeOptions, probe: CounterRequest, shared: Arc<Shared>) -> Self {
        let NodeOptions { name, connection, queue, timeout, in_cluster } = options;
        let timeout_us = u64::try_from(timeout.as_micros()).unwrap_or(u64::MAX);
        let (down, retired) = (AtomicBool::new(false), AtomicBool::new(false));
        let name: Arc<str> = name.into();
        let (why, probe, findings) =
            (Mutex::default(), Mutex::new(probe), shared.servers.findings(&name));
        Self {
            name,
            queue,
            connection,
            timeout_us,
            down,
            why,
            retired,
            probe,
            findings,
            in_cluster,
            shared,
        }
    }

    pub(super) const fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Decides a request in the next run.
    pub(super) async fn enqueue(
        self: &Arc<Self>,
        batch_key: BatchKey,
        counters: Arc<Vec<CounterRequest>>,
        context: DecideContext,
    ) -> Result<Decision, StoreError> {
        if self.findings.is_clustered() {
            return Err(StoreError::Clustered);
        }
        if self.is_down() || self.is_retired() {
            return Err(self.known_down());
        }
        let deadline_us = uptime_us() + self.timeout_us;
        let request = NewRequest { counters, context, deadline_us };
        let enqueued = self.queue.push(batch_key, request);
        if enqueued.run {
            tokio::spawn(Arc::clone(self).drain(batch_key));
        }
        if let Some(alarm_us) = enqueued.alarm_us {
            tokio::spawn(Arc::clone(self).watch(alarm_us));
        }
        let given_up = |_gone| Err(StoreError::Lost("the run was given up".to_owned()));
        enqueued.answer.await.unwrap_or_else(given_up)
    }

    /// Whether the server decides: it answers, has not refused the last decision that would have
    /// written, and is what it is asked as.
    pub(super) async fn ready(self: &Arc<Self>) -> Result<(), StoreError> {
        if self.is_down() {
            return Err(self.known_down());
        }
        let refused = self.findings.refuses();
        let ready = if refused {
            self.probed(Duration::from_micros(self.timeout_us)).await
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

    /// Asks a server that is asked by itself whether it is one.
    pub(super) async fn check_topology(&self) -> Result<(), StoreError> {
        if self.in_cluster {
            return Ok(());
        }
        // Where it does not say, what is known stays.
        if let Ok(is_clustered) = self.connection.is_in_cluster().await {
            self.findings.set_clustered(is_clustered);
        }
        if self.findings.is_clustered() { Err(StoreError::Clustered) } else { Ok(()) }
    }

    /// Decides requests in one run, now.
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
        let reply = reply.map_err(|error| self.noted(error))?;
        let decisions: Vec<_> = wire::decisions(requests.clone(), &reply)?.collect();
        // A full server rejects all the same: only what was taken shows that it writes again.
        if self.findings.refuses() && any_taken(requests, &decisions) {
            self.findings.set_refuses(false);
        }
        Ok(decisions)
    }

    /// What a run's error says about the server is noted for all threads.
    fn noted(&self, error: StoreError) -> StoreError {
        if !self.in_cluster && error.is_of_a_cluster_node() {
            self.findings.set_clustered(true);
            return StoreError::Clustered;
        }
        if error.is_of_a_replica() {
            self.connection.reconnect();
        }
        if error.is_refusal() {
            self.findings.set_refuses(true);
        }
        error
    }

    /// Of a cluster's node, that these slots are its own: the probe is to be in one of them, for
    /// whatever is another's is refused by any node.
    pub(super) fn has_slots(&self, is_own: impl Fn(u16) -> bool) {
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

    /// Ends the connection: the server is none of the cluster's any more.
    pub(super) fn retire(&self) {
        self.retired.store(true, Ordering::Relaxed);
        self.mark_up();
        self.queue.give_up(|| Err(self.known_down()));
        self.connection.end();
    }

    /// The server is down, and why as far as is known.
    fn known_down(&self) -> StoreError {
        let why = self.connection.trouble().or_else(|| self.why.lock().clone());
        let why = why.map_or_else(String::new, |why| format!(": {}", why.details()));
        StoreError::Unavailable(format!("known to be down{why}"))
    }

    /// Run after run, until nobody waits.
    async fn drain(self: Arc<Self>, batch_key: BatchKey) {
        // Those who wait meanwhile may be over: they are asked for once there is a connection.
        loop {
            self.connection.ready().await;
            let Some(run) = self.queue.next_run(batch_key) else { return };
            self.send(run, batch_key.asking).await;
        }
    }

    /// Ends what is over, until nobody waits.
    async fn watch(self: Arc<Self>, mut alarm_us: u64) {
        loop {
            sleep(Duration::from_micros(alarm_us.saturating_sub(uptime_us()))).await;
            let late = |sent| if sent { StoreError::Timeout } else { self.connection.not_sent() };
            let expired = self.queue.expire(uptime_us(), late);
            if let Some(error) = expired.error {
                self.mark_down(&error);
            }
            match expired.next_us {
                Some(next_us) => alarm_us = next_us,
                None => return,
            }
        }
    }

    /// Sends a run, and where only some of its requests may be the cause of its error, each of them
    /// alone.
    async fn send(self: &Arc<Self>, run: Vec<QueuedRequest>, asking: bool) {
        let decided = self.execute(&run, asking).await;
        match &decided {
            Err(error) if run.len() > 1 && error.may_concern_one_request() => {
                self.send_separately(run, asking).await;
            }
            _ => self.conclude(&run, decided),
        }
    }

    /// Sends those requests of a run that still wait for an answer in runs of their own, all at once.
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

    /// Answers the requests of a run, and notes what its outcome says about the server.
    fn conclude(
        self: &Arc<Self>,
        run: &[QueuedRequest],
        decided: Result<Vec<Decision>, StoreError>,
    ) {
        match decided {
            Ok(decisions) => {
                self.mark_up();
                let both = run.iter().zip(decisions);
                self.queue.answer(both.map(|(waiting, decision)| (waiting.id, Ok(decision))));
            }
            Err(error) => {
                if error.is_of_the_server() {
                    self.mark_down(&error);
                }
                self.queue.answer(run.iter().map(|waiting| (waiting.id, Err(error.clone()))));
            }
        }
    }

    /// Notes that the server is down: who waits to be sent waits no longer.
    fn mark_down(self: &Arc<Self>, why: &StoreError) {
        if self.is_retired() || self.down.swap(true, Ordering::Relaxed) {
            return;
        }
        *self.why.lock() = Some(why.clone());
        self.shared.outages.begin(&self.name, why, &self.shared.metrics);
        self.queue.give_up(|| Err(self.known_down()));
        tokio::spawn(Arc::clone(self).probe_until_back());
    }

    /// Notes that the server decides, or that nobody asks it any more.
    pub(super) fn mark_up(&self) {
        if self.is_down() && self.down.swap(false, Ordering::Relaxed) {
            self.connection.reset_backoff();
            self.shared.outages.end(&self.name, &self.shared.metrics);
        }
    }

    async fn probe_until_back(self: Arc<Self>) {
        while self.is_down() {
            sleep(PROBE_EVERY).await;
            match self.probed(PROBE_MAX).await {
                Err(error) if error.is_of_the_server() => {}
                // It answers, and what it refuses may be the probe alone.
                Ok(()) | Err(_) => self.mark_up(),
            }
        }
    }

    /// Asks for a decision that writes.
    async fn probed(&self, deadline: Duration) -> Result<(), StoreError> {
        let probe = [self.probe.lock().clone()];
        let probed = async {
            self.connection.ready().await;
            self.run_now(std::iter::once(&probe[..]), None).await
        };
        match timeout(deadline, Box::pin(probed)).await {
            Ok(Ok(_decisions)) => Ok(()),
            // The probe's slot is another node's by now: the map will say so, and the probe change.
            Ok(Err(error)) if error.code().is_some_and(Code::is_redirect) => Ok(()),
            Ok(Err(error)) => Err(error),
            Err(_elapsed) => Err(StoreError::Timeout),
        }
    }
}

/// Whether any of the requests took hits.
fn any_taken<'a>(
    requests: impl Iterator<Item = &'a [CounterRequest]>,
    decisions: &[Decision],
) -> bool {
    let takes = |counter: &CounterRequest| counter.mode == Mode::Take && counter.hits > 0;
    let mut both = requests.zip(decisions);
    both.any(|(counters, decision)| decision.allowed && counters.iter().any(takes))
}

/// Whether a run writes before all is read: where one counter comes with two limits.
fn writes_midway(run: &[QueuedRequest]) -> bool {
    let mut limits = HashMap::new();
    let mut counters = run.iter().flat_map(|waiting| &*waiting.counters);
    counters.any(|counter| {
        limits.insert(counter.key.as_bytes(), counter.limit).is_some_and(|it| it != counter.limit)
    })
}

/// Makes a span of the run for each of its requests that is traced.
fn trace(run: &[QueuedRequest], sent_us: u64, error: Option<&StoreError>) {
    for span in run.iter().filter_map(|waiting| waiting.context.span.as_ref()) {
        let took = Duration::from_micros(uptime_us().saturating_sub(sent_us));
        span.run(&Run { took, requests: run.len(), error: error.map(StoreError::kind) });
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // What it knew of an outage goes with it.
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
