//! The operating system's events, as one state that is never larger than the files: what happened
//! since somebody looked, and which files are open for writing.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use notify::event::{AccessKind, AccessMode, Event, EventKind, ModifyKind, RemoveKind};
use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use parking_lot::{Condvar, Mutex};

use super::way::Way;
use crate::rules::parse::is_limits_file_name;

/// The most folders that are watched; symlinks may lead to many.
const FOLDERS_MAX: usize = 256;

/// How often folders are followed that change meanwhile.
const FOLLOWS_MAX: usize = 10;

/// The most files known to be open for writing.
const OPEN_FILES_MAX: usize = 1_000;

/// Only Linux tells when a file is closed by its writer.
const TELLS_CLOSE: bool = cfg!(target_os = "linux");

/// What is told to whoever waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Signal {
    /// Something may have changed.
    Change,
    /// Read, whether or not anything has changed.
    Force,
    /// Wait no more.
    End,
}

/// Where signals wait. Many of them are one.
#[derive(Debug)]
pub struct Notice {
    /// Absolute.
    path: PathBuf,
    state: Mutex<State>,
    told: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The most urgent one.
    signal: Option<Signal>,
    ours: Ours,
    /// Written to and not closed since.
    open: HashSet<PathBuf>,
    /// A watched folder may have been removed, and another one of its name made.
    folder_gone: bool,
}

/// What belongs to the limits; all paths are free of symlinks but in their last step.
#[derive(Debug, Default)]
struct Ours {
    /// The limits files.
    files: HashSet<PathBuf>,
    /// Where files are looked for, if they are.
    folder: Option<PathBuf>,
    /// What the ways there depend on, and the folders that this is in.
    ways: HashSet<PathBuf>,
}

impl Notice {
    /// `path` is absolute.
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, state: Mutex::default(), told: Condvar::new() }
    }

    /// Tells whoever waits.
    pub fn tell(&self, signal: Signal) {
        let mut state = self.state.lock();
        state.signal = state.signal.max(Some(signal));
        self.told.notify_all();
    }

    /// Takes what was told, once something is; `None` after `within`.
    pub(super) fn wait(&self, within: Duration) -> Option<Signal> {
        let mut state = self.state.lock();
        self.told.wait_while_for(&mut state, |state| state.signal.is_none(), within);
        // The end stays for the next who asks.
        if state.signal == Some(Signal::End) { state.signal } else { state.signal.take() }
    }

    /// Waits for so long; whether the end was told.
    pub(super) fn ends_within(&self, time: Duration) -> bool {
        let mut state = self.state.lock();
        let goes_on = |state: &mut State| state.signal != Some(Signal::End);
        !self.told.wait_while_for(&mut state, goes_on, time).timed_out()
    }

    /// Whether a file is being written in place.
    pub(super) fn any_open(&self) -> bool {
        !self.state.lock().open.is_empty()
    }

    /// Waits for no writer that has a file open now.
    pub(super) fn forget_open(&self) {
        self.state.lock().open.clear();
    }

    /// Notes what happened; whether it can have changed the limits.
    fn note(&self, event: &Event) -> bool {
        let mut state = self.state.lock();
        let concerns = |path: &PathBuf| state.ours.concerns(path);
        if !event.need_rescan() && !event.paths.is_empty() && !event.paths.iter().any(concerns) {
            return false;
        }
        if event.need_rescan() {
            // Some were lost: what was open may be closed.
            state.open.clear();
        }
        state.folder_gone |=
            matches!(event.kind, EventKind::Remove(kind) if kind != RemoveKind::File);
        for file in &event.paths {
            if closes(event) {
                state.open.remove(file);
            } else if writes(event) && state.open.len() < OPEN_FILES_MAX && state.ours.has(file) {
                state.open.insert(file.clone());
            }
        }
        true
    }
}

impl Ours {
    /// Whether it is a limits file.
    fn has(&self, file: &Path) -> bool {
        self.files.contains(file) || (self.is_in_folder(file) && is_limits_file_name(file))
    }

    /// Whether its change can change the limits.
    fn concerns(&self, path: &Path) -> bool {
        self.is_in_folder(path) || self.files.contains(path) || self.ways.contains(path)
    }

    fn is_in_folder(&self, path: &Path) -> bool {
        self.folder.is_some() && path.parent() == self.folder.as_deref()
    }
}

fn writes(event: &Event) -> bool {
    TELLS_CLOSE && matches!(event.kind, EventKind::Modify(ModifyKind::Data(_)))
}

