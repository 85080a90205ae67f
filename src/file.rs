//! Bounded reads of files that may be replaced at any moment while the service runs.
//!
//! A path from a flag can be replaced by a pipe, a folder or a huge file. Reading must neither
//! block nor use unbounded memory, so files are opened without blocking, checked to be regular, and
//! read up to a maximum.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

/// The contents of a file.
///
/// # Errors
/// It cannot be read, is longer than `bytes_max` ([`ErrorKind::FileTooLarge`]), or is not a regular
/// file: a pipe would block its reader for ever.
pub(crate) fn read(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let file = open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("is not a file, but a folder, a pipe or a device"));
    }
    let mut bytes = Vec::new();
    file.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        let message = format!("is longer than {bytes_max} bytes");
        return Err(io::Error::new(ErrorKind::FileTooLarge, message));
    }
    Ok(bytes)
}

/// Opens a path of any kind for reading, without blocking.
///
/// # Errors
/// It cannot be opened.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    // Without `O_NONBLOCK`, opening a pipe waits for a writer.
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).map_err(io::Error::other)?;
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rustix::fs::{CWD, Mode, mkfifoat};

    use super::*;

    #[test]
    fn only_regular_files_are_read_up_to_the_maximum() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "12345").unwrap();
        assert_eq!(read(&path, 5).unwrap(), b"12345");
        let too_long = read(&path, 4).unwrap_err();
        assert_eq!(too_long.kind(), ErrorKind::FileTooLarge);
        assert_eq!(too_long.to_string(), "is longer than 4 bytes");
        let pipe = folder.path().join("pipe");
        mkfifoat(CWD, &pipe, Mode::RWXU).unwrap();
        for none in [&*pipe, folder.path(), Path::new("/dev/zero")] {
            let error = read(none, 5).unwrap_err().to_string();
            assert!(error.contains("is not a file"), "{}: {error}", none.display());
        }
    }
}
