//! Requests on their way to Redis: what arrives while script runs are under way travels together
//! in the next one.
//!
//! Nothing waits for company: a request that finds no run under way is sent at once, together with
//! those that the same turn of the runtime brings. A run is bounded by what it asks, so that none
//! holds Redis for long, and the runs under way are few, so that under load each of them is large.
//!
//! Every request has a deadline, from when it was asked for, whether it waits here or its run is
//! under way. One alarm rings for all: all have the same time, so that the first that came is the
//! first to be over. An alarm for each would cost a system call where the thread has nothing else
//! to do.

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

/// Runs under way at once: while Redis works on one, the next is on the wire.
const RUNS_MAX: usize = 2;

/// What the asks of one run may cost together, as [`Limit::run_cost`](crate::limit::Limit::run_cost) has
/// it, a request that alone costs more aside: those end at
/// [`RUN_COST_MAX`](crate::limit::cost::RUN_COST_MAX). Under 0.5 ms of Redis for windows and buckets, measured.
const COST_MAX: usize = 640;

/// Which requests a run can hold together: those of one lane. A script of a cluster's node touches
/// keys of one slot only, and has to say where it was asked for in the middle of a migration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct BatchKey {
    /// 0 where there is no cluster.
    pub(super) slot: u16,
    /// Whether the slot's former server sent the request here.
    pub(super) asking: bool,
}

/// What comes of a request.
pub(super) type Answer = Result<Decision, StoreError>;

/// A request to add to the queue.
pub(super) struct NewRequest {
    pub(super) counters: Arc<Vec<CounterRequest>>,
    pub(super) context: DecideContext,
    /// Microseconds of the process's clock, as [`uptime_us`](crate::clock::uptime_us).
    pub(super) deadline_us: u64,
}

/// A request that waits to be sent.
pub(super) struct QueuedRequest {
    /// Its number.
    pub(super) id: u64,
    pub(super) counters: Arc<Vec<CounterRequest>>,
    pub(super) context: DecideContext,
}

/// The requests that wait, and how many runs are under way.
pub(super) struct Queue {
    inner: Mutex<Inner>,
    /// The most requests in one run.
    requests_max: usize,
}

#[derive(Default)]
struct Inner {
    /// Those with requests that wait or runs under way.
    batches: HashMap<BatchKey, PendingBatch, RandomState>,
    /// The requests without an answer, by their numbers, and among them some that have one.
    open: VecDeque<PendingReply>,
    /// The number of the first of them.
    first_id: u64,
    /// Whether somebody waits for the first deadline.
    alarm: bool,
}

#[derive(Default)]
struct PendingBatch {
    waiting: VecDeque<QueuedRequest>,
    runs: usize,
}

struct PendingReply {
    deadline_us: u64,
    /// Whether it is in a run: its hits may be taken.
    sent: bool,
    /// Gone once it is answered.
    answer: Option<oneshot::Sender<Answer>>,
}

/// What a caller has to see to.
pub(super) struct Enqueued {
    /// Few enough runs are under way: begin one.
    pub(super) run: bool,
    /// Nobody waits for deadlines: wait for this one.
    pub(super) alarm_us: Option<u64>,
    /// Where the answer comes.
    pub(super) answer: oneshot::Receiver<Answer>,
}

/// What came of looking for requests that are over.
pub(super) struct Expired {
    /// What the last of those got that were, if any was.
    pub(super) error: Option<StoreError>,
    /// The next deadline, if anybody waits.
    pub(super) next_us: Option<u64>,
}

impl Queue {
    pub(super) fn new(requests_max: usize) -> Self {
        Self { inner: Mutex::default(), requests_max }
    }

    /// Adds a request. Its deadline must not be before those of earlier ones.
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
        let alarm_us = (!inner.alarm).then_some(deadline_us);
        inner.alarm = true;
        Enqueued { run, alarm_us, answer }
    }

    /// The requests of a lane's next run, in the order in which they came; where there are none,
    /// the caller's run is over. Those that nobody waits for any more are dropped.
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

    /// The requests of a run that still need an answer, so that they may be sent once more: not those
    /// whose deadline has passed or whose callers gave up.
    pub(super) fn still_awaited(&self, mut run: Vec<QueuedRequest>) -> Vec<QueuedRequest> {
        let inner = &mut *self.inner.lock();
        run.retain(|waiting| {
            let open = open(&mut inner.open, inner.first_id, waiting.id);
            open.and_then(PendingReply::if_awaited).is_some()
        });
        run
    }

    /// Answers requests, unless they are over.
    pub(super) fn answer(&self, answers: impl Iterator<Item = (u64, Answer)>) {
        let mut inner = self.inner.lock();
        for (id, answer) in answers {
            inner.answer(id, || answer);
        }
    }

    /// Ends what is over at `now_us` with the error for what was sent or was not. What was dropped
    /// is none: it says nothing of the server.
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
        inner.alarm = false;
        expired
    }

    /// Answers all that wait to be sent.
    pub(super) fn give_up(&self, answer: impl Fn() -> Answer) {
        let mut inner = self.inner.lock();
        let all = inner.batches.values_mut().flat_map(|batch_key| batch_key.waiting.drain(..));
        for waiting in all.collect::<Vec<_>>() {
            inner.answer(waiting.id, &answer);
        }
    }
}

impl Inner {
    fn answer(&mut self, id: u64, answer: impl FnOnce() -> Answer) {
        let open = open(&mut self.open, self.first_id, id);
        if let Some(sender) = open.and_then(|open| open.answer.take()) {
            // Who waited may have given up.
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

/// The request of a number, unless it and all before it have their answers.
fn open(all: &mut VecDeque<PendingReply>, first_id: u64, id: u64) -> Option<&mut PendingReply> {
    all.get_mut(usize::try_from(id.checked_sub(first_id)?).ok()?)
}

impl PendingReply {
    /// It, if somebody waits for its answer; else nobody is to get one.
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
    fn whoever_waits_in_vain_shows_that_the_server_is_late() {
        let queue = Queue::new(64);
        let sent = push(&queue);
        assert_eq!(queue.next_run(BatchKey::default()).unwrap().len(), 1);
        assert_eq!(error_at_the_deadline(&queue), Some("timeout"));
        assert!(sent.answer.blocking_recv().unwrap().is_err());
        let _waits = push(&queue);
        assert_eq!(error_at_the_deadline(&queue), Some("unavailable"));
    }

    #[test]
    fn whoever_gave_up_before_a_run_came_shows_nothing() {
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
