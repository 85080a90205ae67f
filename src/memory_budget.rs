//! A byte budget shared by all threads.
//!
//! Whoever holds memory on behalf of a peer (a message that arrives slowly, an answer that is not
//! read) reserves it here first. A reservation is released when it is dropped. When the budget is
//! used up, the work that needs more is refused and counted, so that memory stays bounded however
//! many peers there are.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use metrics::Counter;

/// A budget of bytes. Clones share it.
#[derive(Clone, Debug)]
pub struct MemoryBudget(Arc<Bounded>);

#[derive(Debug)]
struct Bounded {
    used: AtomicUsize,
    bytes_max: usize,
    refused: Counter,
}

/// Bytes of a budget that are reserved until this is dropped.
#[derive(Debug)]
pub struct Reservation {
    budget: MemoryBudget,
    bytes: usize,
}

/// The budget has too few bytes left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

struct Holding {
    bytes: Bytes,
    _reservation: Reservation,
}

impl MemoryBudget {
    /// A budget of `bytes_max` bytes. Each failed reservation increments `refused`.
    pub fn new(bytes_max: usize, refused: Counter) -> Self {
        Self(Arc::new(Bounded { used: AtomicUsize::new(0), bytes_max, refused }))
    }

    /// Bytes reserved now.
    pub fn used(&self) -> usize {
        self.0.used.load(Ordering::Relaxed)
    }

    /// Whether at least half of the budget is reserved.
    pub fn is_half_full(&self) -> bool {
        self.used() >= self.0.bytes_max / 2
    }

    /// Reserves `bytes`.
    ///
    /// # Errors
    /// Too few bytes are left. A reservation made while no other is held always succeeds.
    pub fn reserve(&self, bytes: usize) -> Result<Reservation, Full> {
        self.take(bytes)?;
        Ok(Reservation { budget: self.clone(), bytes })
    }

    fn take(&self, bytes: usize) -> Result<(), Full> {
        let Bounded { used, bytes_max, refused } = &*self.0;
        let before = used.fetch_add(bytes, Ordering::Relaxed);
        if before == 0 || before + bytes <= *bytes_max {
            return Ok(());
        }
        used.fetch_sub(bytes, Ordering::Relaxed);
        refused.increment(1);
        Err(Full)
    }
}

impl Reservation {
    /// Reserves more bytes.
    ///
    /// # Errors
    /// Too few bytes are left.
    pub fn grow(&mut self, bytes: usize) -> Result<(), Full> {
        self.budget.take(bytes)?;
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
        self.budget.0.used.fetch_sub(self.bytes, Ordering::Relaxed);
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

    #[test]
    fn a_budget_is_shared_and_given_back() {
        let budget = MemoryBudget::new(10, Counter::noop());
        let mut six = budget.reserve(6).unwrap();
        assert_eq!(budget.reserve(5).err(), Some(Full));
        six.grow(4).unwrap();
        assert_eq!((six.grow(1), budget.used()), (Err(Full), 10));
        drop(six);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn what_is_alone_is_never_too_large() {
        let budget = MemoryBudget::new(10, Counter::noop());
        let large = budget.reserve(100).unwrap();
        assert!(budget.reserve(1).is_err());
        drop(large);
        assert!(budget.reserve(1).is_ok());
    }

    #[test]
    fn bytes_hold_their_part_until_the_last_of_them_is_gone() {
        let budget = MemoryBudget::new(10, Counter::noop());
        let mut page = budget.reserve(4).unwrap().with(Bytes::from_static(b"page"));
        let end = page.split_off(2);
        drop(page);
        assert_eq!((&end[..], budget.used()), (&b"ge"[..], 4));
        drop(end);
        assert_eq!(budget.used(), 0);
    }
}
