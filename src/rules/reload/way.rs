//! The way to a file or folder, through symlinks: what could make it lead elsewhere.

use std::collections::{HashSet, VecDeque};
use std::ffi::OsString;
use std::fs;
use std::path::{Component, Path, PathBuf};

/// The most symlinks on one way, as Linux has it.
const LINKS_MAX: usize = 40;

/// Where a path leads now. All paths here are free of symlinks but in their last step.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Way {
    /// What the way depends on, each in its folder: the symlinks on the way, and its last step. Where
    /// a step is missing, it is the last one.
    pub(super) steps: HashSet<PathBuf>,
    /// What it leads to, whether or not that is there.
    pub(super) end: PathBuf,
}

impl Way {
    /// The way of an absolute path.
    pub(super) fn of(path: &Path) -> Self {
        let mut steps = HashSet::new();
        let mut at = PathBuf::from("/");
        let mut ahead: VecDeque<OsString> = parts(path).collect();
        let mut links = 0;
        while let Some(part) = ahead.pop_front() {
            if part == ".." {
                at.pop();
                continue;
            }
            let step = at.join(part);
            match fs::symlink_metadata(&step) {
                Ok(found) if found.is_symlink() && links < LINKS_MAX => {
                    links += 1;
                    let target = fs::read_link(&step).unwrap_or_default();
                    if target.is_absolute() {
                        at = PathBuf::from("/");
                    }
                    parts(&target).rev().for_each(|part| ahead.push_front(part));
                    steps.insert(step);
                }
                Ok(found) if !found.is_symlink() => {
                    if ahead.is_empty() {
                        steps.insert(step.clone());
                    }
                    at = step;
                }
                // It is missing, or a circle.
                Ok(_) | Err(_) => {
                    let end = step.join(ahead.iter().collect::<PathBuf>());
                    steps.insert(step);
                    return Self { steps, end };
                }
            }
        }
        Self { steps, end: at }
    }
}

/// The parts of a path behind its root.
fn parts(path: &Path) -> impl DoubleEndedIterator<Item = OsString> {
    let parts = path.components().filter(|part| {
        !matches!(part, Component::RootDir | Component::CurDir | Component::Prefix(_))
    });
    parts.map(|part| part.as_os_str().to_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// Below a folder of the test's own: the steps and the end of the way of `path`.
    fn way(root: &Path, path: &str) -> (Vec<String>, String) {
        let Way { steps, end } = Way::of(&root.join(path));
        let short = |path: &Path| match path.strip_prefix(root) {
            Ok(below) => below.to_str().unwrap().to_owned(),
            Err(_) => "above".to_owned(),
        };
        let mut steps: Vec<_> = steps.iter().map(|step| short(step)).collect();
        steps.sort_unstable();
        (steps, short(&end))
    }

    #[test]
    fn a_way_depends_on_each_step_at_which_it_could_turn() {
        let folder = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(folder.path()).unwrap();
        fs::create_dir_all(root.join("v1/config")).unwrap();
        fs::write(root.join("v1/config/a.yaml"), "").unwrap();
        symlink("v1", root.join("current")).unwrap();
        symlink(root.join("current/config/a.yaml"), root.join("link.yaml")).unwrap();
        symlink("round", root.join("round")).unwrap();
        symlink("v1/../v1/gone", root.join("dangling")).unwrap();
        for (path, steps, end) in [
            ("v1/config", &["v1/config"][..], "v1/config"),
            ("v1/config/a.yaml", &["v1/config/a.yaml"], "v1/config/a.yaml"),
            ("current/config", &["current", "v1/config"], "v1/config"),
            ("link.yaml", &["current", "link.yaml", "v1/config/a.yaml"], "v1/config/a.yaml"),
            ("v1/new/deep/a.yaml", &["v1/new"], "v1/new/deep/a.yaml"),
            ("dangling", &["dangling", "v1/gone"], "v1/gone"),
            ("round", &["round"], "round"),
        ] {
            let expected = (steps.iter().map(ToString::to_string).collect(), end.to_owned());
            assert_eq!(way(&root, path), expected, "{path}");
        }
    }
}
