//! Tracks the open calls of one connection, from their first byte to the last byte of their
//! answers.
//!
//! An answer that the caller does not read occupies memory, and HTTP/2 lets callers read as slowly
//! as they like. So all open calls share a memory budget, and a periodic sweep cuts a connection
//! whose call has been open for too many sweeps. Fewer sweeps are allowed while the budget is half
//! used. Long-lived streams, such as health watches, are limited in number instead.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use http_body::{Body, Frame, SizeHint};

use crate::memory_budget::{MemoryBudget, Reservation};

/// Long-lived streams allowed per connection.
const WATCHES_MAX: usize = 4;

/// Bytes reserved for an open call and its unread answer.
pub const CALL_BYTES: usize = 4 << 10;

/// Sweeps that a call may stay open for; fewer when the budget is half used.
pub const SWEEPS_MAX: usize = 7;
const SWEEPS_MAX_PRESSED: usize = 2;

/// The open calls of one connection. Only the thread of that connection uses it.
#[derive(Debug)]
pub struct Calls {
    budget: MemoryBudget,
    /// Sweeps so far.
    sweep: AtomicUsize,
    /// Open calls by the sweep before they began, modulo the array's length. No call stays open
    /// long enough to meet its own place again.
    open: [AtomicUsize; SWEEPS_MAX + 1],
    watches: AtomicUsize,
}

/// An open call. Dropping it ends the call.
#[derive(Debug)]
pub struct OpenCall {
    calls: Arc<Calls>,
    kind: Kind,
    _reservation: Option<Reservation>,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    /// The index into [`Calls::open`] that counts it.
    Call(usize),
    Watch,
}

/// A response body that keeps its call open until it is sent or dropped.
#[derive(Debug)]
pub struct TrackedBody<B> {
    body: B,
    _open: OpenCall,
}

impl Calls {
    /// A tracker without calls, whose reservations come from `budget`.
    pub fn new(budget: MemoryBudget) -> Self {
        Self {
            budget,
            sweep: AtomicUsize::default(),
            open: Default::default(),
            watches: AtomicUsize::default(),
        }
    }

    /// Opens a short call; `None` if the budget is used up.
    pub fn begin(self: &Arc<Self>) -> Option<OpenCall> {
        let reservation = self.budget.reserve(CALL_BYTES).ok()?;
        Some(self.open(Some(reservation)))
    }

    /// Opens a call that is refused. It reserves nothing.
    pub fn begin_refusal(self: &Arc<Self>) -> OpenCall {
        self.open(None)
    }

    fn open(self: &Arc<Self>, reservation: Option<Reservation>) -> OpenCall {
        let turn = self.sweep.load(Ordering::Relaxed) % self.open.len();
        self.open[turn].fetch_add(1, Ordering::Relaxed);
        OpenCall { calls: Arc::clone(self), kind: Kind::Call(turn), _reservation: reservation }
    }

    /// Opens a long-lived stream; `None` if the connection has enough of them.
    pub fn watch(self: &Arc<Self>) -> Option<OpenCall> {
        let watch = OpenCall { calls: Arc::clone(self), kind: Kind::Watch, _reservation: None };
        // If it is one too many, dropping `watch` gives the place back.
        let before = self.watches.fetch_add(1, Ordering::Relaxed);
        (before < WATCHES_MAX).then_some(watch)
    }

    /// Whether any call is open.
    pub fn are_open(&self) -> bool {
        self.open.iter().any(|open| open.load(Ordering::Relaxed) > 0)
    }

    /// Counts a sweep. Returns whether a call has been open for too many of them.
    pub fn sweep_finds_stalled(&self) -> bool {
        let sweep = self.sweep.fetch_add(1, Ordering::Relaxed) + 1;
        let sweeps_max = if self.budget.is_half_full() { SWEEPS_MAX_PRESSED } else { SWEEPS_MAX };
        let is_open = |age: usize| {
            let turn = (sweep + self.open.len() - age) % self.open.len();
            self.open[turn].load(Ordering::Relaxed) > 0
        };
        (sweeps_max..=SWEEPS_MAX).any(is_open)
    }
}

impl OpenCall {
    /// Keeps the call open until `body` is sent.
    pub const fn until_sent<B>(self, body: B) -> TrackedBody<B> {
        TrackedBody { body, _open: self }
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        let counter = match self.kind {
            Kind::Call(turn) => &self.calls.open[turn],
            Kind::Watch => &self.calls.watches,
        };
        counter.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<B: Body + Unpin> Body for TrackedBody<B> {
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
        assert!((1..SWEEPS_MAX).all(|_| !calls.sweep_finds_stalled()));
        let young = calls.begin();
        assert!(calls.sweep_finds_stalled());
        drop(old);
        assert!(!calls.sweep_finds_stalled() && calls.are_open());
        drop(young);
        assert!((0..20).all(|_| !calls.sweep_finds_stalled()) && !calls.are_open());
    }

    #[test]
    fn where_there_is_little_room_a_call_may_see_fewer_and_then_no_more_begin() {
        let calls = calls(4);
        let one = calls.begin().unwrap();
        assert!((0..3).all(|_| !calls.sweep_finds_stalled()));
        let three: Vec<_> = (0..3).filter_map(|_| calls.begin()).collect();
        assert!(calls.begin().is_none());
        assert!(calls.sweep_finds_stalled(), "the first is older than those behind it may get");
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
        assert!((0..20).all(|_| !calls.sweep_finds_stalled()));
    }
}
