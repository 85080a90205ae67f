//! Files that are read again while the service runs: whatever stands in their place, reading ends.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

/// What a file holds.
///
/// # Errors
/// It cannot be read, is longer than `bytes_max` ([`ErrorKind::FileTooLarge`]), or is none: a pipe
/// would let its reader wait for ever.
pub(crate) fn read(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let file = open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("is no file, but a folder, a pipe or a device"));
    }
    let mut bytes = Vec::new();
    file.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        let message = format!("is longer than {bytes_max} bytes");
        return Err(io::Error::new(ErrorKind::FileTooLarge, message));
    }
    Ok(bytes)
}

/// Opens whatever is at the path for reading, without waiting.
///
/// # Errors
/// It cannot be opened.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    // Without it, opening a pipe waits for a writer.
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).map_err(io::Error::other)?;
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rustix::fs::{CWD, Mode, mkfifoat};

    use super::*;

    #[test]
    fn only_files_are_read_and_no_more_of_them_than_is_allowed() {
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
            assert!(error.contains("is no file"), "{}: {error}", none.display());
        }
    }
}
