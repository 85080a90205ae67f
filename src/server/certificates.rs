//! Reloads the certificates of a port when their files change.
//!
//! One thread per port with TLS follows its certificate, key and client authorities. They are read
//! together once none of them has changed for a while, because a certificate and its key are two
//! files that change one after the other. Unusable files are refused, logged and counted once per
//! contents, and the old ones stay in use. New ones apply to new connections.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use super::tls::{PortFiles, Tls};
use crate::follow::{Fingerprint, Follower, Next, Source};
use crate::settings::Secured;

/// How long the files must be unchanged before they are read: time to replace the key after its
/// certificate.
const STILL: Duration = Duration::from_millis(500);

/// The files of one port.
struct CertificateFiles(Secured);

impl Source for CertificateFiles {
    type Contents = Result<PortFiles, String>;

    fn paths(&self) -> Vec<PathBuf> {
        let Secured { own, client_ca, .. } = &self.0;
        [&own.cert, &own.key].into_iter().chain(client_ca).cloned().collect()
    }

    fn read(&self) -> Self::Contents {
        PortFiles::read(&self.0)
    }

    fn fingerprint(files: &Self::Contents) -> Fingerprint {
        match files {
            Ok(files) => Fingerprint::complete(files.contents()),
            Err(error) => Fingerprint::incomplete([error.as_bytes()]),
        }
    }
}

/// Follows the files of a port for as long as the port is served. `files` are in use now.
///
/// # Errors
/// The thread cannot be started.
pub(super) fn follow(tls: &Arc<Tls>, files: &PortFiles) -> io::Result<()> {
    let seen = Fingerprint::complete(files.contents());
    let source = CertificateFiles(tls.secured().clone());
    let follower = Follower::new(source, seen, STILL);
    let served = Arc::downgrade(tls);
    let name = format!("certs-{}", tls.secured().port);
    thread::Builder::new().name(name).spawn(move || run(follower, &served)).map(drop)
}

fn run(mut follower: Follower<CertificateFiles>, served: &Weak<Tls>) {
    loop {
        let next = follower.next();
        let Some(tls) = served.upgrade() else { return };
        match next {
            Next::Read(files) => replace(&tls, files),
            Next::Unchanged => {}
            Next::Stopped => return,
        }
    }
}

fn replace(tls: &Tls, files: Result<PortFiles, String>) {
    let port = tls.secured().port;
    match files.and_then(|files| tls.replace(&files)) {
        Ok(()) => tracing::info!(port, "new certificates are used for new connections"),
        Err(error) => {
            tracing::error!(port, %error, "certificates were refused; the old ones stay in use");
            tls.count_refusal();
        }
    }
}
