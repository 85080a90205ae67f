//! The way to a file or folder, through symlinks: where a change could make it lead elsewhere.

use std::collections::{HashSet, VecDeque};
use std::ffi::OsString;
use std::fs;
use std::path::{Component, Path, PathBuf};

/// The most symlinks on one way, as Linux has it.
const LINKS_MAX: usize = 40;

/// Where a path leads now. All paths here are free of symlinks.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Way {
    /// The folders whose entries it depends on: its own, and those of the symlinks on the way. Where
    /// a folder is missing, the one in which it would be made.
    pub(super) folders: HashSet<PathBuf>,
    /// What it leads to, whether or not that is there.
    pub(super) end: PathBuf,
}

impl Way {
    /// The way of an absolute path.
    pub(super) fn of(path: &Path) -> Self {
        let mut folders = HashSet::new();
        let mut at = PathBuf::from("/");
        let mut ahead: VecDeque<OsString> = steps(path).collect();
        let mut links = 0;
        while let Some(step) = ahead.pop_front() {
            if step == ".." {
                at.pop();
                continue;
            }
            let next = at.join(&step);
            match fs::read_link(&next) {
                Ok(target) if links < LINKS_MAX => {
                    links += 1;
                    folders.insert(at.clone());
                    if target.is_absolute() {
                        at = PathBuf::from("/");
                    }
                    steps(&target).rev().for_each(|step| ahead.push_front(step));
                }
                Ok(_) | Err(_) => {
                    if ahead.is_empty() || !next.exists() {
                        folders.insert(at.clone());
                    }
                    if !next.exists() {
                        return Self { folders, end: next.join(ahead.iter().collect::<PathBuf>()) };
                    }
                    at = next;
                }
            }
        }
        Self { folders, end: at }
    }
}

/// The parts of a path behind its root.
fn steps(path: &Path) -> impl DoubleEndedIterator<Item = OsString> {
    let parts = path.components().filter(|part| {
        !matches!(part, Component::RootDir | Component::CurDir | Component::Prefix(_))
    });
    parts.map(|part| part.as_os_str().to_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// Below a folder of the test's own: the folders and the end of the way of `path`.
    fn way(root: &Path, path: &str) -> (Vec<String>, String) {
        let Way { folders, end } = Way::of(&root.join(path));
        let short = |path: &Path| match path.strip_prefix(root) {
            Ok(below) => below.to_str().unwrap().to_owned(),
            Err(_) => "above".to_owned(),
        };
        let mut folders: Vec<_> = folders.iter().map(|folder| short(folder)).collect();
        folders.sort_unstable();
        (folders, short(&end))
    }

    #[test]
    fn a_way_depends_on_each_folder_in_which_it_could_turn() {
        let folder = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(folder.path()).unwrap();
        fs::create_dir_all(root.join("v1/config")).unwrap();
        fs::write(root.join("v1/config/a.yaml"), "").unwrap();
        symlink("v1", root.join("current")).unwrap();
        symlink(root.join("current/config/a.yaml"), root.join("link.yaml")).unwrap();
        symlink("round", root.join("round")).unwrap();
        symlink("v1/../v1/gone", root.join("dangling")).unwrap();
        for (path, folders, end) in [
            ("v1/config", &["v1"][..], "v1/config"),
            ("v1/config/a.yaml", &["v1/config"], "v1/config/a.yaml"),
            ("current/config", &["", "v1"], "v1/config"),
            ("link.yaml", &["", "v1/config"], "v1/config/a.yaml"),
            ("v1/new/deep/a.yaml", &["v1"], "v1/new/deep/a.yaml"),
            ("dangling", &["", "v1"], "v1/gone"),
        ] {
            let expected = (folders.iter().map(ToString::to_string).collect(), end.to_owned());
            assert_eq!(way(&root, path), expected, "{path}");
        }
        assert_eq!(way(&root, "round").0, [""], "a circle has an end");
    }
}
