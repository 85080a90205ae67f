//! Accepts connections, up to a maximum number at a time.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use metrics::Counter;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep;
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;

use super::socket::{Listener, Socket, Stream};
use super::tls::Tls;
use crate::settings::Address;

/// How long the acceptor pauses after a failed accept, which mostly means that file descriptors ran
/// out. Without the pause it would spin on one core.
const BACKOFF: Duration = Duration::from_millis(50);

/// A listener with a maximum number of connections.
pub(super) struct Acceptor {
    listener: Listener,
    tls: Option<Arc<Tls>>,
    connections: ConnectionLimit,
    refused: Counter,
}

/// The maximum number of connections, as permits.
#[derive(Clone, Debug)]
pub(super) struct ConnectionLimit {
    free: Arc<Semaphore>,
    max: usize,
}

/// An accepted connection and its permit.
pub(super) struct Accepted {
    stream: Stream,
    tls: Option<Arc<Tls>>,
    permit: OwnedSemaphorePermit,
}

/// The byte stream of a connection, with or without TLS.
pub(super) type Transport = Either<Socket, Box<TlsStream<Socket>>>;

impl ConnectionLimit {
    pub(super) fn new(max: usize) -> Self {
        Self { free: Arc::new(Semaphore::new(max)), max }
    }

    /// Connections open now.
    pub(super) fn taken(&self) -> usize {
        self.max.saturating_sub(self.free.available_permits())
    }
}

impl Acceptor {
    /// Accepts from `listener`. A connection beyond the maximum is closed at once and counted.
    pub(super) const fn new(
        listener: Listener,
        tls: Option<Arc<Tls>>,
        connections: ConnectionLimit,
        refused: Counter,
    ) -> Self {
        Self { listener, tls, connections, refused }
    }

    pub(super) fn address(&self) -> io::Result<Address> {
        self.listener.address()
    }

    pub(super) fn connections(&self) -> ConnectionLimit {
        self.connections.clone()
    }

    /// The next connection.
    pub(super) async fn accept(&self) -> Accepted {
        let mut failed = false;
        loop {
            match self.listener.accept().await {
                Ok(stream) => {
                    if let Some(accepted) = self.admit(stream) {
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
        let Self { listener, tls, connections, refused } = self;
        let waiting = listener.close();
        let admit = |stream| admit(stream, tls.clone(), &connections, &refused);
        waiting.into_iter().filter_map(admit).collect()
    }

    fn admit(&self, stream: Stream) -> Option<Accepted> {
        admit(stream, self.tls.clone(), &self.connections, &self.refused)
    }
}

fn admit(
    stream: Stream,
    tls: Option<Arc<Tls>>,
    connections: &ConnectionLimit,
    refused: &Counter,
) -> Option<Accepted> {
    let Ok(permit) = Arc::clone(&connections.free).try_acquire_owned() else {
        refused.increment(1);
        return None;
    };
    Some(Accepted { stream, tls, permit })
}

impl Accepted {
    /// Performs the TLS handshake if the port has TLS; `None` if it fails. It runs on the thread
    /// that serves the connection, so that it delays no other connection.
    pub(super) async fn handshake(self) -> Option<(Transport, OwnedSemaphorePermit)> {
        // A socket that fails here was closed by its peer.
        let wire = self.stream.attach().ok()?;
        let connection = match self.tls {
            None => Either::Left(wire),
            Some(tls) => Either::Right(Box::new(tls.accept(wire).await.ok()?)),
        };
        Some((connection, self.permit))
    }
}
