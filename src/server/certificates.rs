//! Certificates that change: read again without a restart.
//!
//! The files are looked at, not watched: symlinks may lead to them over many folders, and whoever
//! renews certificates does not mind a second.

use std::io;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use super::tls::Tls;
use crate::rules::parse::Stamp;
use crate::settings::Secured;

/// How often the files are looked at.
const LOOK: Duration = Duration::from_secs(1);

/// The state of a port's files.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Stamps(Vec<Stamp>);

impl Stamps {
    /// The state now.
    pub(super) fn of(secured: &Secured) -> Self {
        let files = [Some(&secured.own.cert), Some(&secured.own.key), secured.client_ca.as_ref()];
        Self(files.into_iter().flatten().map(|file| Stamp::of(file)).collect())
    }
}

/// Follows the files of a port on a thread of its own, for as long as the port is served; `read`
/// is their state before they were read.
///
/// # Errors
/// There is no thread to be had.
pub(super) fn follow(tls: &Arc<Tls>, read: Stamps) -> io::Result<()> {
    let watched = Arc::downgrade(tls);
    let name = format!("certs-{}", tls.secured().port);
    let look = move || look_again_and_again(&watched, read);
    thread::Builder::new().name(name).spawn(look).map(drop)
}

fn look_again_and_again(watched: &Weak<Tls>, mut read: Stamps) {
    let mut before = read.clone();
    let mut refused = None;
    loop {
        thread::sleep(LOOK);
        let Some(tls) = watched.upgrade() else { return };
        let now = Stamps::of(tls.secured());
        // What stood still since the last look: a certificate is changed before its key, or after.
        if now == before && now != read {
            let port = tls.secured().port;
            match tls.read_again() {
                Ok(()) => {
                    tracing::info!(port, "new certificates are in force for new connections");
                    read.clone_from(&now);
                }
                // Said once, but tried again: what was missing may be none of the files.
                Err(error) if refused.as_ref() != Some(&now) => {
                    tracing::error!(port, %error, "certificates were refused; those before stay");
                    tls.count_refusal();
                    refused = Some(now.clone());
                }
                Err(_again) => {}
            }
        }
        before = now;
    }
}
