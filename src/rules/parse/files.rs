//! Reads the limits files at a path. All IO of the rules is in this file.
//!
//! A path is a file, or a folder whose `*.yaml` and `*.yml` are read, not recursively. Hidden files
//! are skipped, since Kubernetes keeps the versions of a ConfigMap in hidden folders and links to
//! them. Sizes and counts are bounded. [`Files::hash`] identifies the contents, so that operators
//! can compare replicas.

use std::fmt::Write;
use std::fs;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use sha2::{Digest, Sha256};

use super::errors::{LoadErrors, Position, Report};
use crate::file;

/// The largest limits file, in bytes.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// The most limits files in a folder.
const FILES_MAX: usize = 10_000;

/// The hexadecimal digits of a hash that are printed.
const HASH_DIGITS: usize = 16;

/// The limits files at a path, and errors about those that could not be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files {
    pub(super) texts: Vec<(PathBuf, String)>,
    pub(super) errors: LoadErrors,
    /// Computed when it is first asked for.
    hash: OnceLock<String>,
}

impl Files {
    /// Reads a file, or all `*.yaml` and `*.yml` directly in a folder.
    pub fn read(path: &Path) -> Self {
        let mut errors = LoadErrors::default();
        let paths = list(path).unwrap_or_else(|message| {
            errors.add_whole(path, message);
            vec![]
        });
        let texts = paths.into_iter().filter_map(|file| read_file(file, &mut errors)).collect();
        Self { texts, errors, hash: OnceLock::new() }
    }

    /// Reads one limits file from a stream, such as standard input.
    pub fn read_from(name: &Path, stream: impl Read) -> Self {
        let mut errors = LoadErrors::default();
        let mut bytes = Vec::new();
        let read = stream.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes);
        let is_too_large = bytes.len() as u64 > FILE_BYTES_MAX;
        let too_large = || Err(ErrorKind::FileTooLarge.into());
        let read = read.and_then(|_| if is_too_large { too_large() } else { Ok(bytes) });
        let texts = text_of(name.to_owned(), read, &mut errors).into_iter().collect();
        Self { texts, errors, hash: OnceLock::new() }
    }

    /// The text of a file, if it was read.
    pub fn text(&self, path: &Path) -> Option<&str> {
        self.texts.iter().find(|(file, _)| file == path).map(|(_, text)| text.as_str())
    }

    /// The paths of the files.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.texts.iter().map(|(path, _)| path.as_path())
    }

    /// The files that could not be read.
    pub const fn errors(&self) -> &LoadErrors {
        &self.errors
    }

    /// A hash of the contents and the files' names, but not the folder: equal on all replicas with
    /// the same limits.
    pub fn hash(&self) -> &str {
        self.hash.get_or_init(|| hash(&self.texts))
    }
}

fn hash(texts: &[(PathBuf, String)]) -> String {
    let mut hash = Sha256::new();
    for (path, text) in texts {
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        for part in [name, text.as_bytes()] {
            hash.update(part.len().to_le_bytes());
            hash.update(part);
        }
    }
    let mut digits = String::new();
    for byte in hash.finalize().iter().take(HASH_DIGITS / 2) {
        // Writing to a string never fails.
        let _ = write!(digits, "{byte:02x}");
    }
    digits
}

/// The path itself, and if it is a folder, all files in it that are named like limits files: the
/// paths to poll for changes.
pub fn candidates(path: &Path) -> Vec<PathBuf> {
    let mut paths = vec![path.to_owned()];
    // A file cannot be listed.
    paths.extend(named_as_limits(path).into_iter().flatten().filter_map(Result::ok));
    paths
}

/// The limits files at a path.
///
/// # Errors
/// There are none, or too many, or the path cannot be read. The text is for people.
fn list(path: &Path) -> Result<Vec<PathBuf>, String> {
    let metadata = fs::metadata(path).map_err(unreadable)?;
    if !metadata.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut paths = vec![];
    for file in named_as_limits(path).map_err(unreadable)? {
        // Symlinks are followed, because Kubernetes mounts configuration as symlinks. A dangling
        // one is kept, so that it is reported.
        paths.extend(Some(file.map_err(unreadable)?).filter(|file| !file.is_dir()));
    }
    paths.sort();
    match paths.len() {
        0 => Err("no *.yaml or *.yml in this folder".into()),
        1..=FILES_MAX => Ok(paths),
        more => Err(format!("{more} limits files are over the maximum, {FILES_MAX}")),
    }
}

/// Files in a folder that are named like limits files: `*.yaml` or `*.yml`, not hidden.
fn named_as_limits(folder: &Path) -> io::Result<impl Iterator<Item = io::Result<PathBuf>>> {
    let paths = fs::read_dir(folder)?.map(|entry| Ok(entry?.path()));
    Ok(paths.filter(|path| path.as_ref().map_or(true, |path| has_limits_name(path))))
}

fn has_limits_name(path: &Path) -> bool {
    let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
    let yaml = path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml");
    yaml && !hidden
}

fn read_file(file: PathBuf, errors: &mut LoadErrors) -> Option<(PathBuf, String)> {
    let bytes = file::read(&file, FILE_BYTES_MAX);
    text_of(file, bytes, errors)
}

fn text_of(
    file: PathBuf,
    bytes: io::Result<Vec<u8>>,
    errors: &mut LoadErrors,
) -> Option<(PathBuf, String)> {
    let bytes = match bytes {
        Ok(bytes) => bytes,
        Err(error) => {
            let message = if error.kind() == ErrorKind::FileTooLarge {
                format!("larger than the maximum, {FILE_BYTES_MAX} bytes")
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
    Position { line: text.matches('\n').count() + 1, column: last.chars().count() + 1, width: 1 }
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
    fn candidates_are_the_path_and_the_files_named_like_limits_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in ["a.yaml", "readme.md", ".hidden.yaml"] {
            fs::write(path(name), "x").unwrap();
        }
        std::os::unix::fs::symlink("nowhere", path("b.yml")).unwrap();
        let mut found = candidates(folder.path());
        found.sort();
        assert_eq!(found, ["", "a.yaml", "b.yml"].map(path));
        assert_eq!(candidates(&path("a.yaml")), [path("a.yaml")]);
        assert_eq!(candidates(&path("missing")), [path("missing")]);
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
    fn unreadable_files_are_mistakes() {
        let folder = tempfile::tempdir().unwrap();
        let missing = "cannot be read: no such file or directory (os error 2)";
        assert_eq!(mistakes(&folder.path().join("a.yaml")), [format!("P: {missing}")]);
        std::os::unix::fs::symlink("nowhere", folder.path().join("a.yaml")).unwrap();
        assert_eq!(mistakes(folder.path()), [format!("P/a.yaml: {missing}")]);
    }

    #[test]
    fn text_that_is_not_utf_8_is_reported_with_its_position() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.yaml");
        fs::write(&file, b"domain: edge\nx: \xff").unwrap();
        assert_eq!(mistakes(&file), ["P:2:4: not UTF-8"]);
    }

    #[test]
    fn a_hash_depends_on_the_contents_and_not_on_the_folder() {
        let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let hash = |folder: &tempfile::TempDir| Files::read(folder.path()).hash().to_owned();
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
