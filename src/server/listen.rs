//! Where connections come in: as many as there are places for.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use metrics::Counter;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep;

/// How long the acceptor waits where no connection can be had, for want of descriptors mostly.
const BACKOFF: Duration = Duration::from_millis(50);

/// Bytes of answers that the system keeps for a connection until they are read; Linux allows itself
/// twice as many.
const SEND_BUFFER: u32 = 256 << 10;

/// Connections that wait to be accepted.
const BACKLOG: u32 = 1_024;

/// What to do where an address is not to be had.
const FIXES: [(ErrorKind, &str); 3] = [
    (ErrorKind::AddrInUse, "another process listens there; end it, or choose another port"),
    (ErrorKind::AddrNotAvailable, "this machine has no such address; 0.0.0.0 is all that it has"),
    (ErrorKind::PermissionDenied, "ports below 1024 need a privilege; choose a higher one"),
];

/// A port that lets in so many at once.
pub(super) struct Door {
    listener: TcpListener,
    places: Places,
    refused: Counter,
}

/// How many connections there may be.
#[derive(Clone, Debug)]
pub(super) struct Places {
    free: Arc<Semaphore>,
    max: usize,
}

/// A connection and its place, which is free again when it is dropped.
#[derive(Debug)]
pub(super) struct Guest {
    pub(super) stream: std::net::TcpStream,
    pub(super) place: OwnedSemaphorePermit,
}

/// Takes an address, which `flag` names.
///
/// # Errors
/// It is not to be had; why, and what to do.
pub(super) fn listen(flag: &str, addr: SocketAddr) -> Result<TcpListener, String> {
    let fix = |error: io::Error| {
        let known = FIXES.iter().find(|(kind, _)| *kind == error.kind());
        let fix = known.map_or("choose another address", |(_, fix)| fix);
        format!("{flag} {addr}: {}: {fix}", error.to_string().to_lowercase())
    };
    open(addr).map_err(fix)
}

/// As tokio binds, with less memory of the system's for each connection that does not read.
fn open(addr: SocketAddr) -> io::Result<TcpListener> {
    let socket = if addr.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    // Connections get it from their listener.
    socket.set_send_buffer_size(SEND_BUFFER)?;
    socket.bind(addr)?;
    socket.listen(BACKLOG)
}

impl Places {
    pub(super) fn new(max: usize) -> Self {
        Self { free: Arc::new(Semaphore::new(max)), max }
    }

    /// How many are taken.
    pub(super) fn taken(&self) -> usize {
        self.max.saturating_sub(self.free.available_permits())
    }
}

impl Door {
    /// Takes an address, which `flag` names. Who comes when all `places` are taken is sent away,
    /// and counted.
    ///
    /// # Errors
    /// The address is not to be had; why, and what to do.
    pub(super) fn open(
        flag: &str,
        addr: SocketAddr,
        places: Places,
        refused: Counter,
    ) -> Result<Self, String> {
        let listener = listen(flag, addr)?;
        Ok(Self { listener, places, refused })
    }

    pub(super) fn addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    pub(super) fn places(&self) -> Places {
        self.places.clone()
    }

    /// The next connection.
    pub(super) async fn next(&self) -> Guest {
        let mut failed = false;
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    if let Some(guest) = self.let_in(stream) {
                        return guest;
                    }
                }
                Err(error) => {
                    if !std::mem::replace(&mut failed, true) {
                        tracing::warn!(%error, "no connection can be accepted");
                    }
                    sleep(BACKOFF).await;
                }
            }
        }
    }

    /// Closes, and gives the connections that wait, so that the end resets none of them.
    pub(super) fn close(self) -> Vec<Guest> {
        let Self { listener, places, refused } = self;
        let Ok(listener) = listener.into_std() else { return vec![] };
        let mut waiting = vec![];
        // The listener does not block: without a connection this is an error.
        while let Ok((stream, _)) = listener.accept() {
            let taken = Arc::clone(&places.free).try_acquire_owned();
            let prepared = stream.set_nonblocking(true).and_then(|()| stream.set_nodelay(true));
            match (taken, prepared) {
                (Ok(place), Ok(())) => waiting.push(Guest { stream, place }),
                (Err(_full), _) => refused.increment(1),
                // It is gone already.
                (_, Err(_gone)) => {}
            }
        }
        waiting
    }

    fn let_in(&self, stream: TcpStream) -> Option<Guest> {
        let Ok(place) = Arc::clone(&self.places.free).try_acquire_owned() else {
            self.refused.increment(1);
            return None;
        };
        // One that fails here is gone already.
        let stream = stream.set_nodelay(true).and_then(|()| stream.into_std()).ok()?;
        Some(Guest { stream, place })
    }
}
