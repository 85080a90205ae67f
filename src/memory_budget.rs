//! A byte budget that holders share fairly.
//!
//! Memory held on behalf of a peer (a message that arrives slowly, an answer that is not read) is
//! reserved here first. A reservation is released when it is dropped. When the budget is used up, the
//! work that needs more is refused and counted, so that memory stays bounded however many peers there
//! are.
//!
//! Each connection has a [`Share`]. It may hold as much as is still free, and all connections of one
//! peer together `PEER_PART` times as much. So anyone may use what nobody else needs, and what is free
//! shrinks the shares of those that hold most: a newcomer always finds room, and whoever holds most is
//! refused first. Buffer memory in network switches is shared by the same rule (Choudhury and Hahne,
//! "Dynamic queue length thresholds"). It needs no list of holders and no lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use metrics::Counter;

/// How many times the free bytes one peer may hold. One peer thus gets 7/8 of a budget at most.
const PEER_PART: usize = 7;

/// The same for connections that hold little, which may exceed the budget by an eighth, so that they find
/// room beside others that hold much: up to 4 KiB, or 1/32 of what is then free.
const PEER_PART_OF_SMALL: usize = 31;
const SMALL_BYTES: usize = 4 << 10;
const SMALL_PARTS: usize = 32;

/// A budget of bytes. Clones share it.
#[derive(Clone, Debug)]
pub struct MemoryBudget(Arc<Bounded>);

#[derive(Debug)]
struct Bounded {
    used: AtomicUsize,
    bytes_max: usize,
    /// As [`Bounded::bytes_max`], or a part of it while memory is scarce.
    bytes_now: AtomicUsize,
    refused: Counter,
}

/// What one connection holds of a budget. Clones are of the same connection.
#[derive(Clone, Debug)]
pub struct Share(Arc<Holder>);

#[derive(Debug)]
struct Holder {
    budget: MemoryBudget,
    /// What all connections of the peer hold; `None` if the connection counts by itself.
    peer: Option<Arc<AtomicUsize>>,
    own: AtomicUsize,
}

/// Bytes of a budget that are reserved until this is dropped.
#[derive(Debug)]
pub struct Reservation {
    share: Share,
    bytes: usize,
}

/// The budget, or this share of it, has too few bytes left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

struct Holding {
    bytes: Bytes,
    _reservation: Reservation,
}

impl MemoryBudget {
    /// A budget of `bytes_max` bytes. Each failed reservation increments `refused`.
    pub fn new(bytes_max: usize, refused: Counter) -> Self {
        let bytes_now = AtomicUsize::new(bytes_max);
        Self(Arc::new(Bounded { used: AtomicUsize::new(0), bytes_max, bytes_now, refused }))
    }

    /// Bytes reserved now.
    pub fn used(&self) -> usize {
        self.0.used.load(Ordering::Relaxed)
    }

    /// Whether at least half of the budget is reserved.
    pub fn is_half_full(&self) -> bool {
        self.used() >= self.0.bytes_now.load(Ordering::Relaxed) / 2
    }

    /// Shrinks the budget to one of so many parts, or restores it if `parts` is 1. What is reserved
    /// stays so.
    pub fn shrink(&self, parts: usize) {
        self.0.bytes_now.store(self.0.bytes_max / parts.max(1), Ordering::Relaxed);
    }

    /// The share of a new connection, whose peer's connections together hold `peer`.
    pub fn share(&self, peer: Option<Arc<AtomicUsize>>) -> Share {
        Share(Arc::new(Holder { budget: self.clone(), peer, own: AtomicUsize::new(0) }))
    }
}

impl Share {
    /// Bytes that the connection holds.
    pub fn held(&self) -> usize {
        self.0.own.load(Ordering::Relaxed)
    }

    /// The budget that this is a share of.
    pub fn budget(&self) -> &MemoryBudget {
        &self.0.budget
    }

    /// Reserves `bytes`.
    ///
    /// # Errors
    /// Too few bytes are left for this share. A reservation made while no other is held always
    /// succeeds.
    pub fn reserve(&self, bytes: usize) -> Result<Reservation, Full> {
        self.take(bytes)?;
        Ok(Reservation { share: self.clone(), bytes })
    }

    fn take(&self, bytes: usize) -> Result<(), Full> {
        let Holder { budget: MemoryBudget(budget), peer, own } = &*self.0;
        let used = budget.used.fetch_add(bytes, Ordering::Relaxed);
        let peer = peer.as_ref().map(|peer| peer.fetch_add(bytes, Ordering::Relaxed));
        let own = own.fetch_add(bytes, Ordering::Relaxed);
        if used == 0 || budget.admits(bytes, Held { used, peer, own }) {
            return Ok(());
        }
        self.release(bytes);
        budget.refused.increment(1);
        Err(Full)
    }

