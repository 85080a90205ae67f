//! Follows files that change while the service runs: limits, certificates and their keys.
//!
//! A `Follower` polls. Each poll reads the metadata of every followed file, through symlinks.
//! When a poll differs from the one before, further polls follow quickly, and the files are read
//! once their metadata stays the same. Contents are then compared by hash, so that a file that is
//! only touched changes nothing. `debounce` makes these decisions and does no IO; `metadata` reads
//! the metadata.
//!
//! Polling alone detects every kind of change on every file system: writes in place, renames,
//! swapped symlinks, ConfigMaps, folders that are removed and created again, network mounts. It
//! does not show that a program still has a file open for writing and only pauses; `writers` uses
//! inotify for that. Where inotify reports nothing (network mounts), a file is read when its
//! metadata stays the same.
//!
//! A follower works on the thread that calls `Follower::next`, one per set of files: a mount that
//! hangs delays its own files only. No lock is held during IO, so neither the serving threads nor
//! the end of the process wait for it. Files that cannot be read are retried; the caller gets the
//! failure once.
//!
//! Not followed: the password of Redis, which is read for each connection, and the secret of stored
//! keys, because a new one would rename every counter.

mod debounce;
mod metadata;
mod writers;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use sha2::{Digest, Sha256};

use crate::clock::Stopwatch;
use debounce::{Debounce, Observation, Step};
use metadata::FilesState;
use writers::Writers;

/// A set of files to follow.
pub(crate) trait Source {
    /// The result of a read: contents, or the reason why there are none.
    type Contents;

    /// The files and folders to poll now, including missing ones. A folder counts as changed when
    /// another one replaces it; its files must be listed separately.
    fn paths(&self) -> Vec<PathBuf>;

    /// Reads the files.
    fn read(&self) -> Self::Contents;

    /// Identifies contents, to detect changes.
    fn fingerprint(contents: &Self::Contents) -> Fingerprint;
}

/// A hash of contents, stored instead of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fingerprint {
    hash: [u8; 32],
    is_complete: bool,
}

impl Fingerprint {
    /// For files that were all read.
    pub(crate) fn complete<'c>(contents: impl IntoIterator<Item = &'c [u8]>) -> Self {
        Self { hash: hash(contents), is_complete: true }
    }

    /// For files of which some could not be read, with the errors among the contents. They are read
    /// again although nothing seems to change: the cause may lie outside the files.
    pub(crate) fn incomplete<'c>(contents: impl IntoIterator<Item = &'c [u8]>) -> Self {
        Self { hash: hash(contents), is_complete: false }
    }
}

fn hash<'c>(contents: impl IntoIterator<Item = &'c [u8]>) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in contents {
        hash.update(part.len().to_le_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

/// Follows the files of one source.
pub(crate) struct Follower<S> {
    source: S,
    control: Control,
    debounce: Debounce,
    writers: Writers,
    clock: Stopwatch,
    seen: Fingerprint,
    /// A read was requested and not done yet.
    is_forced: bool,
    wait: Duration,
}

/// The result of a poll.
#[derive(Debug)]
pub(crate) enum Next<C> {
    /// The files were read: their contents changed, or a read was requested.
    Read(C),
    /// Nothing to do.
    Unchanged,
    /// The follower was stopped.
    Stopped,
}

impl<S: Source> Follower<S> {
    /// Follows files whose contents have been read. They are read again after no change for
    /// `still`.
    pub(crate) fn new(source: S, seen: Fingerprint, still: Duration) -> Self {
        Self {
            source,
            control: Control::default(),
            debounce: Debounce::new(still),
            writers: Writers::new(),
            clock: Stopwatch::start(),
            seen,
            is_forced: false,
            wait: Duration::ZERO,
        }
    }

    /// A handle that requests reads and stops the follower, from any thread.
    pub(crate) fn control(&self) -> Control {
        self.control.clone()
    }

    /// Waits until the next poll is due, and polls.
    pub(crate) fn next(&mut self) -> Next<S::Contents> {
        match self.control.wait(self.wait) {
            Some(Signal::Stop) => return Next::Stopped,
            Some(Signal::Read) => self.is_forced = true,
            None => {}
        }
        let observation = self.observe();
        match self.debounce.observe(self.clock.elapsed(), observation) {
            Step::Wait(wait) => self.wait = wait,
            Step::Read => return self.read(),
        }
        if self.is_forced { self.read() } else { Next::Unchanged }
    }

    fn observe(&mut self) -> Observation {
        let watch = Stopwatch::start();
        let state = FilesState::at(self.source.paths());
        if state != *self.debounce.last_state() {
            self.writers.follow(state.paths());
        }
        let is_open = self.writers.any();
        Observation { state, is_open, took: watch.elapsed() }
    }

    fn read(&mut self) -> Next<S::Contents> {
        self.wait = debounce::SETTLE;
        let watch = Stopwatch::start();
        let contents = self.source.read();
        let took = watch.elapsed();
        let after = self.observe();
        let fingerprint = S::fingerprint(&contents);
        let failed = (!fingerprint.is_complete).then_some(took);
        if !self.debounce.finish_reading(self.clock.elapsed(), &after, failed) {
            return Next::Unchanged;
        }
        let differs = fingerprint != self.seen;
        self.seen = fingerprint;
        let is_forced = std::mem::take(&mut self.is_forced);
        if differs || is_forced { Next::Read(contents) } else { Next::Unchanged }
    }
}

/// Wakes the thread of a follower.
#[derive(Clone, Debug, Default)]
pub struct Control(Arc<Signals>);

#[derive(Debug, Default)]
struct Signals {
    signal: Mutex<Option<Signal>>,
    raised: Condvar,
}

/// If both are raised, the later one in this list wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Signal {
    Read,
    Stop,
}

impl Control {
    /// Reads the files now, even if they have not changed.
    pub fn read_now(&self) {
        self.raise(Signal::Read);
    }

    /// Stops the follower; a poll in progress is not awaited.
    pub fn stop(&self) {
        self.raise(Signal::Stop);
    }

    fn raise(&self, signal: Signal) {
        let mut raised = self.0.signal.lock();
        *raised = (*raised).max(Some(signal));
        self.0.raised.notify_all();
    }

    /// Takes the signal, waiting for one; `None` after `time`.
    fn wait(&self, time: Duration) -> Option<Signal> {
        let mut raised = self.0.signal.lock();
        self.0.raised.wait_while_for(&mut raised, |raised| raised.is_none(), time);
        if *raised == Some(Signal::Stop) { *raised } else { raised.take() }
    }
}

#[cfg(test)]
mod tests;
