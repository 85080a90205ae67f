//! Files that contain one secret, such as a password.
//!
//! Secrets come from files and never from flags or variables, which other users of the machine and
//! crash reports can read. One trailing line end is removed, because editors and `echo` add it.
//! Messages name the path and never the contents.

use std::path::Path;

use crate::file;

/// The longest secret, in bytes.
const BYTES_MAX: u64 = 4_096;

/// The contents of a file, without a trailing line end.
///
/// # Errors
/// It cannot be read, or is longer than 4,096 bytes. The text is for people and contains no part of
/// the secret.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, String> {
    let wrong = |error| format!("{}: {error}", path.display());
    let mut bytes = file::read(path, BYTES_MAX).map_err(wrong)?;
    let line = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
    let line = line.strip_suffix(b"\r").unwrap_or(line).len();
    bytes.truncate(line);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_secret_is_read_without_its_line_end_and_never_repeated() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        assert!(read(&path).unwrap_err().contains("No such file"));
        for text in ["hunter2", "hunter2\n", "hunter2\r\n"] {
            fs::write(&path, text).unwrap();
            assert_eq!(read(&path).unwrap(), b"hunter2");
        }
        fs::write(&path, "hunter2".repeat(1_000)).unwrap();
        let error = read(&path).unwrap_err();
        assert!(
            error.contains("is longer than 4096 bytes") && !error.contains("hunter"),
            "{error}"
        );
    }
}
