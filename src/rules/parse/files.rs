//! From a path to the texts of limits files: the only IO of the rules.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::errors::{LoadErrors, Report};
use super::yaml::Position;

/// The largest limits file.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// The most limits files in a folder.
const FILES_MAX: usize = 10_000;

/// The limits files at a path with their texts; those that cannot be read are reported.
pub(super) fn read(path: &Path, errors: &mut LoadErrors) -> Vec<(PathBuf, String)> {
    let paths = match list(path) {
        Ok(paths) => paths,
        Err(message) => {
            errors.add_whole(path, message);
            return vec![];
        }
    };
    paths.into_iter().filter_map(|file| read_file(file, errors)).collect()
}

fn list(path: &Path) -> Result<Vec<PathBuf>, String> {
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
    let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
    let yaml = path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml");
    yaml && !hidden && !path.is_dir()
}

fn read_file(file: PathBuf, errors: &mut LoadErrors) -> Option<(PathBuf, String)> {
    let mut bytes = vec![];
    let read = File::open(&file).and_then(|f| f.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes));
    if let Err(error) = read {
        errors.add_whole(&file, unreadable(error));
        return None;
    }
    if u64::try_from(bytes.len()).is_ok_and(|length| length > FILE_BYTES_MAX) {
        errors.add_whole(&file, format!("larger than the most, {FILE_BYTES_MAX} bytes"));
        return None;
    }
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
        let mut errors = LoadErrors::default();
        let files = read(folder, &mut errors);
        assert_eq!(errors.count(), 0, "{errors}");
        files.iter().map(|(file, _)| file.file_name().unwrap().display().to_string()).collect()
    }

    fn mistakes(path: &Path) -> Vec<String> {
        let mut errors = LoadErrors::default();
        read(path, &mut errors);
        let strip = |text: &str| text.replace(&path.display().to_string(), "P");
        errors.iter().map(|error| strip(&error.to_string())).collect()
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
}
