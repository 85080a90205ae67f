//! From a path to the texts of limits files: the only IO of the rules.

use std::fmt::Write;
use std::fs::{self, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::errors::{LoadErrors, Report};
use super::yaml::Position;
use crate::file;

/// The largest limits file.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// The most limits files in a folder.
const FILES_MAX: usize = 10_000;

/// The hexadecimal digits of a hash that are shown.
const HASH_DIGITS: usize = 16;

/// What was read at a path: the limits files, and what could not be read of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files {
    pub(super) texts: Vec<(PathBuf, String)>,
    pub(super) errors: LoadErrors,
}

/// The state of the files at a path, without their contents: where it is the same at two moments,
/// nothing was written, replaced, added or removed between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamp(Vec<(PathBuf, Option<FileStamp>)>);

/// Device, inode, size, and when it was changed last in seconds and nanoseconds.
type FileStamp = (u64, u64, u64, i64, i64);

impl Files {
    /// Reads a file, or all `*.yaml` and `*.yml` directly in a folder.
    pub fn read(path: &Path) -> Self {
        let mut errors = LoadErrors::default();
        let paths = list(path).unwrap_or_else(|message| {
            errors.add_whole(path, message);
            vec![]
        });
        let texts = paths.into_iter().filter_map(|file| read_file(file, &mut errors)).collect();
        Self { texts, errors }
    }

    /// Where they are.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.texts.iter().map(|(path, _)| path.as_path())
    }

    /// What could not be read.
    pub const fn errors(&self) -> &LoadErrors {
        &self.errors
    }

    /// Names the contents, and the files' names, but not the folder: equal on all replicas that
    /// have the same limits.
    pub fn hash(&self) -> String {
        let mut hash = Sha256::new();
        for (path, text) in &self.texts {
            let name = path.file_name().unwrap_or_default().as_encoded_bytes();
            for part in [name, text.as_bytes()] {
                hash.update(part.len().to_le_bytes());
                hash.update(part);
            }
        }
        let mut digits = String::new();
        for byte in hash.finalize().iter().take(HASH_DIGITS / 2) {
            // Writing to a text never fails.
            let _ = write!(digits, "{byte:02x}");
        }
        digits
    }
}

impl Stamp {
    /// The state now.
    pub fn of(path: &Path) -> Self {
        let mut paths = list(path).unwrap_or_default();
        // A folder's own: that of one which was replaced, too.
        paths.push(path.to_owned());
        let stamp = |path: PathBuf| {
            let stamp = fs::metadata(&path).ok().map(|metadata| of_metadata(&metadata));
            (path, stamp)
        };
        Self(paths.into_iter().map(stamp).collect())
    }
}

/// A folder's size and time also change with files that are none of ours.
fn of_metadata(metadata: &Metadata) -> FileStamp {
    let (device, inode) = (metadata.dev(), metadata.ino());
    if metadata.is_dir() {
        return (device, inode, 0, 0, 0);
    }
    (device, inode, metadata.size(), metadata.ctime(), metadata.ctime_nsec())
}

/// The limits files at a path.
///
/// # Errors
/// There is none, or too many, or the path cannot be read; what is wrong, for people.
pub(in crate::rules) fn list(path: &Path) -> Result<Vec<PathBuf>, String> {
    let metadata = fs::metadata(path).map_err(unreadable)?;
    if !metadata.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut paths = vec![];
    for entry in fs::read_dir(path).map_err(unreadable)? {
        let file = entry.map_err(unreadable)?.path();
        if is_limits_file(&file) {
            paths.push(file);
        }
    }
    paths.sort();
    match paths.len() {
        0 => Err("no *.yaml or *.yml in this folder".into()),
        1..=FILES_MAX => Ok(paths),
        more => Err(format!("{more} limits files are over the most, {FILES_MAX}")),
    }
}

/// By name; what a symlink leads to decides, for Kubernetes mounts configuration as symlinks. One
/// that leads nowhere counts, so that it is reported.
fn is_limits_file(path: &Path) -> bool {
    is_limits_file_name(path) && !path.is_dir()
}

/// Whether a file of that name in a folder is read.
pub(in crate::rules) fn is_limits_file_name(path: &Path) -> bool {
    let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
    let yaml = path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml");
    yaml && !hidden
}

