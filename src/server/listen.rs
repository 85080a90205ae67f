//! Accepts connections, as long as there are places.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;

use super::places::{Place, Places};
use super::socket::{Incoming, Listener, Socket, Stream};
use super::tls::Tls;
use crate::peer::{Peer, Peers};
use crate::settings::Address;

/// How long the acceptor pauses after a failed accept, which mostly means that file descriptors ran
/// out. Without the pause it would spin on one core.
const BACKOFF: Duration = Duration::from_millis(50);

/// A listener whose port has a number of places.
pub(super) struct Acceptor {
    listener: Listener,
    tls: Option<Arc<Tls>>,
    places: Places,
    peers: Arc<Peers>,
}

/// An accepted connection and its place.
pub(super) struct Accepted {
    stream: Stream,
    tls: Option<Arc<Tls>>,
    place: Place,
    peer: Option<Arc<Peer>>,
}

/// A connection that is ready to be served.
pub(super) struct Connected {
    pub(super) stream: Transport,
    pub(super) place: Place,
    /// Whose connections it counts with; `None` if it counts by itself.
    pub(super) peer: Option<Arc<Peer>>,
}

/// The byte stream of a connection, with or without TLS.
pub(super) type Transport = Either<Socket, Box<TlsStream<Socket>>>;

impl Acceptor {
    /// Accepts from `listener`. A connection without a place is closed at once.
    pub(super) const fn new(
        listener: Listener,
        tls: Option<Arc<Tls>>,
        places: Places,
        peers: Arc<Peers>,
    ) -> Self {
        Self { listener, tls, places, peers }
    }

    pub(super) fn address(&self) -> io::Result<Address> {
        self.listener.address()
    }

    pub(super) fn places(&self) -> Places {
        self.places.clone()
    }

    /// The next connection.
    pub(super) async fn accept(&self) -> Accepted {
        let mut failed = false;
        loop {
            match self.listener.accept().await {
                Ok(incoming) => {
                    if let Some(accepted) =
                        admit(incoming, self.tls.clone(), &self.places, &self.peers)
                    {
                        return accepted;
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

    /// Closes the listener and returns the connections that wait in its backlog.
    pub(super) fn close(self) -> Vec<Accepted> {
        let Self { listener, tls, places, peers } = self;
        let waiting = listener.close();
        let admit = |incoming| admit(incoming, tls.clone(), &places, &peers);
        waiting.into_iter().filter_map(admit).collect()
    }
}

fn admit(
    Incoming { stream, addr }: Incoming,
    tls: Option<Arc<Tls>>,
    places: &Places,
    peers: &Peers,
) -> Option<Accepted> {
    let peer = peers.of(addr);
    let place = places.take(peer.as_ref())?;
    Some(Accepted { stream, tls, place, peer })
}

impl Accepted {
    /// Performs the TLS handshake if the port has TLS; `None` if it fails, or the place is lost
    /// meanwhile. It runs on the thread that serves the connection, so that it delays no other
    /// connection.
    pub(super) async fn handshake(self) -> Option<Connected> {
        let Self { stream, tls, place, peer } = self;
        // A socket that fails here was closed by its peer.
        let wire = stream.attach().ok()?;
        let stream = match tls {
            None => Either::Left(wire),
            Some(tls) => tokio::select! {
                secured = tls.accept(wire) => Either::Right(Box::new(secured.ok()?)),
                () = place.lost() => return None,
            },
        };
        Some(Connected { stream, place, peer })
    }
}
