//! A Redis Cluster as one thread sees it: which node has which slot.
//!
//! Each node has a client of its own that knows nothing of the cluster, so that a redirect or a
//! dead node never concerns the others. The map of slots is asked for at the start, when a node
//! falls or redirects, and now and then. Replicas are never asked.

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

/// How often the map is asked for where all is well, and where it is not.
const REFRESH_EVERY: Duration = Duration::from_secs(10);
const REFRESH_TROUBLED: Duration = Duration::from_millis(100);

/// At least between two times, however often the map is found to be stale.
const REFRESH_PAUSE: Duration = Duration::from_millis(20);

/// How long one node may take to tell the map.
const REFRESH_MAX: Duration = Duration::from_millis(300);

/// How soon a request is tried again whose keys are on their way to another node.
const TRY_AGAIN: Duration = Duration::from_millis(1);

/// Nodes that are kept connected.
const NODES_MAX: usize = 1_024;

type Connect = dyn Fn(&HostPort) -> Result<Arc<Node>, String> + Send + Sync;

/// The nodes, and who has which slot.
pub(super) struct Cluster {
    map: RwLock<Map>,
    seeds: Vec<HostPort>,
    /// Makes the node of an address.
    connect: Box<Connect>,
    /// What a decision may take.
    timeout_us: u64,
    stale: Notify,
    /// What was the matter when no node told the map.
    trouble: Mutex<Option<String>>,
    /// Whether the map was ever told.
    known: watch::Sender<bool>,
}

struct Map {
    nodes: HashMap<HostPort, Arc<Node>>,
    /// By slot.
    masters: Vec<Option<Arc<Node>>>,
}

impl Cluster {
    /// Asks the seeds for the map, in the background.
    pub(super) fn start(seeds: &[HostPort], timeout: Duration, connect: Box<Connect>) -> Arc<Self> {
        let masters = vec![None; usize::from(SLOTS)];
        let cluster = Arc::new(Self {
            map: RwLock::new(Map { nodes: HashMap::new(), masters }),
            seeds: seeds.to_vec(),
            connect,
            timeout_us: u64::try_from(timeout.as_micros()).unwrap_or(u64::MAX),
            stale: Notify::new(),
            trouble: Mutex::default(),
            known: watch::Sender::new(false),
        });
        tokio::spawn(keep_current(Arc::downgrade(&cluster)));
        cluster
    }

    /// Waits until the map is known and its nodes are connected.
    pub(super) async fn connected(&self, deadline: Duration) -> Result<(), StoreError> {
        let mut known = self.known.subscribe();
        let told = timeout(deadline, known.wait_for(|known| *known)).await;
        if !matches!(told, Ok(Ok(_))) {
            return Err(self.not_known());
        }
        drop(told);
        for node in self.masters() {
            node.connection().connected(deadline).await?;
        }
        Ok(())
    }

    /// Why nothing can be decided while the map was never told.
    pub(super) fn not_known(&self) -> StoreError {
        let why = self.trouble.lock().as_ref().map_or_else(String::new, |why| format!(": {why}"));
        StoreError::Unavailable(format!("the cluster's slots are not known{why}"))
    }

    /// The nodes that have slots.
    pub(super) fn masters(&self) -> Vec<Arc<Node>> {
        distinct(&self.map.read().masters)
    }

    pub(super) const fn timeout_us(&self) -> u64 {
        self.timeout_us
    }

    /// Decides a request whose keys are all of one slot, wherever that is meanwhile.
    pub(super) async fn follow_redirects(
        &self,
        slot: u16,
        counters: Arc<Vec<CounterRequest>>,
        context: DecideContext,
    ) -> Result<Decision, StoreError> {
        let deadline_us = uptime_us() + self.timeout_us;
        let mut asked: Option<Arc<Node>> = None;
        let mut is_first = true;
        loop {
            let batch_key = BatchKey { slot, asking: asked.is_some() };
            let node = asked.take().map_or_else(|| self.master(slot), Ok)?;
            let decided = node.enqueue(batch_key, Arc::clone(&counters), context.clone());
            let decided = if is_first {
                decided.await
            } else {
                // All attempts together have the time of one.
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
                Some(Code::Moved(to)) => self.moved(slot, &self.redirected(to, &node))?,
                Some(Code::Ask(to)) => asked = Some(self.node(&self.redirected(to, &node))?),
                Some(Code::TryAgain) => sleep(TRY_AGAIN).await,
                _ => {
                    self.stale.notify_one();
                    return Err(error);
                }
            }
        }
    }

