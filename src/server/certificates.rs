//! Certificates that change: read again without a restart.
//!
//! The files are looked at, not watched: symlinks may lead to them over many folders, and whoever
//! renews certificates does not mind a second.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, SystemTime};

use super::tls::Tls;

/// How often the files are looked at.
const LOOK: Duration = Duration::from_secs(1);

/// What tells that a file is another one, or another text; `None`: it cannot be read.
type Stamp = Vec<Option<(SystemTime, u64, u64)>>;

/// Follows the files of a port on a thread of its own, for as long as the port is served.
///
/// # Errors
/// There is no thread to be had.
pub(super) fn follow(tls: &Arc<Tls>) -> io::Result<()> {
    let watched = Arc::downgrade(tls);
    let first = stamp(tls);
    let name = format!("certs-{}", tls.secured().port);
    let look = move || look_again_and_again(&watched, first);
    thread::Builder::new().name(name).spawn(look).map(drop)
}

fn look_again_and_again(watched: &Weak<Tls>, mut read: Stamp) {
    let mut before = read.clone();
    loop {
        thread::sleep(LOOK);
        let Some(tls) = watched.upgrade() else { return };
        let now = stamp(&tls);
        // What stood still since the last look: a certificate is changed before its key, or after.
        if now == before && now != read {
            read_again(&tls);
            read.clone_from(&now);
        }
        before = now;
    }
}

fn read_again(tls: &Tls) {
    let port = tls.secured().port;
    match tls.read_again() {
        Ok(()) => tracing::info!(port, "new certificates are in force for new connections"),
        Err(error) => {
            tracing::error!(port, %error, "certificates were refused; those before stay");
        }
    }
}

fn stamp(tls: &Tls) -> Stamp {
    let secured = tls.secured();
    let files = [Some(&secured.own.cert), Some(&secured.own.key), secured.client_ca.as_ref()];
    files.into_iter().flatten().map(|file| stamp_of(file)).collect()
}

fn stamp_of(file: &Path) -> Option<(SystemTime, u64, u64)> {
    let metadata = file.metadata().ok()?;
    Some((metadata.modified().ok()?, metadata.len(), metadata.ino()))
}