    fn release(&self, bytes: usize) {
        let Holder { budget, peer, own } = &*self.0;
        budget.0.used.fetch_sub(bytes, Ordering::Relaxed);
        if let Some(peer) = peer {
            peer.fetch_sub(bytes, Ordering::Relaxed);
        }
        own.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Bytes held before a reservation.
struct Held {
    used: usize,
    peer: Option<usize>,
    own: usize,
}

impl Bounded {
    /// Whether a share may hold `bytes` more.
    fn admits(&self, bytes: usize, held: Held) -> bool {
        let bytes_max = self.bytes_now.load(Ordering::Relaxed);
        let reserve = (bytes_max + bytes_max / 8).checked_sub(held.used + bytes);
        let Some(reserve) = reserve else { return false };
        if held.own + bytes <= SMALL_BYTES.max(reserve / SMALL_PARTS) {
            return held.peer.unwrap_or(0) <= PEER_PART_OF_SMALL * reserve;
        }
        let Some(free) = bytes_max.checked_sub(held.used + bytes) else { return false };
        // The peer's connections share what the peer may hold by the same rule.
        let room = held.peer.map_or(Some(free), |peer| (PEER_PART * free).checked_sub(peer));
        room.is_some_and(|room| held.own <= room)
    }
}

impl Reservation {
    /// Reserves more bytes.
    ///
    /// # Errors
    /// Too few bytes are left for its share.
    pub fn grow(&mut self, bytes: usize) -> Result<(), Full> {
        self.share.take(bytes)?;
        self.bytes += bytes;
        Ok(())
    }

    /// Ties the reservation to `bytes`: it is released when their last clone is dropped.
    pub fn with(self, bytes: Bytes) -> Bytes {
        Bytes::from_owner(Holding { bytes, _reservation: self })
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.share.release(self.bytes);
    }
}

impl AsRef<[u8]> for Holding {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(bytes_max: usize) -> MemoryBudget {
        MemoryBudget::new(bytes_max, Counter::noop())
    }

    /// More than a connection that holds little has.
    const UNIT: usize = 2 * SMALL_BYTES;

    /// Reserves until a share is refused.
    fn fill(share: &Share) -> Vec<Reservation> {
        std::iter::from_fn(|| share.reserve(UNIT).ok()).collect()
    }

    #[test]
    fn a_budget_is_shared_and_given_back() {
        let budget = budget(10 * UNIT);
        let (one, other) = (budget.share(None), budget.share(None));
        let mut six = one.reserve(6 * UNIT).unwrap();
        assert_eq!(other.reserve(5 * UNIT).err(), Some(Full));
        let four = other.reserve(4 * UNIT).unwrap();
        assert_eq!((six.grow(1), budget.used()), (Err(Full), 10 * UNIT));
        drop((six, four));
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn what_is_alone_is_never_too_large() {
        let budget = budget(10);
        let share = budget.share(None);
        let large = share.reserve(100 * UNIT).unwrap();
        assert!(share.reserve(UNIT).is_err());
        drop(large);
        assert!(share.reserve(UNIT).is_ok());
    }

    #[test]
    fn bytes_hold_their_part_until_the_last_of_them_is_gone() {
        let budget = budget(10);
        let mut page = budget.share(None).reserve(4).unwrap().with(Bytes::from_static(b"page"));
        let end = page.split_off(2);
        drop(page);
        assert_eq!((&end[..], budget.used()), (&b"ge"[..], 4));
        drop(end);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn a_budget_that_shrinks_refuses_more_and_keeps_what_is_reserved() {
        let budget = budget(100 * UNIT);
        let (one, other) = (budget.share(None), budget.share(None));
        let held: Vec<_> = (0..20).map(|_| one.reserve(UNIT).unwrap()).collect();
        budget.shrink(4);
        assert!(one.reserve(UNIT).is_err(), "it holds more than is free");
        assert!(other.reserve(UNIT).is_ok());
        budget.shrink(1);
        assert!(one.reserve(UNIT).is_ok());
        assert_eq!((one.held(), held.len()), (20 * UNIT, 20));
    }

    #[test]
    fn each_of_many_that_want_all_gets_the_same_and_a_newcomer_finds_room() {
        let budget = budget(1_000 * UNIT);
        let shares: Vec<_> = (0..9).map(|_| budget.share(None)).collect();
        let mut held = vec![];
        for _ in 0..1_000 {
            held.extend(shares.iter().filter_map(|share| share.reserve(UNIT).ok()));
        }
        for share in &shares {
            let own = share.0.own.load(Ordering::Relaxed) / UNIT;
            assert!((99..=101).contains(&own), "{own}");
        }
        let newcomer = fill(&budget.share(None)).len();
        assert!((45..=55).contains(&newcomer), "half of what is free: {newcomer}");
    }

    #[test]
    fn a_peer_with_many_connections_leaves_an_eighth_to_others() {
        let budget = budget(1_000 * UNIT);
        let peer = Arc::<AtomicUsize>::default();
        let shares: Vec<_> = (0..100).map(|_| budget.share(Some(Arc::clone(&peer)))).collect();
        let mut held = vec![];
        for _ in 0..100 {
            held.extend(shares.iter().filter_map(|share| share.reserve(UNIT).ok()));
        }
        assert!((860..=880).contains(&held.len()), "{}", held.len());
        assert!(fill(&budget.share(Some(Arc::default()))).len() > 50, "another peer");
        // Connections of the same peer that need little.
        let few = || budget.share(Some(Arc::clone(&peer))).reserve(SMALL_BYTES).ok();
        let few: Vec<_> = std::iter::from_fn(few).take(100).collect();
        assert_eq!(few.len(), 100);
        assert_eq!(peer.load(Ordering::Relaxed), held.len() * UNIT + few.len() * SMALL_BYTES);
    }
}
