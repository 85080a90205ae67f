//! The places of a port's connections, and who loses one when nearly all are taken.
//!
//! While there are free places, anyone may take them. When all are taken, an eighth of the connections is
//! closed: first those of the peer with the most, down to the next peer's number, and of each peer those
//! that have begun no request at all, or none for longest. So a newcomer finds a place, and a caller with
//! few connections keeps them however many another opens.
//!
//! A connection that is being closed no longer counts, up to [`LEAVING_MAX`] of them.

use std::cmp::Reverse;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hashbrown::HashMap;
use metrics::Counter;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::clock::uptime_us;
use crate::memory_budget::Share;
use crate::peer::Peer;

/// Bytes that make a connection worth cutting where memory is scarce.
const COSTLY_BYTES: usize = 16 << 10;

/// How long a caller usually needs from connecting to its first request, at most.
const FIRST_REQUEST_MAX: Duration = Duration::from_secs(1);

/// Connections that are being closed, at most, beside those that have a place.
const LEAVING_MAX: usize = 512;

/// The places of a port. Clones share them.
#[derive(Clone)]
pub(super) struct Places(Arc<Port>);

struct Port {
    max: usize,
    taken: Mutex<Taken>,
    /// Whether no connection is accepted for now.
    is_closed: AtomicBool,
    /// Counts connections that found no place, or lost theirs.
    refused: Counter,
}

#[derive(Default)]
struct Taken {
    places: HashMap<u64, Entry>,
    next: u64,
    leaving: usize,
}

/// A place as sweeps see it.
struct Entry {
    /// Equal for connections that count together.
    peer: usize,
    state: Arc<State>,
    /// Requests begun at the last sweep, and when a sweep saw that number first.
    begun: usize,
    idle_from_us: u64,
    is_leaving: bool,
}

#[derive(Default)]
struct State {
    /// Requests begun so far.
    begun: Arc<AtomicUsize>,
    /// Its shares of memory budgets.
    shares: OnceLock<Box<[Share]>>,
    leaves: Notify,
    /// Whether to leave at once.
    is_cut: AtomicBool,
}

/// A connection's place. Dropping it frees the place.
pub(super) struct Place {
    port: Places,
    number: u64,
    state: Arc<State>,
}

impl Places {
    /// So many places. Connections that find none, or lose theirs, are counted by `refused`.
    pub(super) fn new(max: usize, refused: Counter) -> Self {
        Self(Arc::new(Port {
            max,
            taken: Mutex::default(),
            is_closed: AtomicBool::new(false),
            refused,
        }))
    }

    /// Connections open now.
    pub(super) fn taken(&self) -> usize {
        self.0.taken.lock().places.len()
    }

    /// Whether to accept no connection from now on.
    pub(super) fn close(&self, is_closed: bool) {
        self.0.is_closed.store(is_closed, Ordering::Relaxed);
    }

    /// Cuts the connections that hold most memory: an eighth of those that hold much.
    pub(super) fn cut_costliest(&self) {
        let cut = self.0.taken.lock().cut_costliest();
        self.0.refused.increment(cut);
    }

    /// A place for a new connection; `None` if all are taken.
    pub(super) fn take(&self, peer: Option<&Arc<Peer>>) -> Option<Place> {
        let Port { max, taken, is_closed, refused } = &*self.0;
        let taken = &mut *taken.lock();
        let now_us = uptime_us();
        if taken.places.len() - taken.leaving >= *max {
            refused.increment(taken.sweep(max - max.div_ceil(8), now_us));
        }
        if is_closed.load(Ordering::Relaxed) || taken.places.len() >= max + LEAVING_MAX.min(*max) {
            refused.increment(1);
            return None;
        }
        let (number, state) = (taken.next, Arc::<State>::default());
        taken.next += 1;
        // A connection that counts by itself is a peer of its own: odd numbers are no addresses.
        let alone = || usize::try_from(number).unwrap_or(0) * 2 + 1;
        let peer = peer.map_or_else(alone, |peer| Arc::as_ptr(peer).addr());
        let entry = Entry {
            peer,
            state: Arc::clone(&state),
            begun: 0,
            idle_from_us: now_us,
            is_leaving: false,
        };
        taken.places.insert(number, entry);
        Some(Place { port: self.clone(), number, state })
    }
}

