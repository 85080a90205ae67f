//! Where connections come in: as many as there are places for.

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
pub(super) struct Door {
    listener: Listener,
    tls: Option<Arc<Tls>>,
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
pub(super) struct Guest {
    stream: Stream,
    tls: Option<Arc<Tls>>,
    place: OwnedSemaphorePermit,
}

/// What a guest says and is told.
pub(super) type Talk = Either<Wire, Box<TlsStream<Wire>>>;

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
    /// Serves what `listener` gets. Who comes when all `places` are taken is sent away, and counted.
    pub(super) const fn new(
        listener: Listener,
        tls: Option<Arc<Tls>>,
        places: Places,
        refused: Counter,
    ) -> Self {
        Self { listener, tls, places, refused }
    }

    pub(super) fn address(&self) -> io::Result<Address> {
        self.listener.address()
    }

    pub(super) fn places(&self) -> Places {
        self.places.clone()
    }

    /// The next connection.
    pub(super) async fn next(&self) -> Guest {
        let mut failed = false;
        loop {
            match self.listener.accept().await {
                Ok(stream) => {
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

    /// Closes, and gives the connections that wait.
    pub(super) fn close(self) -> Vec<Guest> {
        let Self { listener, tls, places, refused } = self;
        let waiting = listener.close();
        let let_in = |stream| let_in(stream, tls.clone(), &places, &refused);
        waiting.into_iter().filter_map(let_in).collect()
    }

    fn let_in(&self, stream: Stream) -> Option<Guest> {
        let_in(stream, self.tls.clone(), &self.places, &self.refused)
    }
}

fn let_in(
    stream: Stream,
    tls: Option<Arc<Tls>>,
    places: &Places,
    refused: &Counter,
) -> Option<Guest> {
    let Ok(place) = Arc::clone(&places.free).try_acquire_owned() else {
        refused.increment(1);
        return None;
    };
    Some(Guest { stream, tls, place })
}

impl Guest {
    /// Agrees on TLS, where the port has it; `None` where that fails. Runs where the guest is served,
    /// so that nobody else waits for it.
    pub(super) async fn greet(self) -> Option<(Talk, OwnedSemaphorePermit)> {
        // One that fails here is gone already.
        let wire = self.stream.attach().ok()?;
        let talk = match self.tls {
            None => Either::Left(wire),
            Some(tls) => Either::Right(Box::new(tls.accept(wire).await.ok()?)),
        };
        Some((talk, self.place))
    }
}
