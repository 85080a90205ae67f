//! Limits files that change: when to read them again.
//!
//! A change is noticed by the operating system's events on folders, never on files: what replaces a
//! file (`mv`, Kubernetes' symlink swap) gives events there each time, on the file itself only once.
//! Where there are no events (network file systems, some overlay mounts), the files' [`Stamp`] is
//! looked at now and then.
//!
//! What was noticed is read only when it stands still: its stamp is the same for `QUIET`, and no
//! file of it is open for writing, as far as the operating system tells. So a file that is being
//! written in place is not taken half, even where the half is good YAML and its writer pauses. What
//! is moved into place is whole at once, so files that are replaced without a pause are
//! read all the same. A reading during which anything changed is thrown away.

mod watch;
mod way;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::parse::{Files, LoadErrors, Stamp};
use crate::clock::Stopwatch;
use watch::Watch;
pub use watch::{Notice, Signal};

/// How long files must stand still before they are read.
const QUIET: Duration = Duration::from_millis(100);

/// How long files that never stand still are waited for, if none is open for writing.
const BUSY_MAX: Duration = Duration::from_millis(400);

/// How long a file may be open for writing before it is read as it is: its writer may have lost it.
const OPEN_MAX: Duration = Duration::from_secs(10);

/// How often stamps are looked at: with events from all folders, and without.
const LOOK: Duration = Duration::from_secs(10);
const LOOK_WITHOUT_EVENTS: Duration = Duration::from_secs(1);

/// Limits files as they change.
pub struct Changes {
    path: PathBuf,
    notice: Arc<Notice>,
    watch: Watch,
    /// As they were when they were read last; none before.
    stamp: Option<Stamp>,
    seen: (String, LoadErrors),
}

/// What came of waiting.
#[derive(Debug)]
pub enum Next {
    /// The files have other contents, or were asked for.
    Read(Files),
    /// Nothing to read.
    Nothing,
    /// Nobody wants more.
    End,
}

impl Changes {
    /// Watches a file or folder whose `files` were read before.
    ///
    /// # Errors
    /// The path cannot be made absolute.
    pub fn of(path: &Path, files: &Files) -> std::io::Result<Self> {
        let notice = Arc::new(Notice::new(std::path::absolute(path)?));
        // They may have changed between the first reading and the first watch.
        notice.tell(Signal::Change);
        let mut watch = Watch::new(Arc::clone(&notice));
        watch.follow();
        Ok(Self { path: path.to_owned(), notice, watch, stamp: None, seen: seen(files) })
    }

    /// What ends the waiting, and asks for files that have not changed.
    pub fn notice(&self) -> Arc<Notice> {
        Arc::clone(&self.notice)
    }

    /// Waits for files that are to be read, at most for so long.
    pub fn next(&mut self, within: Duration) -> Next {
        let look = if self.watch.is_complete() { LOOK } else { LOOK_WITHOUT_EVENTS };
        match self.notice.wait(within.min(look)) {
            Some(Signal::End) => return Next::End,
            Some(Signal::Force) => return self.read(true),
            // Whatever else happens in these folders, they are looked at ten times a second at most.
            Some(Signal::Change) => self.settle(),
            None if self.stamp.as_ref() == Some(&Stamp::of(&self.path)) => return Next::Nothing,
            None => self.settle(),
        }
        self.read(false)
    }

    /// Waits until the files stand still, or have been whole but moving for too long.
    fn settle(&self) {
        let watch = Stopwatch::start();
        loop {
            let before = Stamp::of(&self.path);
            if self.notice.ends_within(QUIET) {
                return;
            }
            let (spent, open) = (watch.elapsed(), self.notice.any_open());
            let still = before == Stamp::of(&self.path) || spent >= BUSY_MAX;
            if still && !open {
                return;
            }
            if spent >= OPEN_MAX {
                self.notice.forget_open();
                return;
            }
        }
    }

    fn read(&mut self, forced: bool) -> Next {
        // Watched before they are read: a change after this is noticed.
        self.watch.follow();
        let stamp = Stamp::of(&self.path);
        if !forced && self.stamp.as_ref() == Some(&stamp) {
            return Next::Nothing;
        }
        let files = Files::read(&self.path);
        if stamp != Stamp::of(&self.path) {
            self.notice.tell(if forced { Signal::Force } else { Signal::Change });
            return Next::Nothing;
        }
        self.stamp = Some(stamp);
        let seen = seen(&files);
        let differs = std::mem::replace(&mut self.seen, seen) != self.seen;
        if differs || forced { Next::Read(files) } else { Next::Nothing }
    }
}

/// What tells contents apart, without keeping them.
fn seen(files: &Files) -> (String, LoadErrors) {
    (files.hash(), files.errors().clone())
}
