//! Where connections come in.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;

use super::worker::Worker;

/// How long the acceptor waits where no connection can be had, for want of descriptors mostly.
const BACKOFF: Duration = Duration::from_millis(50);

/// What to do where an address is not to be had.
const FIXES: [(ErrorKind, &str); 3] = [
    (ErrorKind::AddrInUse, "another process listens there; end it, or choose another port"),
    (ErrorKind::AddrNotAvailable, "this machine has no such address; 0.0.0.0 is all that it has"),
    (ErrorKind::PermissionDenied, "ports below 1024 need a privilege; choose a higher one"),
];

/// Takes an address, which `flag` names.
///
/// # Errors
/// It is not to be had; why, and what to do.
pub(super) async fn listen(flag: &str, addr: SocketAddr) -> Result<TcpListener, String> {
    let fix = |error: io::Error| {
        let known = FIXES.iter().find(|(kind, _)| *kind == error.kind());
        let fix = known.map_or("choose another address", |(_, fix)| fix);
        format!("{flag} {addr}: {}: {fix}", error.to_string().to_lowercase())
    };
    TcpListener::bind(addr).await.map_err(fix)
}

/// Deals connections to the workers in turn; returns only with an error.
pub(super) async fn accept(listener: &TcpListener, workers: &[Worker]) -> String {
    for worker in workers.iter().cycle() {
        let connection = loop {
            match listener.accept().await {
                Ok((connection, _)) => break connection,
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    sleep(BACKOFF).await;
                }
            }
        };
        if let Err(error) = deal(worker, connection).await {
            return error;
        }
    }
    "there is no thread to serve on".to_owned()
}

/// Deals the connections that wait now, so that closing the listener resets none of them.
pub(super) async fn accept_waiting(listener: TcpListener, workers: &[Worker]) {
    let Ok(listener) = listener.into_std() else { return };
    for worker in workers.iter().cycle() {
        // The listener does not block: without a connection this is an error.
        let Ok((connection, _)) = listener.accept() else { return };
        let dealt = async {
            connection.set_nonblocking(true).ok()?;
            deal(worker, TcpStream::from_std(connection).ok()?).await.ok()
        };
        dealt.await;
    }
}

async fn deal(worker: &Worker, connection: TcpStream) -> Result<(), String> {
    let prepared = connection.set_nodelay(true).and_then(|()| connection.into_std());
    match prepared {
        Ok(connection) => worker.deal(connection).await,
        // It is gone already.
        Err(_gone) => Ok(()),
    }
}
