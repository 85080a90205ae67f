//! The queue of one server: batches waiting requests into script runs.
//!
//! Requests that arrive while script runs are under way are sent together in the next run. No
//! request is delayed to fill a batch: if no run is under way, it is sent at once, together with
//! those that arrive in the same iteration of the runtime. The cost of a run is bounded, so that
//! none blocks Redis for long. At most [`RUNS_MAX`] runs are under way, so that under load each of
//! them is large.
//!
//! Each request has a deadline, counted from its arrival, both while it waits here and while its
//! run is under way. All requests have the same timeout, so the oldest expires first and one timer
//! is enough for all. A timer per request would cost a system call each time the thread has nothing
//! else to do.

use std::collections::VecDeque;
use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::Mutex;
use rapidhash::fast::RandomState;
use tokio::sync::oneshot;

use crate::decide::CounterRequest;
use crate::decision::Decision;
use crate::store::context::DecideContext;
use crate::store_error::StoreError;

/// Script runs under way at once, per batch key: while Redis executes one, the next is on the wire.
const RUNS_MAX: usize = 2;

/// The cost of one run, at most: the sum of [`Limit::run_cost`](crate::limit::Limit::run_cost) over
/// its counter requests. A request that costs more is sent alone; a request costs at most
/// [`RUN_COST_MAX`](crate::algorithm::RUN_COST_MAX). For windows and buckets, 640 takes Redis
/// less than 0.5 ms, measured.
const COST_MAX: usize = 640;

/// The key of a batch: only requests with the same batch key can share a script run. In a cluster a
/// script may use keys of one slot only, and a run for a slot that is migrating needs ASKING.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct BatchKey {
    /// The cluster slot; 0 without a cluster.
    pub(super) slot: u16,
    /// Whether an ASK redirect sent the request here, so that ASKING must precede the run.
    pub(super) asking: bool,
}

/// The answer to a request.
pub(super) type Answer = Result<Decision, StoreError>;

/// A request to add to the queue.
pub(super) struct NewRequest {
    pub(super) counters: Arc<Vec<CounterRequest>>,
    pub(super) context: DecideContext,
    /// On the clock of [`uptime_us`](crate::clock::uptime_us), in microseconds.
    pub(super) deadline_us: u64,
}

/// A request that waits to be sent.
pub(super) struct QueuedRequest {
    /// Its number, in order of arrival.
    pub(super) id: u64,
    pub(super) counters: Arc<Vec<CounterRequest>>,
    pub(super) context: DecideContext,
}

/// The waiting requests, and the number of runs under way.
pub(super) struct Queue {
    inner: Mutex<Inner>,
    /// Requests per run, at most.
    requests_max: usize,
}

#[derive(Default)]
struct Inner {
    /// Batches with waiting requests or runs under way.
    batches: HashMap<BatchKey, PendingBatch, RandomState>,
    /// The unanswered requests in order of their numbers, with some answered ones between them.
    open: VecDeque<PendingReply>,
    /// The number of the first request in `open`.
    first_id: u64,
    /// Whether a task waits for the first deadline.
    has_timer: bool,
}

#[derive(Default)]
struct PendingBatch {
    waiting: VecDeque<QueuedRequest>,
    runs: usize,
}

struct PendingReply {
    deadline_us: u64,
    /// Whether it is in a run, so that its hits may be taken.
    sent: bool,
    /// `None` once it is answered.
    answer: Option<oneshot::Sender<Answer>>,
}

/// A queued request, and the tasks that the caller must start for it.
pub(super) struct Enqueued {
    /// Whether to start a run: fewer than [`RUNS_MAX`] are under way.
    pub(super) run: bool,
    /// The deadline to start the timer for, if no timer runs.
    pub(super) timer_us: Option<u64>,
    /// Receives the answer.
    pub(super) answer: oneshot::Receiver<Answer>,
}

/// The result of expiring requests.
pub(super) struct Expired {
    /// The error that the last expired request got; `None` if none expired.
    pub(super) error: Option<StoreError>,
    /// The next deadline, if a request is left.
    pub(super) next_us: Option<u64>,
}