    /// The node that has a slot, as far as is known.
    pub(super) fn master(&self, slot: u16) -> Result<Arc<Node>, StoreError> {
        let master = self.map.read().masters[usize::from(slot % SLOTS)].clone();
        master.ok_or_else(|| {
            self.stale.notify_one();
            if !*self.known.borrow() {
                return self.not_known();
            }
            StoreError::Unavailable(format!("no node is known to serve slot {slot}"))
        })
    }

    /// The node that a redirect names; without a host it is another port of the node that redirects.
    fn redirected(&self, to: &Address, by: &Arc<Node>) -> HostPort {
        if !to.host.is_empty() {
            return HostPort { host: to.host.clone(), port: to.port };
        }
        let map = self.map.read();
        let own = map.nodes.iter().find(|(_, node)| Arc::ptr_eq(node, by));
        let host = own.map_or_else(String::new, |(address, _)| address.host.clone());
        HostPort { host, port: to.port }
    }

    fn moved(&self, slot: u16, to: &HostPort) -> Result<(), StoreError> {
        let node = self.node(to)?;
        self.map.write().masters[usize::from(slot % SLOTS)] = Some(node);
        self.stale.notify_one();
        Ok(())
    }

    /// The node of an address, connected to now if it is new.
    fn node(&self, address: &HostPort) -> Result<Arc<Node>, StoreError> {
        if let Some(node) = self.map.read().nodes.get(address) {
            return Ok(Arc::clone(node));
        }
        let mut map = self.map.write();
        if map.nodes.len() >= NODES_MAX {
            return Err(StoreError::Unavailable("the cluster has too many nodes".to_owned()));
        }
        let node = (self.connect)(address).map_err(StoreError::Unavailable)?;
        map.nodes.insert(address.clone(), Arc::clone(&node));
        Ok(node)
    }

    fn is_troubled(&self) -> bool {
        let known = *self.known.borrow();
        !known || self.map.read().nodes.values().any(|node| node.is_down())
    }

    /// Asks one node after the other until one tells the map.
    async fn refresh(&self) {
        let known: Vec<HostPort> = self.map.read().nodes.keys().cloned().collect();
        for address in known.iter().chain(&self.seeds) {
            let Some(ranges) = self.ranges_of(address).await else { continue };
            let trouble = match ranges {
                Ok(ranges) if !ranges.is_empty() => return self.learn(address, &ranges),
                Ok(_none) => "it has no slots".to_owned(),
                Err(error) => error.details().to_owned(),
            };
            *self.trouble.lock() = Some(format!("{address}: {trouble}"));
        }
    }

    /// The map as a node has it, which may be one to let go next; `None` where it is not asked.
    async fn ranges_of(&self, address: &HostPort) -> Option<Result<Vec<SlotRange>, StoreError>> {
        let node = self.node(address).ok().filter(|node| !node.is_down())?;
        let ranges = timeout(REFRESH_MAX, node.connection().cluster_slots()).await;
        Some(ranges.unwrap_or(Err(StoreError::Timeout)))
    }

    fn learn(&self, from: &HostPort, ranges: &[SlotRange]) {
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
            node.has_slots(|slot| masters[usize::from(slot)].as_ref().is_some_and(is));
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
                // Nobody needs to know that it is down.
                node.mark_up();
                return true;
            }
            // What was asked before the slots moved is answered first: it holds the node.
            let is_asked = Arc::strong_count(node) > 1 && !node.is_down();
            if !is_asked {
                node.retire();
            }
            is_asked
        });
        drop(map);
        self.known.send_replace(true);
    }
}

/// Each of the nodes once.
fn distinct(masters: &[Option<Arc<Node>>]) -> Vec<Arc<Node>> {
    let mut nodes: Vec<Arc<Node>> = Vec::new();
    for node in masters.iter().flatten() {
        if !nodes.iter().any(|other| Arc::ptr_eq(other, node)) {
            nodes.push(Arc::clone(node));
        }
    }
    nodes
}

async fn keep_current(cluster: Weak<Cluster>) {
    loop {
        let Some(cluster) = cluster.upgrade() else { return };
        cluster.refresh().await;
        let pause = if cluster.is_troubled() { REFRESH_TROUBLED } else { REFRESH_EVERY };
        tokio::select! {
            () = sleep(pause) => {}
            () = cluster.stale.notified() => {}
        }
        sleep(REFRESH_PAUSE).await;
    }
}
