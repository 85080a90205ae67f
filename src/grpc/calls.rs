//! Tracks the open calls of one connection, from their first byte to the last byte of their
//! answers.
//!
//! An answer that the caller does not read occupies memory, and HTTP/2 lets callers read as slowly
//! as they like. So all open calls share a memory budget, and a periodic sweep cuts a connection
//! whose call has been open for too many sweeps. Fewer sweeps are allowed while the budget is half
//! used. Long-lived streams, of health and reflection, may stay open. They are limited in number, and
//! reserve memory from a budget of their own.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use http_body::{Body, Frame, SizeHint};

use crate::memory_budget::{Full, Reservation, Share};

/// Long-lived streams allowed per connection.
const WATCHES_MAX: usize = 4;

/// Bytes reserved for an open call and an unread answer of up to `ANSWER_BYTES`.
pub const CALL_BYTES: usize = 4 << 10;

/// Bytes of an answer from which on a call reserves more.
const ANSWER_BYTES: usize = 1 << 10;

/// Sweeps that a call may stay open for; fewer when the budget is half used.
pub const SWEEPS_MAX: usize = 7;
const SWEEPS_MAX_PRESSED: usize = 2;

/// The open calls of one connection. Only the thread of that connection uses it.
#[derive(Debug)]
pub struct Calls {
    shares: Shares,
    /// Calls begun so far.
    begun: Arc<AtomicUsize>,
    /// Sweeps so far.
    sweep: AtomicUsize,
    /// Open calls by the sweep before they began, modulo the array's length. No call stays open
    /// long enough to meet its own place again.
    open: [AtomicUsize; SWEEPS_MAX + 1],
    watches: AtomicUsize,
}

/// A connection's shares of the budgets.
#[derive(Debug)]
pub struct Shares {
    /// For open calls.
    pub open_calls: Share,
    /// For messages that arrive slowly.
    pub slow_messages: Share,
    /// For long-lived streams.
    pub streams: Share,
}

/// An open call. Dropping it ends the call.
#[derive(Debug)]
pub struct OpenCall {
    calls: Arc<Calls>,
    kind: Kind,
    reservation: Option<Reservation>,
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
    /// A tracker without calls, which counts those to come in `begun`.
    pub fn new(shares: Shares, begun: Arc<AtomicUsize>) -> Self {
        Self {
            shares,
            begun,
            sweep: AtomicUsize::default(),
            open: Default::default(),
            watches: AtomicUsize::default(),
        }
    }

    /// Opens a short call; `None` if the budget is used up.
    pub fn begin(self: &Arc<Self>) -> Option<OpenCall> {
        let reservation = self.shares.open_calls.reserve(CALL_BYTES).ok()?;
        Some(self.open(Some(reservation)))
    }

    /// Opens a call that is refused. It reserves nothing.
    pub fn begin_refusal(self: &Arc<Self>) -> OpenCall {
        self.open(None)
    }

    fn open(self: &Arc<Self>, reservation: Option<Reservation>) -> OpenCall {
        // Only this thread writes it.
        self.begun.store(self.begun() + 1, Ordering::Relaxed);
        let turn = self.sweep.load(Ordering::Relaxed) % self.open.len();
        self.open[turn].fetch_add(1, Ordering::Relaxed);
        OpenCall { calls: Arc::clone(self), kind: Kind::Call(turn), reservation }
    }

    /// All shares of the connection.
    pub fn shares(&self) -> Box<[Share]> {
        let Shares { open_calls, slow_messages, streams } = &self.shares;
        [open_calls, slow_messages, streams].map(Share::clone).into()
    }

    /// The share for messages that arrive slowly.
    pub(super) fn slow_messages(&self) -> Share {
        self.shares.slow_messages.clone()
    }

    /// Opens a long-lived stream that may hold `bytes`; `None` if the connection has enough of them, or
    /// the budget is used up.
    pub fn watch(self: &Arc<Self>, bytes: usize) -> Option<OpenCall> {
        let reservation = Some(self.shares.streams.reserve(bytes).ok()?);
        let watch = OpenCall { calls: Arc::clone(self), kind: Kind::Watch, reservation };
        // If it is one too many, dropping `watch` gives the place back.
        let before = self.watches.fetch_add(1, Ordering::Relaxed);
        (before < WATCHES_MAX).then_some(watch)
    }

    /// Calls begun so far, without long-lived streams.
    pub fn begun(&self) -> usize {
        self.begun.load(Ordering::Relaxed)
    }

    /// Whether any call is open.
    pub fn are_open(&self) -> bool {
        self.open.iter().any(|open| open.load(Ordering::Relaxed) > 0)
    }

    /// Counts a sweep. Returns whether a call has been open for too many of them.
    pub fn sweep_finds_stalled(&self) -> bool {
        let sweep = self.sweep.fetch_add(1, Ordering::Relaxed) + 1;
        let sweeps_max = if self.shares.open_calls.budget().is_half_full() {
            SWEEPS_MAX_PRESSED
        } else {
            SWEEPS_MAX
        };
        let is_open = |age: usize| {
            let turn = (sweep + self.open.len() - age) % self.open.len();
            self.open[turn].load(Ordering::Relaxed) > 0
        };
        (sweeps_max..=SWEEPS_MAX).any(is_open)
    }
}

impl OpenCall {
    /// Reserves memory for an answer of `bytes` until it is sent.
    ///
    /// # Errors
    /// The budget is used up.
    pub fn hold(&mut self, bytes: usize) -> Result<(), Full> {
        match &mut self.reservation {
            Some(reservation) if bytes > ANSWER_BYTES => reservation.grow(bytes - ANSWER_BYTES),
            _ => Ok(()),
        }
    }

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
    use crate::memory_budget::MemoryBudget;

    fn calls(room_for: usize) -> Arc<Calls> {
        let budget = MemoryBudget::new(room_for * CALL_BYTES, metrics::Counter::noop());
        let share = || budget.share(None);
        let shares = Shares { open_calls: share(), slow_messages: share(), streams: share() };
        Arc::new(Calls::new(shares, Arc::default()))
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
        let calls = calls(100);
        let mut watches: Vec<_> = (0..WATCHES_MAX).filter_map(|_| calls.watch(1)).collect();
        assert_eq!(watches.len(), WATCHES_MAX);
        assert!(calls.watch(1).is_none() && calls.watch(1).is_none());
        watches.pop();
        assert!(calls.watch(1).is_some());
        assert!((0..20).all(|_| !calls.sweep_finds_stalled()));
    }

    #[test]
    fn streams_and_large_answers_reserve_what_they_may_hold() {
        let calls = calls(4);
        let stream = calls.watch(2 * CALL_BYTES).unwrap();
        assert!(calls.watch(3 * CALL_BYTES).is_none(), "the budget is used up");
        drop(stream);
        let mut call = calls.begin().unwrap();
        call.hold(ANSWER_BYTES).unwrap();
        assert_eq!(calls.shares.open_calls.budget().used(), CALL_BYTES);
        call.hold(ANSWER_BYTES + CALL_BYTES).unwrap();
        assert_eq!(calls.shares.open_calls.budget().used(), 2 * CALL_BYTES);
        assert!(call.hold(ANSWER_BYTES + 3 * CALL_BYTES).is_err());
        drop(call);
        assert_eq!(calls.shares.open_calls.budget().used(), 0);
    }
}
