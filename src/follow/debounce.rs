//! Decides when changing files are read. No IO and no clock: both are arguments.
//!
//! Files are polled every `POLL_MIN`, less often if a poll is expensive. From the first poll that
//! differs, polls follow every `SETTLE`. The files are read
//! - once they have not changed for the follower's own time and no file is open for writing;
//! - after `MOVING_MAX` times that time although they still change, if files are only replaced by
//!   others: a replaced file is complete, so a writer that never pauses cannot keep changes out;
//! - after `WRITING_MAX` in any case: a writer may hang with a file open.
//!
//! A read is discarded if a file changed meanwhile. A read that failed for a file is retried after
//! `RETRY_MIN`, less often if it is expensive.

use std::time::Duration;

use super::metadata::FilesState;

/// The poll interval, and its maximum if polls are slow. With `SETTLE` and the time that files must
/// be unchanged, the longest one stays under a second.
const POLL_MIN: Duration = Duration::from_millis(250);
const POLL_MAX: Duration = Duration::from_millis(600);

/// The poll interval while files change.
pub(super) const SETTLE: Duration = Duration::from_millis(100);

/// How long the follower waits for files that are replaced again and again, as a multiple of the
/// time that they must be unchanged.
const MOVING_MAX: u32 = 4;

/// How long a file may be written, or open for writing, before it is read anyway.
const WRITING_MAX: Duration = Duration::from_secs(10);

/// The interval of retries after a failed read, and its maximum if reads are slow.
const RETRY_MIN: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(10);

/// The pause after a poll or a failed read, as a multiple of its own duration: half a percent of a
/// core.
const PAUSE: u32 = 200;

/// The result of one poll.
#[derive(Clone, Debug, Default)]
pub(super) struct Observation {
    pub(super) state: FilesState,
    /// A file is open for writing.
    pub(super) is_open: bool,
    /// The duration of the poll.
    pub(super) took: Duration,
}

/// What to do after a poll.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Poll again after this time.
    Wait(Duration),
    /// Read the files, then poll again and call [`Debounce::finish_reading`].
    Read,
}

/// Decides from polls when to read. Moments are times since any fixed moment.
#[derive(Debug)]
pub(super) struct Debounce {
    /// How long files must be unchanged.
    still: Duration,
    last: Observation,
    /// When `last.state` was first seen.
    still_since: Duration,
    /// When the first poll differed from the contents read; `None` if all is read.
    moving_since: Option<Duration>,
    /// The last change was a file written in place.
    is_in_place: bool,
    /// When files that could not be read are retried.
    retry_at: Option<Duration>,
    /// The last poll led to a read.
    is_settled: bool,
}

impl Debounce {
    /// The first poll counts as a change: files may have changed since the caller read them.
    pub(super) fn new(still: Duration) -> Self {
        Self {
            still,
            last: Observation::default(),
            still_since: Duration::ZERO,
            moving_since: None,
            is_in_place: false,
            retry_at: None,
            is_settled: false,
        }
    }

    /// The state of the files at the last poll.
    pub(super) const fn last_state(&self) -> &FilesState {
        &self.last.state
    }

    /// Takes the result of a poll at `now`.
    pub(super) fn observe(&mut self, now: Duration, seen: Observation) -> Step {
        if seen.state != self.last.state {
            self.is_in_place = seen.state.is_written_in_place_since(&self.last.state);
            self.still_since = now;
            self.moving_since.get_or_insert(now);
        }
        if self.retry_at.is_some_and(|at| now >= at) {
            self.moving_since.get_or_insert(now);
        }
        self.last = seen;
        self.is_settled = self.is_to_be_read(now);
        match self.moving_since {
            _ if self.is_settled => Step::Read,
            Some(_) => Step::Wait(SETTLE),
            None => Step::Wait(pause_after(self.last.took)),
        }
    }

    fn is_to_be_read(&self, now: Duration) -> bool {
        let Some(since) = self.moving_since else { return false };
        let moving = now.saturating_sub(since);
        let is_still = now.saturating_sub(self.still_since) >= self.still;
        let is_replaced = moving >= self.still * MOVING_MAX && !self.is_in_place;
        (!self.last.is_open && (is_still || is_replaced)) || moving >= WRITING_MAX
    }

    /// Whether the contents read between the last poll and this one, taken at `now`, are valid.
    /// `failed` is the duration of the read if a file could not be read.
    pub(super) fn finish_reading(
        &mut self,
        now: Duration,
        after: &Observation,
        failed: Option<Duration>,
    ) -> bool {
        let (before, was_settled) = (&self.last, self.is_settled);
        if after.state != before.state || after.is_open != before.is_open {
            // The next poll sees the change, and the longest waits start again.
            self.moving_since = self.moving_since.map(|_| now);
            return false;
        }
        // A requested read is not delayed for contents that may be incomplete.
        if was_settled {
            self.moving_since = None;
        }
        self.retry_at =
            failed.map(|took| now + took.saturating_mul(PAUSE).clamp(RETRY_MIN, RETRY_MAX));
        true
    }
}

fn pause_after(poll_time: Duration) -> Duration {
    poll_time.saturating_mul(PAUSE).clamp(POLL_MIN, POLL_MAX)
}

#[cfg(test)]
mod tests;