impl Queue {
    pub(super) fn new(requests_max: usize) -> Self {
        Self { inner: Mutex::default(), requests_max }
    }

    /// Adds a request. Its deadline must not be before those of earlier requests.
    pub(super) fn push(&self, batch_key: BatchKey, request: NewRequest) -> Enqueued {
        let NewRequest { counters, context, deadline_us } = request;
        let (sender, answer) = oneshot::channel();
        let mut inner = self.inner.lock();
        let id = inner.first_id + inner.open.len() as u64;
        inner.open.push_back(PendingReply { deadline_us, sent: false, answer: Some(sender) });
        let pending = inner.batches.entry(batch_key).or_default();
        pending.waiting.push_back(QueuedRequest { id, counters, context });
        let run = pending.runs < RUNS_MAX;
        pending.runs += usize::from(run);
        let timer_us = (!inner.has_timer).then_some(deadline_us);
        inner.has_timer = true;
        Enqueued { run, timer_us, answer }
    }

    /// The requests of the next run for a batch key, in order of arrival. `None` if none wait; then
    /// the caller's run has ended. Requests that their callers gave up are dropped.
    pub(super) fn next_run(&self, batch_key: BatchKey) -> Option<Vec<QueuedRequest>> {
        let inner = &mut *self.inner.lock();
        let pending = inner.batches.get_mut(&batch_key)?;
        let mut run: Vec<QueuedRequest> = Vec::new();
        let mut cost = 0;
        while let Some(next) = pending.waiting.front() {
            let open = open(&mut inner.open, inner.first_id, next.id);
            let Some(open) = open.and_then(PendingReply::if_awaited) else {
                pending.waiting.pop_front();
                continue;
            };
            cost += next.cost();
            let full = run.len() >= self.requests_max || cost > COST_MAX;
            if run.first().is_some_and(|first| full || first.context.at_ms != next.context.at_ms) {
                break;
            }
            open.sent = true;
            run.extend(pending.waiting.pop_front());
        }
        if run.is_empty() {
            pending.runs -= 1;
            if pending.runs == 0 && batch_key != BatchKey::default() {
                inner.batches.remove(&batch_key);
            }
            return None;
        }
        Some(run)
    }

    /// The requests of a run that still need an answer, and may be sent again: those whose deadline
    /// has not passed and whose callers have not given up.
    pub(super) fn still_awaited(&self, mut run: Vec<QueuedRequest>) -> Vec<QueuedRequest> {
        let inner = &mut *self.inner.lock();
        run.retain(|waiting| {
            let open = open(&mut inner.open, inner.first_id, waiting.id);
            open.and_then(PendingReply::if_awaited).is_some()
        });
        run
    }

    /// Answers requests that have no answer yet.
    pub(super) fn answer(&self, answers: impl Iterator<Item = (u64, Answer)>) {
        let mut inner = self.inner.lock();
        for (id, answer) in answers {
            inner.answer(id, || answer);
        }
    }

    /// Answers the requests that expired by `now_us` with `error(sent)`. Requests whose callers
    /// gave up are not counted as expired, because they show nothing about the server.
    pub(super) fn expire(&self, now_us: u64, error: impl Fn(bool) -> StoreError) -> Expired {
        let mut inner = self.inner.lock();
        let mut expired = Expired { error: None, next_us: None };
        loop {
            inner.drop_answered();
            let Some(first) = inner.open.front() else { break };
            if first.deadline_us > now_us {
                expired.next_us = Some(first.deadline_us);
                return expired;
            }
            let (id, error) = (inner.first_id, error(first.sent));
            expired.error = Some(error.clone());
            inner.answer(id, || Err(error));
        }
        inner.has_timer = false;
        expired
    }

    /// Answers all requests that wait to be sent.
    pub(super) fn answer_waiting(&self, answer: impl Fn() -> Answer) {
        let mut inner = self.inner.lock();
        let all = inner.batches.values_mut().flat_map(|pending| pending.waiting.drain(..));
        for waiting in all.collect::<Vec<_>>() {
            inner.answer(waiting.id, &answer);
        }
    }
}

