//! When files that change are read. No IO and no clock: both come in as arguments.
//!
//! Files are looked at every `POLL_MIN`, less often if a look is expensive. From the first look that
//! differs, looks follow after `SETTLE`. The files are read
//! - once they have not changed for the follower's own time and no file is open for writing;
//! - after `MOVING_MAX` times that time although they still change, if files are only replaced by
//!   others: what is moved into place is whole, so a writer who never pauses cannot keep changes out;
//! - after `WRITING_MAX` in any case: a writer may have hung with a file open.
//!
//! A reading is thrown away if a file changed meanwhile. One that could not read a file is repeated
//! after `RETRY_MIN`, less often if it is expensive.

use std::time::Duration;

use super::look::Look;

/// How often files are looked at, and how seldom where a look takes long. With `SETTLE` and the time that
/// files must stand still, the longest one stays under a second.
const POLL_MIN: Duration = Duration::from_millis(250);
const POLL_MAX: Duration = Duration::from_millis(600);

/// How soon files that change are looked at again.
pub(super) const SETTLE: Duration = Duration::from_millis(100);

/// How long files that are replaced again and again are waited for, as a multiple of the time that
/// they must stand still.
const MOVING_MAX: u32 = 4;

/// How long a file may be written, or open for writing, before it is read as it is.
const WRITING_MAX: Duration = Duration::from_secs(10);

/// How soon files that could not be read are read again, and how late where a reading takes long.
const RETRY_MIN: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(10);

/// The pause after a look or a failed reading, as a multiple of its own time: half a percent of a core.
const PAUSE: u32 = 200;

/// One look at the files.
#[derive(Clone, Debug, Default)]
pub(super) struct Observation {
    pub(super) look: Look,
    /// A file is open for writing.
    pub(super) is_open: bool,
    /// The time that the look took.
    pub(super) took: Duration,
}

/// What to do after a look.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Look again after this time.
    Wait(Duration),
    /// Read the files, then look again and call [`Debounce::finish_reading`].
    Read,
}

/// Decides from looks when to read. Moments are times since any fixed moment.
#[derive(Debug)]
pub(super) struct Debounce {
    /// How long files must stand still.
    still: Duration,
    last: Observation,
    /// When `last.look` was seen first.
    still_since: Duration,
    /// When the first look differed from what was read; `None` if all is read.
    moving_since: Option<Duration>,
    /// The last change was a file written in place.
    is_in_place: bool,
    /// When files that could not be read are read again.
    retry_at: Option<Duration>,
    /// The last look led to a reading.
    is_settled: bool,
}

impl Debounce {
    /// The first look counts as a change: files may have changed since the caller read them.
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

    /// The files as they were seen last.
    pub(super) const fn last_look(&self) -> &Look {
        &self.last.look
    }

    /// Takes a look at `now`.
    pub(super) fn observe(&mut self, now: Duration, seen: Observation) -> Step {
        if seen.look != self.last.look {
            self.is_in_place = seen.look.is_written_in_place_since(&self.last.look);
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

    /// Whether contents count that were read between the last look and this one, taken at `now`.
    /// `failed` is how long the reading took if a file could not be read.
    pub(super) fn finish_reading(
        &mut self,
        now: Duration,
        after: &Observation,
        failed: Option<Duration>,
    ) -> bool {
        let (before, was_settled) = (&self.last, self.is_settled);
        if after.look != before.look || after.is_open != before.is_open {
            // The next look sees what changed, and the longest waits begin again.
            self.moving_since = self.moving_since.map(|_| now);
            return false;
        }
        // A reading that was asked for does not wait for what it may have read half.
        if was_settled {
            self.moving_since = None;
        }
        self.retry_at =
            failed.map(|took| now + took.saturating_mul(PAUSE).clamp(RETRY_MIN, RETRY_MAX));
        true
    }
}

fn pause_after(look: Duration) -> Duration {
    look.saturating_mul(PAUSE).clamp(POLL_MIN, POLL_MAX)
}

#[cfg(test)]
mod tests;