impl Taken {
    /// Tells connections to leave, until so many are left. Returns how many were told.
    fn sweep(&mut self, left: usize, now_us: u64) -> u64 {
        let mut open: Vec<_> =
            self.places.iter_mut().filter(|(_, entry)| !entry.is_leaving).collect();
        let Some(too_many) = open.len().checked_sub(left).filter(|count| *count > 0) else {
            return 0;
        };
        for (_, entry) in &mut open {
            entry.note(now_us);
        }
        // Of each peer those first that are to stay longest.
        open.sort_unstable_by_key(|(number, entry)| {
            let order = Reverse((entry.idle_from_us, **number));
            (entry.peer, entry.is_unused(now_us), order)
        });
        let mut ranks = Vec::with_capacity(open.len());
        let mut peer = (usize::MAX, 0);
        for (at, (_, entry)) in open.iter().enumerate() {
            peer = if peer.0 == entry.peer { (peer.0, peer.1 + 1) } else { (entry.peer, 1) };
            ranks.push((Reverse(peer.1), !entry.is_unused(now_us), entry.idle_from_us, at));
        }
        // The highest ranks are beyond what other peers have.
        ranks.select_nth_unstable(too_many - 1);
        for (_, _, _, at) in &ranks[..too_many] {
            let entry = &mut open[*at].1;
            entry.leave();
        }
        self.leaving += too_many;
        too_many as u64
    }
}

impl Taken {
    fn cut_costliest(&mut self) -> u64 {
        let open = self.places.values_mut().filter(|entry| !entry.is_leaving);
        let with_held = open.map(|entry| (entry.held(), entry));
        let mut costly: Vec<_> = with_held.filter(|(held, _)| *held >= COSTLY_BYTES).collect();
        costly.sort_unstable_by_key(|(held, _)| Reverse(*held));
        costly.truncate(costly.len().div_ceil(8));
        for (_, entry) in &mut costly {
            entry.state.is_cut.store(true, Ordering::Relaxed);
            entry.leave();
        }
        let cut = costly.len();
        self.leaving += cut;
        cut as u64
    }
}

impl Entry {
    /// Bytes that the connection holds.
    fn held(&self) -> usize {
        self.state.shares.get().map_or(0, |shares| shares.iter().map(Share::held).sum())
    }

    /// Tells the connection to leave.
    fn leave(&mut self) {
        self.is_leaving = true;
        self.state.leaves.notify_one();
    }

    /// Notes since when the connection has begun no request.
    fn note(&mut self, now_us: u64) {
        let begun = self.state.begun.load(Ordering::Relaxed);
        if begun != self.begun {
            (self.begun, self.idle_from_us) = (begun, now_us);
        }
    }
}

impl Entry {
    /// Whether the connection had the time to begin a request, and has not.
    fn is_unused(&self, now_us: u64) -> bool {
        let age = Duration::from_micros(now_us.saturating_sub(self.idle_from_us));
        self.begun == 0 && age >= FIRST_REQUEST_MAX
    }
}

