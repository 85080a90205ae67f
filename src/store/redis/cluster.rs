//! A Redis Cluster: the map from slots to nodes, per thread.
//!
//! Each node has its own client, which does not know of the cluster, so that a redirect or a dead
//! node does not affect the others. Replicas are never used.
//!
//! A background task keeps the map current with CLUSTER SLOTS: at the start, when a node fails or
//! redirects, and every [`REFRESH_EVERY`]. In between, MOVED redirects change single slots at once.
//! ASK redirects apply to one request only, and TRYAGAIN repeats it after [`TRYAGAIN_DELAY`]; all
//! attempts of a request share one timeout.

use std::sync::{Arc, Weak};
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::{Mutex, RwLock};
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};

use super::connection::SlotRange;
use super::node::Node;
use super::queue::BatchKey;
use super::slot::SLOTS;
use super::url::HostPort;
use crate::clock::uptime_us;
use crate::decide::CounterRequest;
use crate::decision::Decision;
use crate::store::context::DecideContext;
use crate::store_error::{Address, Code, StoreError};

/// The pause between refreshes of the map, and the one while a node is down or no map is known.
const REFRESH_EVERY: Duration = Duration::from_secs(10);
const REFRESH_DEGRADED_EVERY: Duration = Duration::from_millis(100);

/// The shortest pause between refreshes, however often the map is found to be stale.
const REFRESH_PAUSE_MIN: Duration = Duration::from_millis(20);

/// The timeout of a node's answer to CLUSTER SLOTS.
const REFRESH_TIMEOUT: Duration = Duration::from_millis(300);

/// The pause before a request is sent again whose keys are migrating (TRYAGAIN).
const TRYAGAIN_DELAY: Duration = Duration::from_millis(1);

/// Nodes that may be connected at once.
const NODES_MAX: usize = 1_024;

type Connect = dyn Fn(&HostPort) -> Result<Arc<Node>, String> + Send + Sync;

/// The nodes of a cluster, and the slots that each one serves.
pub(super) struct Cluster {
    map: RwLock<Map>,
    seeds: Vec<HostPort>,
    /// Connects to the node of an address.
    connect: Box<Connect>,
    /// The timeout of a decision.
    timeout_us: u64,
    /// Wakes the refresh task.
    stale: Notify,
    /// The error of the last node that did not report the map.
    last_error: Mutex<Option<String>>,
    /// Whether a node ever reported the map.
    known: watch::Sender<bool>,
}

struct Map {
    nodes: HashMap<HostPort, Arc<Node>>,
    /// The node of each slot.
    masters: Vec<Option<Arc<Node>>>,
}

impl Cluster {
    /// Starts the task that fetches the map, from the seeds at first.
    pub(super) fn start(seeds: &[HostPort], timeout: Duration, connect: Box<Connect>) -> Arc<Self> {
        let masters = vec![None; usize::from(SLOTS)];
        let cluster = Arc::new(Self {
            map: RwLock::new(Map { nodes: HashMap::new(), masters }),
            seeds: seeds.to_vec(),
            connect,
            timeout_us: u64::try_from(timeout.as_micros()).unwrap_or(u64::MAX),
            stale: Notify::new(),
            last_error: Mutex::default(),
            known: watch::Sender::new(false),
        });
        tokio::spawn(refresh_loop(Arc::downgrade(&cluster)));
        cluster
    }

    /// Waits until the map is known and its nodes are connected.
    pub(super) async fn connected(&self, deadline: Duration) -> Result<(), StoreError> {
        let mut known = self.known.subscribe();
        let waited = timeout(deadline, known.wait_for(|known| *known)).await;
        if !matches!(waited, Ok(Ok(_))) {
            return Err(self.slots_unknown());
        }
        drop(waited);
        for node in self.masters() {
            node.connection().connected(deadline).await?;
        }
        Ok(())
    }

