//! Detects which followed files a program has open for writing.
//!
//! Metadata does not show it, so inotify watches the folders of the files: a file counts as open
//! from the first write until it is closed, moved or removed. This is a hint only. Without inotify
//! (no instance left, a network mount, more than `FOLDERS_MAX` folders) no file counts as open, and
//! files are read when their metadata stays the same. Watching folders rather than files also
//! covers a file that is just being created.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::inotify::{self, CreateFlags, Event, ReadFlags, Reader, WatchFlags};

/// The most folders that are watched; symlinks may lead to many.
const FOLDERS_MAX: usize = 256;

/// The most files recorded as open, followed or not.
const OPEN_MAX: usize = 10_000;

/// The most events per poll: the kernel's default queue length.
const EVENTS_MAX: usize = 16_384;

/// The size of the read buffer; the longest event needs 272 bytes.
const BUFFER_BYTES: usize = 4_096;

/// Watches for programs that write to followed files.
pub(super) struct Writers {
    inotify: Option<OwnedFd>,
    /// By watch descriptor; without symlinks.
    folders: HashMap<i32, PathBuf>,
    /// The followed files, without symlinks.
    files: HashSet<PathBuf>,
    open: HashSet<PathBuf>,
}

impl Writers {
    pub(super) fn new() -> Self {
        let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC);
        if let Err(error) = &inotify {
            tracing::warn!(
                %error,
                "inotify does not work: files that stand still are read even if they are open for writing"
            );
        }
        Self {
            inotify: inotify.ok(),
            folders: HashMap::new(),
            files: HashSet::new(),
            open: HashSet::new(),
        }
    }

    /// Watches the folders of these paths after resolving symlinks, the first ones if there are too
    /// many. Must be called when a poll differs from the one before: a path may then lead
    /// elsewhere.
    pub(super) fn follow<'p>(&mut self, paths: impl Iterator<Item = &'p Path>) {
        let Some(inotify) = &self.inotify else { return };
        let files: Vec<_> = paths.map(resolved).collect();
        let folder = |file| if Path::is_dir(file) { Some(file) } else { file.parent() };
        let mut wanted = HashSet::new();
        let mut folders = HashMap::new();
        for folder in files.iter().filter_map(|file| folder(file)) {
            if wanted.len() >= FOLDERS_MAX || !wanted.insert(folder) {
                continue;
            }
            // A folder that is already watched keeps its descriptor.
            if let Ok(watch) = inotify::add_watch(inotify, folder, watched_events()) {
                folders.insert(watch, folder.to_owned());
            }
        }
        for watch in self.folders.keys().filter(|watch| !folders.contains_key(watch)) {
            // Fails for a folder that was removed, whose watch the kernel removed.
            let _ = inotify::remove_watch(inotify, *watch);
        }
        self.open.retain(|file| file.parent().is_some_and(|folder| wanted.contains(folder)));
        self.folders = folders;
        self.files = files.into_iter().collect();
    }

    /// Whether a followed file is open for writing.
    pub(super) fn any(&mut self) -> bool {
        if let Some(inotify) = &self.inotify {
            let mut buffer = [MaybeUninit::uninit(); BUFFER_BYTES];
            let mut events = Reader::new(inotify, &mut buffer);
            for _ in 0..EVENTS_MAX {
                // No more events, or the read failed.
                let Ok(event) = events.next() else { break };
                note(&mut self.open, &self.folders, &event);
            }
        }
        self.open.iter().any(|file| self.files.contains(file))
    }
}

fn note(open: &mut HashSet<PathBuf>, folders: &HashMap<i32, PathBuf>, event: &Event<'_>) {
    if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
        // Events were lost: files recorded as open may have been closed.
        open.clear();
    }
    let (Some(folder), Some(name)) = (folders.get(&event.wd()), event.file_name()) else { return };
    let file = folder.join(OsStr::from_bytes(name.to_bytes()));
    if !event.events().contains(ReadFlags::MODIFY) {
        open.remove(&file);
    } else if open.len() < OPEN_MAX {
        open.insert(file);
    }
}

/// Writes, and the events that end them.
fn watched_events() -> WatchFlags {
    WatchFlags::MODIFY
        | WatchFlags::CLOSE_WRITE
        | WatchFlags::MOVED_FROM
        | WatchFlags::MOVED_TO
        | WatchFlags::DELETE
        | WatchFlags::ONLYDIR
}

/// The path without symlinks; for a missing file, its folder is resolved.
fn resolved(path: &Path) -> PathBuf {
    let missing = || {
        let name = path.file_name()?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        Some(fs::canonicalize(folder.unwrap_or(Path::new("."))).ok()?.join(name))
    };
    fs::canonicalize(path).ok().or_else(missing).unwrap_or_else(|| path.to_owned())
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_followed_file_is_open_from_the_first_write_until_it_is_closed_moved_or_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let mut writers = Writers::new();
        writers.follow([path("a"), path("b")].iter().map(PathBuf::as_path));
        let write = |name: &str| {
            let mut file = File::create(path(name)).unwrap();
            file.write_all(b"x").unwrap();
            file
        };
        let other = write("other");
        assert!(!writers.any(), "another file in the folder");
        let a = write("a");
        assert!(writers.any());
        drop(a);
        assert!(!writers.any(), "closed");
        let (a, b) = (write("a"), write("b"));
        fs::rename(path("a"), path("moved")).unwrap();
        assert!(writers.any(), "b is still there");
        fs::remove_file(path("b")).unwrap();
        assert!(!writers.any(), "moved and removed");
        drop((a, b, other));
    }

    #[test]
    fn an_open_file_is_found_under_every_path_and_folder() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for version in ["v1", "v2"] {
            fs::create_dir(path(version)).unwrap();
            fs::write(path(version).join("a"), "x").unwrap();
        }
        symlink("v1", path("current")).unwrap();
        let followed = path("current/a");
        let mut writers = Writers::new();
        let follow = |writers: &mut Writers| writers.follow([followed.as_path()].into_iter());
        follow(&mut writers);
        let file = File::create(path("v1/a")).unwrap();
        assert!(writers.any(), "truncated");
        fs::remove_file(path("current")).unwrap();
        symlink("v2", path("current")).unwrap();
        follow(&mut writers);
        assert!(!writers.any(), "it leads elsewhere");
        drop(file);
        let file = File::create(path("v2/a")).unwrap();
        assert!(writers.any());
        // Following the same folder again keeps the recorded state.
        follow(&mut writers);
        assert!(writers.any());
        fs::remove_dir_all(path("v2")).unwrap();
        fs::create_dir(path("v2")).unwrap();
        follow(&mut writers);
        let new = File::create(path("v2/a")).unwrap();
        (&new).write_all(b"x").unwrap();
        drop(file);
        assert!(writers.any(), "in a folder made again");
        drop(new);
        assert!(!writers.any());
    }
}