fn read_file(file: PathBuf, errors: &mut LoadErrors) -> Option<(PathBuf, String)> {
    let bytes = match file::read(&file, FILE_BYTES_MAX) {
        Ok(bytes) => bytes,
        Err(error) => {
            let message = if error.kind() == ErrorKind::FileTooLarge {
                format!("larger than the most, {FILE_BYTES_MAX} bytes")
            } else {
                unreadable(error)
            };
            errors.add_whole(&file, message);
            return None;
        }
    };
    match String::from_utf8(bytes) {
        Ok(text) => Some((file, text)),
        Err(error) => {
            let (valid, _) = error.as_bytes().split_at(error.utf8_error().valid_up_to());
            let at = end_of(&String::from_utf8_lossy(valid));
            Report { file: &file, errors }.add(at, "not UTF-8");
            None
        }
    }
}

fn end_of(text: &str) -> Position {
    let last = text.rsplit('\n').next().unwrap_or(text);
    Position { line: text.matches('\n').count() + 1, column: last.chars().count() + 1 }
}

fn unreadable(error: io::Error) -> String {
    format!("cannot be read: {}", error.to_string().to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let files = Files::read(folder);
        assert_eq!(files.errors.count(), 0, "{}", files.errors);
        files.paths().map(|file| file.file_name().unwrap().display().to_string()).collect()
    }

    fn mistakes(path: &Path) -> Vec<String> {
        let files = Files::read(path);
        let strip = |text: &str| text.replace(&path.display().to_string(), "P");
        files.errors.iter().map(|error| strip(&error.to_string())).collect()
    }

    #[test]
    fn a_folder_is_its_yaml_files_sorted_by_name() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["b.yml", "a.yaml", "readme.md", ".hidden.yaml", "c.yaml.swp"] {
            fs::write(folder.path().join(name), "x").unwrap();
        }
        fs::create_dir(folder.path().join("d.yaml")).unwrap();
        assert_eq!(names(folder.path()), ["a.yaml", "b.yml"]);
    }

    #[test]
    fn a_mounted_config_map_is_read_once_through_its_symlinks() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("..2026_01_01");
        fs::create_dir(&data).unwrap();
        fs::write(data.join("edge.yaml"), "x").unwrap();
        std::os::unix::fs::symlink("..2026_01_01", folder.path().join("..data")).unwrap();
        std::os::unix::fs::symlink("..data/edge.yaml", folder.path().join("edge.yaml")).unwrap();
        assert_eq!(names(folder.path()), ["edge.yaml"]);
    }

    #[test]
    fn a_folder_without_limits_files_is_a_mistake() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(mistakes(folder.path()), ["P: no *.yaml or *.yml in this folder"]);
    }

    #[test]
    fn what_cannot_be_read_is_a_mistake() {
        let folder = tempfile::tempdir().unwrap();
        let missing = "cannot be read: no such file or directory (os error 2)";
        assert_eq!(mistakes(&folder.path().join("a.yaml")), [format!("P: {missing}")]);
        std::os::unix::fs::symlink("nowhere", folder.path().join("a.yaml")).unwrap();
        assert_eq!(mistakes(folder.path()), [format!("P/a.yaml: {missing}")]);
    }

    #[test]
    fn text_that_is_not_utf_8_is_pointed_at() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.yaml");
        fs::write(&file, b"domain: edge\nx: \xff").unwrap();
        assert_eq!(mistakes(&file), ["P:2:4: not UTF-8"]);
    }

    #[test]
    fn a_stamp_changes_with_whatever_happens_to_the_files_and_with_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("a.yaml"), "x").unwrap();
        let mut before = Stamp::of(folder.path());
        let mut changed = |what: &str| {
            let now = Stamp::of(folder.path());
            let changed = now != before;
            before = now;
            assert_eq!(changed, what != "nothing", "{what}");
        };
        fs::write(path("notes.txt"), "x").unwrap();
        changed("nothing");
        fs::write(path("a.yaml"), "xy").unwrap();
        changed("written");
        fs::write(path("new"), "xy").unwrap();
        fs::rename(path("new"), path("a.yaml")).unwrap();
        changed("replaced");
        fs::write(path("b.yaml"), "x").unwrap();
        changed("added");
        fs::remove_file(path("a.yaml")).unwrap();
        changed("removed");
    }

    #[test]
    fn a_hash_names_contents_and_not_their_place() {
        let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let hash = |folder: &tempfile::TempDir| Files::read(folder.path()).hash();
        for folder in &folders {
            fs::write(folder.path().join("a.yaml"), "x").unwrap();
        }
        let same = hash(&folders[0]);
        assert_eq!((same.len(), &same), (HASH_DIGITS, &hash(&folders[1])));
        fs::rename(folders[1].path().join("a.yaml"), folders[1].path().join("b.yaml")).unwrap();
        assert_ne!(same, hash(&folders[1]));
        fs::write(folders[0].path().join("a.yaml"), "y").unwrap();
        assert_ne!(same, hash(&folders[0]));
    }
}