    /// The error of a request while no node has reported the map.
    pub(super) fn slots_unknown(&self) -> StoreError {
        let why =
            self.last_error.lock().as_ref().map_or_else(String::new, |why| format!(": {why}"));
        StoreError::Unavailable(format!("the cluster's slots are not known{why}"))
    }

    /// The nodes that serve slots.
    pub(super) fn masters(&self) -> Vec<Arc<Node>> {
        distinct(&self.map.read().masters)
    }

    pub(super) const fn timeout_us(&self) -> u64 {
        self.timeout_us
    }

    /// Decides a request whose keys are all in one slot, on the node that serves it by then.
    pub(super) async fn follow_redirects(
        &self,
        slot: u16,
        counters: Arc<Vec<CounterRequest>>,
        context: DecideContext,
    ) -> Result<Decision, StoreError> {
        let deadline_us = uptime_us() + self.timeout_us;
        let mut ask_target: Option<Arc<Node>> = None;
        let mut is_first = true;
        loop {
            let batch_key = BatchKey { slot, asking: ask_target.is_some() };
            let node = ask_target.take().map_or_else(|| self.master(slot), Ok)?;
            let decided = node.enqueue(batch_key, Arc::clone(&counters), context.clone());
            let decided = if is_first {
                decided.await
            } else {
                // All attempts together have the timeout of one decision.
                let left = Duration::from_micros(deadline_us.saturating_sub(uptime_us()));
                timeout(left, decided).await.unwrap_or(Err(StoreError::Timeout))
            };
            is_first = false;
            let error = match decided {
                Ok(decision) => return Ok(decision),
                Err(error) => error,
            };
            // A node that redirects took nothing.
            match error.code() {
                Some(code) if code.is_redirect() && uptime_us() >= deadline_us => {
                    return Err(error);
                }
                Some(Code::Moved(to)) => self.move_slot(slot, &self.redirected(to, &node))?,
                Some(Code::Ask(to)) => ask_target = Some(self.node(&self.redirected(to, &node))?),
                Some(Code::TryAgain) => sleep(TRYAGAIN_DELAY).await,
                _ => {
                    self.stale.notify_one();
                    return Err(error);
                }
            }
        }
    }

    /// The node that serves a slot, according to the map.
    pub(super) fn master(&self, slot: u16) -> Result<Arc<Node>, StoreError> {
        let master = self.map.read().masters[usize::from(slot % SLOTS)].clone();
        master.ok_or_else(|| {
            self.stale.notify_one();
            if !*self.known.borrow() {
                return self.slots_unknown();
            }
            StoreError::Unavailable(format!("no node is known to serve slot {slot}"))
        })
    }

    /// The address that a redirect names. Without a host, it has the host of the redirecting node.
    fn redirected(&self, to: &Address, by: &Arc<Node>) -> HostPort {
        if !to.host.is_empty() {
            return HostPort { host: to.host.clone(), port: to.port };
        }
        let map = self.map.read();
        let own = map.nodes.iter().find(|(_, node)| Arc::ptr_eq(node, by));
        let host = own.map_or_else(String::new, |(address, _)| address.host.clone());
        HostPort { host, port: to.port }
    }

    /// Records that another node serves a slot.
    fn move_slot(&self, slot: u16, to: &HostPort) -> Result<(), StoreError> {
        let node = self.node(to)?;
        self.map.write().masters[usize::from(slot % SLOTS)] = Some(node);
        self.stale.notify_one();
        Ok(())
    }

    /// The node of an address. Connects to it if it is new.
    fn node(&self, address: &HostPort) -> Result<Arc<Node>, StoreError> {
        if let Some(node) = self.map.read().nodes.get(address) {
            return Ok(Arc::clone(node));
        }
        let mut map = self.map.write();
        if map.nodes.len() >= NODES_MAX {
            let why = format!("the cluster has more than {NODES_MAX} nodes");
            return Err(StoreError::Unavailable(why));
        }
        let node = (self.connect)(address).map_err(StoreError::Unavailable)?;
        map.nodes.insert(address.clone(), Arc::clone(&node));
        Ok(node)
    }

