//! The metadata of followed files at one moment.
//!
//! Symlinks are followed, so a swapped symlink anywhere in a path shows as another inode. Times are
//! only compared for equality, so the clock of a file server does not matter. Files are read at
//! least 100 ms after their last change, so a later write within the same tick of the file system's
//! clock cannot be missed.

use std::collections::HashMap;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::file;

/// The most paths that are opened per poll, 100 files and their folder: a poll then takes 0.4 ms
/// instead of 0.2 ms.
const OPENED_MAX: usize = 101;

/// The state of files without their contents. If two are equal, nothing was written, replaced,
/// added or removed in between.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FilesState(Vec<(PathBuf, Option<Stat>)>);

/// The state of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stat {
    identity: Identity,
    size: u64,
    /// Seconds and nanoseconds.
    modified: (i64, i64),
    /// Seconds and nanoseconds; also changes with permissions and names.
    changed: (i64, i64),
}

/// Identifies a file under any name. Inodes are reused, often at once; the creation time then
/// differs, if the file system stores it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
    created: Option<SystemTime>,
}

impl FilesState {
    /// The current state of the files at these paths.
    pub(super) fn at(paths: Vec<PathBuf>) -> Self {
        let is_opened = paths.len() <= OPENED_MAX;
        let metadata = |path: &Path| if is_opened { opened(path) } else { fs::metadata(path) };
        let stat = |path: PathBuf| {
            let stat = metadata(&path).ok().map(|metadata| Stat::of(&metadata));
            (path, stat)
        };
        Self(paths.into_iter().map(stat).collect())
    }

    /// The polled paths.
    pub(super) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.0.iter().map(|(path, _)| path.as_path())
    }

    /// Whether a file was written in place since `before`, rather than replaced by another file.
    pub(super) fn is_written_in_place_since(&self, before: &Self) -> bool {
        let before: HashMap<_, _> = before.0.iter().map(|(path, stat)| (path, stat)).collect();
        self.0.iter().any(|(path, now)| match (now, before.get(path)) {
            (Some(now), Some(Some(before))) => now.identity == before.identity && now != before,
            _ => false,
        })
    }
}

/// The metadata of a file that is opened for it, because NFS asks its server only then
/// (close-to-open consistency, nfs(5)): otherwise, metadata may be a minute old.
fn opened(path: &Path) -> io::Result<Metadata> {
    // A file that may not be read still has metadata.
    file::open(path).and_then(|file| file.metadata()).or_else(|_unreadable| fs::metadata(path))
}

#[cfg(test)]
impl FilesState {
    /// A made-up state of one file: its inode, and the number of writes.
    pub(super) fn of_file(inode: u64, writes: i64) -> Self {
        let identity = Identity { device: 1, inode, created: None };
        let stat = Stat { identity, size: 1, modified: (writes, 0), changed: (writes, 0) };
        Self(vec![(PathBuf::from("file"), Some(stat))])
    }
}

impl Stat {
    /// Of a folder only its identity: its size and times also change with files that are not
    /// followed.
    fn of(metadata: &Metadata) -> Self {
        let created = metadata.created().ok();
        let identity = Identity { device: metadata.dev(), inode: metadata.ino(), created };
        if metadata.is_dir() {
            return Self { identity, size: 0, modified: (0, 0), changed: (0, 0) };
        }
        Self {
            identity,
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use rustix::fs::{CWD, Mode, mkfifoat};

    use super::*;

    #[test]
    fn a_poll_does_not_wait_for_a_pipe() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        let nothing = FilesState::at(vec![pipe.clone()]);
        mkfifoat(CWD, &pipe, Mode::RWXU).unwrap();
        assert_ne!(FilesState::at(vec![pipe]), nothing);
    }

    #[test]
    fn a_state_changes_with_every_change_of_the_files_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("a"), "x").unwrap();
        fs::create_dir(path("v1")).unwrap();
        fs::create_dir(path("v2")).unwrap();
        symlink("v1", path("current")).unwrap();
        let state = || FilesState::at(["", "a", "b", "current/c"].map(path).to_vec());
        let mut before = state();
        let mut changed = |what: &str, in_place: bool| {
            let now = state();
            assert_eq!(now != before, what != "nothing", "{what}");
            assert_eq!(now.is_written_in_place_since(&before), in_place, "{what}");
            before = now;
        };
        fs::write(path("notes"), "x").unwrap();
        changed("nothing", false);
        fs::write(path("a"), "xy").unwrap();
        changed("written in place", true);
        fs::write(path("new"), "xy").unwrap();
        fs::rename(path("new"), path("a")).unwrap();
        changed("replaced", false);
        fs::write(path("b"), "x").unwrap();
        changed("added", false);
        fs::write(path("v1/c"), "x").unwrap();
        changed("added behind a symlink", false);
        fs::write(path("v2/c"), "x").unwrap();
        changed("nothing", false);
        symlink("v2", path("new")).unwrap();
        fs::rename(path("new"), path("current")).unwrap();
        changed("another one behind a swapped symlink", false);
        fs::remove_file(path("a")).unwrap();
        changed("removed", false);
    }
}
