//! Threads that serve gRPC. Each has a runtime of its own and gets connections round robin.
//!
//! A connection stays on its thread with everything that its calls need. No task is stolen, no lock
//! is shared by all cores, and answers that are ready together leave in one write.

use std::io;
use std::sync::Arc;

use tokio::runtime;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use super::connection::{ConnectionOptions, serve_connection};
use super::lifecycle::PhaseWatch;
use super::listen::Accepted;
use crate::grpc::routes::Routes;

/// Connections queued for a busy thread. When the queue is full, the acceptor waits.
const WAITING_MAX: usize = 1_024;

/// A thread that serves connections.
#[derive(Debug)]
pub(super) struct Worker {
    connections: mpsc::Sender<Accepted>,
    /// Closed when the thread has ended.
    ended: oneshot::Receiver<()>,
}

impl Worker {
    /// Starts a thread, which serves the routes that `prepare` creates on it.
    ///
    /// # Errors
    /// The thread or its runtime cannot be created.
    pub(super) fn start(
        number: usize,
        options: ConnectionOptions,
        follow: PhaseWatch,
        prepare: impl AsyncFnOnce() -> Result<Routes, String> + Send + 'static,
    ) -> io::Result<(Self, oneshot::Receiver<Result<(), String>>)> {
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let (connections, dealt) = mpsc::channel(WAITING_MAX);
        let (end, ended) = oneshot::channel();
        let (ready, prepared) = oneshot::channel();
        let serve = move || {
            // Dropped last.
            let _end = end;
            runtime.block_on(async {
                match prepare().await {
                    Ok(routes) => {
                        // The receiver may have been dropped.
                        let _ = ready.send(Ok(()));
                        serve(dealt, Arc::new(routes), options, follow).await;
                    }
                    Err(error) => drop(ready.send(Err(error))),
                }
            });
        };
        std::thread::Builder::new().name(format!("serve-{number}")).spawn(serve)?;
        Ok((Self { connections, ended }, prepared))
    }

    /// Hands a connection to the thread.
    ///
    /// # Errors
    /// The thread has ended.
    pub(super) async fn deal(&self, accepted: Accepted) -> Result<(), String> {
        self.connections.send(accepted).await.map_err(|_gone| "a serving thread ended".to_owned())
    }

    /// Waits until the thread has finished its calls in flight.
    pub(super) async fn ended(self) {
        drop(self.connections);
        // Nothing is ever sent on this channel; closing it is the event.
        let _ = self.ended.await;
    }
}

async fn serve(
    mut dealt: mpsc::Receiver<Accepted>,
    routes: Arc<Routes>,
    options: ConnectionOptions,
    follow: PhaseWatch,
) {
    let mut open = JoinSet::new();
    loop {
        tokio::select! {
            accepted = dealt.recv() => match accepted {
                Some(accepted) => {
                    open.spawn(serve_connection(accepted, Arc::clone(&routes), options, follow.clone()));
                }
                // The acceptor has ended.
                None => break,
            },
            // Removes connections that have ended.
            Some(_) = open.join_next() => {}
        }
    }
    while open.join_next().await.is_some() {}
}