impl Inner {
    fn answer(&mut self, id: u64, answer: impl FnOnce() -> Answer) {
        let open = open(&mut self.open, self.first_id, id);
        if let Some(sender) = open.and_then(|open| open.answer.take()) {
            // The caller may have given up.
            drop(sender.send(answer()));
        }
        self.drop_answered();
    }

    fn drop_answered(&mut self) {
        while self.open.front().is_some_and(|first| first.answer.is_none()) {
            self.open.pop_front();
            self.first_id += 1;
        }
    }
}

/// The request with this number; `None` if it and all earlier ones are answered.
fn open(all: &mut VecDeque<PendingReply>, first_id: u64, id: u64) -> Option<&mut PendingReply> {
    all.get_mut(usize::try_from(id.checked_sub(first_id)?).ok()?)
}

impl PendingReply {
    /// This request, if its caller still waits. Otherwise it counts as answered.
    fn if_awaited(&mut self) -> Option<&mut Self> {
        self.answer = self.answer.take().filter(|answer| !answer.is_closed());
        self.answer.is_some().then_some(self)
    }
}

impl QueuedRequest {
    fn cost(&self) -> usize {
        self.counters.iter().map(|counter| counter.limit.run_cost()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEADLINE_US: u64 = 15_000;

    fn late(sent: bool) -> StoreError {
        if sent { StoreError::Timeout } else { StoreError::Unavailable("not sent".to_owned()) }
    }

    fn push(queue: &Queue) -> Enqueued {
        push_until(queue, DEADLINE_US)
    }

    fn push_until(queue: &Queue, deadline_us: u64) -> Enqueued {
        let (counters, context) = (Arc::default(), DecideContext::now());
        queue.push(BatchKey::default(), NewRequest { counters, context, deadline_us })
    }

    fn error_at_the_deadline(queue: &Queue) -> Option<&'static str> {
        queue.expire(DEADLINE_US, late).error.map(|error| error.kind())
    }

    #[test]
    fn an_expired_request_shows_that_the_server_is_late() {
        let queue = Queue::new(64);
        let sent = push(&queue);
        assert_eq!(queue.next_run(BatchKey::default()).unwrap().len(), 1);
        assert_eq!(error_at_the_deadline(&queue), Some("timeout"));
        assert!(sent.answer.blocking_recv().unwrap().is_err());
        let _waits = push(&queue);
        assert_eq!(error_at_the_deadline(&queue), Some("unavailable"));
    }

    #[test]
    fn a_request_given_up_before_its_run_shows_nothing() {
        let queue = Queue::new(64);
        let (first, gone, last) = (push(&queue), push(&queue), push(&queue));
        drop(gone.answer);
        let run = queue.next_run(BatchKey::default()).unwrap();
        assert_eq!(run.iter().map(|waiting| waiting.id).collect::<Vec<_>>(), [0, 2]);
        queue.answer(run.iter().map(|waiting| (waiting.id, Ok(Decision::without_limits()))));
        assert_eq!(error_at_the_deadline(&queue), None);
        for answered in [first, last] {
            assert!(answered.answer.blocking_recv().unwrap().is_ok());
        }
        assert_eq!(queue.inner.lock().open.len(), 0);
    }

    #[test]
    fn a_request_that_expired_was_answered_or_given_up_is_not_sent_again() {
        let queue = Queue::new(64);
        let early = push_until(&queue, DEADLINE_US - 1);
        let [gone, answered, last] = [(); 3].map(|()| push(&queue));
        let run = queue.next_run(BatchKey::default()).unwrap();
        drop(gone.answer);
        queue.answer(std::iter::once((2, Ok(Decision::without_limits()))));
        assert!(queue.expire(DEADLINE_US - 1, late).error.is_some());
        let again = queue.still_awaited(run);
        assert_eq!(again.iter().map(|waiting| waiting.id).collect::<Vec<_>>(), [3]);
        drop((early, answered, last));
    }
}