impl Place {
    /// The number of requests begun so far, for the connection to count.
    pub(super) fn begun(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.state.begun)
    }

    /// Tells what the connection holds of budgets.
    pub(super) fn holds(&self, shares: Box<[Share]>) {
        // It is told once for each connection.
        let _ = self.state.shares.set(shares);
    }

    /// Whether the connection is to be closed without delay.
    pub(super) fn is_cut(&self) -> bool {
        self.state.is_cut.load(Ordering::Relaxed)
    }

    /// Completes when the connection is to be closed.
    pub(super) async fn lost(&self) {
        self.state.leaves.notified().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let taken = &mut *self.port.0.taken.lock();
        let entry = taken.places.remove(&self.number);
        taken.leaving -= usize::from(entry.is_some_and(|entry| entry.is_leaving));
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::net::IpAddr;
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;
    use crate::memory_budget::MemoryBudget;
    use crate::peer::Peers;

    fn places(max: usize) -> Places {
        Places::new(max, Counter::noop())
    }

    fn peer(number: u32) -> Arc<Peer> {
        Peers::new(vec![]).of(Some(IpAddr::V4(number.into()))).unwrap()
    }

    fn take(places: &Places, peer: &Arc<Peer>, count: usize) -> Vec<Place> {
        (0..count).map(|_| places.take(Some(peer)).unwrap()).collect()
    }

    fn is_lost(place: &Place) -> bool {
        pin!(place.lost()).poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    /// How many are told to leave, since this was asked last.
    fn lost(places: &[Place]) -> usize {
        places.iter().filter(|place| is_lost(place)).count()
    }

    fn kept(places: &[Place]) -> Vec<usize> {
        (0..places.len()).filter(|at| !is_lost(&places[*at])).collect()
    }

    fn sweep(places: &Places, left: usize) {
        sweep_at(places, left, uptime_us());
    }

    fn sweep_at(places: &Places, left: usize, now_us: u64) {
        places.0.taken.lock().sweep(left, now_us);
    }

    #[test]
    fn connections_that_never_began_a_request_go_before_those_that_did_long_ago() {
        let places = places(10);
        let peer = peer(1);
        let used = take(&places, &peer, 2);
        for place in &used {
            place.begun().fetch_add(1, Ordering::Relaxed);
        }
        sweep(&places, 10);
        let unused = take(&places, &peer, 2);
        sweep_at(&places, 2, uptime_us() + 2_000_000);
        assert_eq!((lost(&used), lost(&unused)), (0, 2));
    }

    #[test]
    fn the_peer_with_the_most_loses_first_down_to_the_next() {
        let places = places(100);
        let (a, b, c) = (peer(1), peer(2), peer(3));
        let (a, b, c) = (take(&places, &a, 40), take(&places, &b, 20), take(&places, &c, 2));
        sweep(&places, 52);
        assert_eq!((lost(&a), lost(&b), lost(&c)), (10, 0, 0));
        sweep(&places, 22);
        assert_eq!((lost(&a), lost(&b), lost(&c)), (20, 10, 0));
    }

    #[test]
    fn a_peers_connections_that_begin_no_requests_go_first() {
        let places = places(10);
        let peer = peer(1);
        let all = take(&places, &peer, 6);
        for at in [1, 4] {
            all[at].begun().fetch_add(1, Ordering::Relaxed);
        }
        sweep(&places, 2);
        assert_eq!(kept(&all), [1, 4]);
    }

    #[test]
    fn the_connections_that_hold_most_are_cut_and_others_are_not() {
        let places = places(100);
        let budget = MemoryBudget::new(1 << 30, Counter::noop());
        let (all, mut held) = (take(&places, &peer(1), 20), vec![]);
        for (place, bytes) in all.iter().zip([1 << 10, 40 << 10, 20 << 10, 90 << 10]) {
            let share = budget.share(None);
            held.push(share.reserve(bytes));
            place.holds([share].into());
        }
        places.cut_costliest();
        let cut = |all: &[Place]| (0..20).filter(|at| all[*at].is_cut()).collect::<Vec<_>>();
        assert_eq!(cut(&all), [3]);
        places.cut_costliest();
        places.cut_costliest();
        places.cut_costliest();
        assert_eq!(cut(&all), [1, 2, 3]);
    }

    #[test]
    fn a_closed_port_accepts_nothing_until_it_is_open_again() {
        let places = places(10);
        places.close(true);
        assert!(places.take(None).is_none());
        places.close(false);
        assert!(places.take(None).is_some());
    }

    #[test]
    fn of_idle_connections_without_a_peer_the_oldest_go() {
        let places = places(10);
        let all: Vec<_> = (0..6).map(|_| places.take(None).unwrap()).collect();
        sweep(&places, 4);
        assert_eq!(kept(&all), [2, 3, 4, 5]);
    }

    #[test]
    fn a_place_is_free_once_it_is_dropped() {
        let places = places(2);
        let take = || places.take(None);
        let four = [take(), take(), take(), take()];
        assert!(four.iter().all(Option::is_some), "two of them are to leave");
        assert!(take().is_none(), "none has left");
        drop(four);
        assert_eq!((places.taken(), places.0.taken.lock().leaving), (0, 0));
        assert!(take().is_some());
    }
}
