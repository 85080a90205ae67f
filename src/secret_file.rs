//! Files that hold one secret, such as a password.

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// As many bytes as any secret has.
const BYTES_MAX: u64 = 4_096;

/// What a file holds now, without the line end that it ends with.
///
/// # Errors
/// It cannot be read, or is longer than 4,096 bytes; for people, and without any of its contents.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, String> {
    let wrong = |what: &str| format!("{}: {what}", path.display());
    let file = File::open(path).map_err(|error| wrong(&error.to_string()))?;
    let mut bytes = Vec::new();
    let read = file.take(BYTES_MAX + 1).read_to_end(&mut bytes);
    read.map_err(|error| wrong(&error.to_string()))?;
    if bytes.len() as u64 > BYTES_MAX {
        return Err(wrong(&format!("is longer than {BYTES_MAX} bytes")));
    }
    let line = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
    let line = line.strip_suffix(b"\r").unwrap_or(line).len();
    bytes.truncate(line);
    Ok(bytes)
}