/// What is moved or removed was whole before, or is nothing any more.
fn closes(event: &Event) -> bool {
    matches!(
        event.kind,
        EventKind::Access(AccessKind::Close(AccessMode::Write))
            | EventKind::Modify(ModifyKind::Name(_))
            | EventKind::Remove(_)
    )
}

/// Gets events, as far as there are any.
pub(super) struct Watch {
    notice: Arc<Notice>,
    watcher: Option<RecommendedWatcher>,
    /// By device and inode: a folder of the same name can be another one.
    folders: HashMap<PathBuf, (u64, u64)>,
    complete: bool,
}

impl Watch {
    pub(super) fn new(notice: Arc<Notice>) -> Self {
        let told = Arc::clone(&notice);
        let watcher = notify::recommended_watcher(move |event| on_event(&told, event));
        if let Err(error) = &watcher {
            tracing::warn!(%error, "no events tell of changed limits files; they are looked at");
        }
        Self { notice, watcher: watcher.ok(), folders: HashMap::new(), complete: false }
    }

    /// Whether all folders give events, or could if the file system does.
    pub(super) const fn is_complete(&self) -> bool {
        self.complete
    }

    /// Watches every folder whose change can change the files.
    pub(super) fn follow(&mut self) {
        for _ in 0..FOLLOWS_MAX {
            let wanted = self.look();
            let anew = std::mem::take(&mut self.notice.state.lock().folder_gone);
            self.complete = wanted.len() <= FOLDERS_MAX;
            // What changed in a folder before it was watched is looked for again.
            if !self.watch_only(wanted.into_iter().take(FOLDERS_MAX), anew) {
                return;
            }
        }
    }

    /// Finds the limits; the folders that are to be watched, the most important first.
    fn look(&self) -> Vec<PathBuf> {
        let Way { mut steps, end } = Way::of(&self.notice.path);
        let mut folders: Vec<PathBuf> = vec![];
        let mut ours = Ours::default();
        if end.is_dir() {
            folders.push(end.clone());
            for file in crate::rules::parse::list(&end).unwrap_or_default() {
                if !file.is_symlink() {
                    ours.files.insert(file);
                    continue;
                }
                let way = Way::of(&file);
                steps.extend(way.steps);
                ours.files.insert(way.end);
            }
            ours.folder = Some(end);
        } else {
            ours.files.insert(end);
        }
        let mut around: Vec<_> = steps.iter().filter_map(|step| step.parent()).collect();
        around.sort_unstable();
        around.dedup();
        let own = ours.folder.as_deref();
        folders
            .extend(around.into_iter().filter(|folder| Some(*folder) != own).map(Path::to_owned));
        ours.ways = steps;
        ours.ways.extend(folders.iter().cloned());
        self.notice.state.lock().ours = ours;
        folders
    }

    /// Watches these folders and no others; whether one of them was not watched before.
    fn watch_only(&mut self, wanted: impl Iterator<Item = PathBuf>, anew: bool) -> bool {
        let Some(watcher) = &mut self.watcher else {
            self.complete = false;
            return false;
        };
        let id = |folder: PathBuf| {
            let metadata = fs::metadata(&folder).ok().filter(fs::Metadata::is_dir)?;
            Some((folder, (metadata.dev(), metadata.ino())))
        };
        let wanted: HashMap<_, _> = wanted.filter_map(id).collect();
        self.folders.retain(|folder, id| {
            let stays = !anew && wanted.get(folder) == Some(id);
            if !stays {
                // One that is gone is watched no more.
                let _ = watcher.unwatch(folder);
            }
            stays
        });
        let mut is_new = false;
        for (folder, id) in wanted {
            if self.folders.contains_key(&folder) {
                continue;
            }
            match watcher.watch(&folder, RecursiveMode::NonRecursive) {
                Ok(()) => {
                    is_new = true;
                    self.folders.insert(folder, id);
                }
                Err(error) => {
                    self.complete = false;
                    tracing::debug!(%error, folder = %folder.display(), "a folder without events");
                }
            }
        }
        is_new
    }
}

fn on_event(notice: &Notice, event: notify::Result<Event>) {
    match event {
        Ok(event) if only_read(&event) || !notice.note(&event) => return,
        Ok(_noted) => {}
        Err(_lost) => notice.forget_open(),
    }
    notice.tell(Signal::Change);
}

/// Reading files, as this program does, gives events too.
fn only_read(event: &Event) -> bool {
    matches!(event.kind, EventKind::Access(kind) if kind != AccessKind::Close(AccessMode::Write))
}
