//! The calls of one connection that are open, from their first byte to the last of their answers.
//!
//! An answer that its caller does not read occupies memory, and HTTP/2 lets callers read as slowly
//! as they like. So all calls that are open share a budget, and a connection on which one is open for
//! too long is cut: soon where the budget is half full. Streams that are meant to stay open, as
//! watches of health are, are few.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use http_body::{Body, Frame, SizeHint};

use crate::memory_budget::{MemoryBudget, Reservation};

/// Streams of one connection that may stay open.
const WATCHES_MAX: usize = 4;

/// Memory that an open call occupies, and its answer while it is not read.
pub const CALL_BYTES: usize = 4 << 10;

/// Looks that a call may see, where there is room, and where there is little.
pub const LOOKS_MAX: usize = 7;
const LOOKS_MAX_PRESSED: usize = 2;

/// What is open on one connection. All of it happens on one thread.
#[derive(Debug)]
pub struct Calls {
    budget: MemoryBudget,
    /// Counts looks.
    look: AtomicUsize,
    /// Open calls by the look before they began, in turn: none is as old as all turns.
    open: [AtomicUsize; LOOKS_MAX + 1],
    watches: AtomicUsize,
}

/// An open call, until it is dropped.
#[derive(Debug)]
pub struct Open {
    calls: Arc<Calls>,
    kind: Kind,
    _reservation: Option<Reservation>,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    /// Which of [`Calls::open`] counts it.
    Call(usize),
    Watch,
}

/// An answer; its call is open until the answer was sent.
#[derive(Debug)]
pub struct Answered<B> {
    body: B,
    _open: Open,
}

impl Calls {
    /// None yet; they are to share `budget` with those of other connections.
    pub fn new(budget: MemoryBudget) -> Self {
        Self {
            budget,
            look: AtomicUsize::default(),
            open: Default::default(),
            watches: AtomicUsize::default(),
        }
    }

    /// A call that ends soon; `None` where the budget is used up.
    pub fn begin(self: &Arc<Self>) -> Option<Open> {
        let reservation = self.budget.reserve(CALL_BYTES).ok()?;
        Some(self.open(Some(reservation)))
    }

    /// A call that is refused.
    pub fn begin_refusal(self: &Arc<Self>) -> Open {
        self.open(None)
    }

    fn open(self: &Arc<Self>, reservation: Option<Reservation>) -> Open {
        let turn = self.look.load(Ordering::Relaxed) % self.open.len();
        self.open[turn].fetch_add(1, Ordering::Relaxed);
        Open { calls: Arc::clone(self), kind: Kind::Call(turn), _reservation: reservation }
    }

    /// A stream that may stay open; `None` where there are enough.
    pub fn watch(self: &Arc<Self>) -> Option<Open> {
        let watch = Open { calls: Arc::clone(self), kind: Kind::Watch, _reservation: None };
        // Given back by the drop where it is too many.
        let before = self.watches.fetch_add(1, Ordering::Relaxed);
        (before < WATCHES_MAX).then_some(watch)
    }

    /// Whether there are calls to look at.
    pub fn are_open(&self) -> bool {
        self.open.iter().any(|open| open.load(Ordering::Relaxed) > 0)
    }

    /// Whether a call is open that has seen too many looks.
    pub fn look_again(&self) -> bool {
        let look = self.look.fetch_add(1, Ordering::Relaxed) + 1;
        let looks_max = if self.budget.is_half_full() { LOOKS_MAX_PRESSED } else { LOOKS_MAX };
        let is_open = |age: usize| {
            let turn = (look + self.open.len() - age) % self.open.len();
            self.open[turn].load(Ordering::Relaxed) > 0
        };
        (looks_max..=LOOKS_MAX).any(is_open)
    }
}

impl Open {
    /// Goes on until the answer was sent.
    pub const fn until_sent<B>(self, body: B) -> Answered<B> {
        Answered { body, _open: self }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let counter = match self.kind {
            Kind::Call(turn) => &self.calls.open[turn],
            Kind::Watch => &self.calls.watches,
        };
        counter.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<B: Body + Unpin> Body for Answered<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls(room_for: usize) -> Arc<Calls> {
        let budget = MemoryBudget::new(room_for * CALL_BYTES, metrics::Counter::noop());
        Arc::new(Calls::new(budget))
    }

    #[test]
    fn a_call_may_see_some_looks_and_younger_ones_may_stay() {
        let calls = calls(100);
        let old = calls.begin();
        assert!((1..LOOKS_MAX).all(|_| !calls.look_again()));
        let young = calls.begin();
        assert!(calls.look_again());
        drop(old);
        assert!(!calls.look_again() && calls.are_open());
        drop(young);
        assert!((0..20).all(|_| !calls.look_again()) && !calls.are_open());
    }

    #[test]
    fn where_there_is_little_room_a_call_may_see_fewer_and_then_no_more_begin() {
        let calls = calls(4);
        let one = calls.begin().unwrap();
        assert!((0..3).all(|_| !calls.look_again()));
        let three: Vec<_> = (0..3).filter_map(|_| calls.begin()).collect();
        assert!(calls.begin().is_none());
        assert!(calls.look_again(), "the first is older than those behind it may get");
        drop((one, three));
        assert!(calls.begin().is_some());
    }

    #[test]
    fn watches_are_few_and_may_stay() {
        let calls = calls(0);
        let mut watches: Vec<_> = (0..WATCHES_MAX).filter_map(|_| calls.watch()).collect();
        assert_eq!(watches.len(), WATCHES_MAX);
        assert!(calls.watch().is_none() && calls.watch().is_none());
        watches.pop();
        assert!(calls.watch().is_some());
        assert!((0..20).all(|_| !calls.look_again()));
    }
}