    /// Whether no map is known yet, or a node is down.
    fn is_degraded(&self) -> bool {
        let known = *self.known.borrow();
        !known || self.map.read().nodes.values().any(|node| node.is_down())
    }

    /// Requests the map from one node after the other until one reports it.
    async fn refresh(&self) {
        let known: Vec<HostPort> = self.map.read().nodes.keys().cloned().collect();
        for address in known.iter().chain(&self.seeds) {
            let Some(ranges) = self.ranges_of(address).await else { continue };
            let error = match ranges {
                Ok(ranges) if !ranges.is_empty() => return self.update_map(address, &ranges),
                Ok(_none) => "it reports no slots".to_owned(),
                Err(error) => error.details().to_owned(),
            };
            *self.last_error.lock() = Some(format!("{address}: {error}"));
        }
    }

    /// The slots as a node reports them; `None` if it is down or cannot be connected to. The node
    /// may be one that the new map drops.
    async fn ranges_of(&self, address: &HostPort) -> Option<Result<Vec<SlotRange>, StoreError>> {
        let node = self.node(address).ok().filter(|node| !node.is_down())?;
        let ranges = timeout(REFRESH_TIMEOUT, node.connection().cluster_slots()).await;
        Some(ranges.unwrap_or(Err(StoreError::Timeout)))
    }

    /// Replaces the map with the one that `from` reported, and drops nodes without slots.
    fn update_map(&self, from: &HostPort, ranges: &[SlotRange]) {
        let mut masters = vec![None; usize::from(SLOTS)];
        for (first, last, host, port) in ranges {
            let host = if host.is_empty() { from.host.clone() } else { host.clone() };
            let Ok(node) = self.node(&HostPort { host, port: *port }) else { continue };
            let slots = usize::from(*first)..usize::from((*last).min(SLOTS - 1)) + 1;
            if let Some(slots) = masters.get_mut(slots) {
                slots.fill(Some(node));
            }
        }
        for node in distinct(&masters) {
            let is = |master: &Arc<Node>| Arc::ptr_eq(master, &node);
            node.probe_own_slot(|slot| masters[usize::from(slot)].as_ref().is_some_and(is));
        }
        let mut map = self.map.write();
        map.masters = masters;
        let Map { nodes, masters } = &mut *map;
        let has_slots =
            |node: &Arc<Node>| masters.iter().flatten().any(|master| Arc::ptr_eq(master, node));
        nodes.retain(|address, node| {
            if has_slots(node) {
                return true;
            }
            if self.seeds.contains(address) {
                // Requests do not use it, so its outage does not count.
                node.mark_up();
                return true;
            }
            // Requests sent before the slots moved hold the node, and are answered first.
            let is_in_use = Arc::strong_count(node) > 1 && !node.is_down();
            if !is_in_use {
                node.retire();
            }
            is_in_use
        });
        drop(map);
        self.known.send_replace(true);
    }
}

/// The nodes without repetitions.
fn distinct(masters: &[Option<Arc<Node>>]) -> Vec<Arc<Node>> {
    let mut nodes: Vec<Arc<Node>> = Vec::new();
    for node in masters.iter().flatten() {
        if !nodes.iter().any(|other| Arc::ptr_eq(other, node)) {
            nodes.push(Arc::clone(node));
        }
    }
    nodes
}

/// Refreshes the map until the cluster is dropped.
async fn refresh_loop(cluster: Weak<Cluster>) {
    loop {
        let Some(cluster) = cluster.upgrade() else { return };
        cluster.refresh().await;
        let pause = if cluster.is_degraded() { REFRESH_DEGRADED_EVERY } else { REFRESH_EVERY };
        tokio::select! {
            () = sleep(pause) => {}
            () = cluster.stale.notified() => {}
        }
        sleep(REFRESH_PAUSE_MIN).await;
    }
}
