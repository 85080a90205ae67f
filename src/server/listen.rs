//! Where connections come in: no more than there may be at once.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use metrics::Counter;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep;
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;

use super::socket::{Listener, Stream, Wire};
use super::tls::Tls;
use crate::settings::Address;

/// How long the acceptor waits where no connection can be had, for want of descriptors mostly.
const BACKOFF: Duration = Duration::from_millis(50);

/// A port that lets in so many at once.
pub(super) struct Acceptor {
    listener: Listener,
    tls: Option<Arc<Tls>>,
    connections: ConnectionLimit,
    refused: Counter,
}

/// How many connections there may be.
#[derive(Clone, Debug)]
pub(super) struct ConnectionLimit {
    free: Arc<Semaphore>,
    max: usize,
}

/// A connection, and the permit to have it.
pub(super) struct Accepted {
    stream: Stream,
    tls: Option<Arc<Tls>>,
    permit: OwnedSemaphorePermit,
}

/// The bytes of a connection, in TLS or not.
pub(super) type Transport = Either<Wire, Box<TlsStream<Wire>>>;

impl ConnectionLimit {
    pub(super) fn new(max: usize) -> Self {
        Self { free: Arc::new(Semaphore::new(max)), max }
    }

    /// How many there are.
    pub(super) fn taken(&self) -> usize {
        self.max.saturating_sub(self.free.available_permits())
    }
}

impl Acceptor {
    /// Serves what `listener` gets. Who comes when there are as many `connections`
    /// as there may be is sent away, and counted.
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

    /// Closes, and gives the connections that wait.
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
    /// Agrees on TLS, where the port has it; `None` where that fails. Runs where the connection is served,
    /// so that nobody else waits for it.
    pub(super) async fn handshake(self) -> Option<(Transport, OwnedSemaphorePermit)> {
        // One that fails here is gone already.
        let wire = self.stream.attach().ok()?;
        let connection = match self.tls {
            None => Either::Left(wire),
            Some(tls) => Either::Right(Box::new(tls.accept(wire).await.ok()?)),
        };
        Some((connection, self.permit))
    }
}
