//! Threads that serve gRPC: one runtime each, and connections dealt to them.
//!
//! A connection stays on its thread, and so does all that its calls need: no task is stolen, no
//! lock is shared by all cores, and the answers that are ready together leave in one write.

use std::convert::Infallible;
use std::io;
use std::net::TcpStream;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::runtime;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tonic_health::pb::health_server::Health;
use tonic_reflection::server::v1::ServerReflection;

use crate::grpc::routes::Routes;

/// Connections that wait for a busy thread; then the acceptor waits too.
const WAITING_MAX: usize = 1_024;

/// Streams that one connection may have open.
const STREAMS_MAX: u32 = 1_024;

/// What a connection, and each of its streams, may have on the way to us: requests are small, and
/// one that is not needs more round trips, not more memory.
const CONNECTION_WINDOW: u32 = 1 << 20;
const STREAM_WINDOW: u32 = 1 << 16;

/// Bytes of answers that wait for a slow reader, for each stream.
const SEND_BUFFER: usize = 1 << 16;

/// How often a silent connection is asked whether it is there, and how long it may not answer.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// One thread that serves.
#[derive(Debug)]
pub(super) struct Worker {
    connections: mpsc::Sender<TcpStream>,
    /// Closed when the thread has ended.
    ended: oneshot::Receiver<()>,
}

impl Worker {
    /// Starts a thread that answers by the routes that `prepare` makes on it, until `stopped`.
    ///
    /// # Errors
    /// There is no thread or runtime to be had.
    pub(super) fn start<H: Health, R: ServerReflection>(
        number: usize,
        stopped: watch::Receiver<bool>,
        prepare: impl AsyncFnOnce() -> Result<Routes<H, R>, String> + Send + 'static,
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
                        // Who waits for it may have given up.
                        let _ = ready.send(Ok(()));
                        serve(dealt, Arc::new(routes), stopped).await;
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
    pub(super) async fn deal(&self, connection: TcpStream) -> Result<(), String> {
        self.connections.send(connection).await.map_err(|_gone| "a serving thread ended".to_owned())
    }

    /// Waits until the thread has finished what was in flight.
    pub(super) async fn ended(self) {
        drop(self.connections);
        // Nothing is ever sent.
        let _ = self.ended.await;
    }
}

async fn serve<H: Health, R: ServerReflection>(
    mut dealt: mpsc::Receiver<TcpStream>,
    routes: Arc<Routes<H, R>>,
    mut stopped: watch::Receiver<bool>,
) {
    let mut open = JoinSet::new();
    loop {
        tokio::select! {
            connection = dealt.recv() => match connection {
                Some(connection) => {
                    open.spawn(talk(connection, Arc::clone(&routes), stopped.clone()));
                }
                None => break,
            },
            _ = super::told(&mut stopped) => break,
            // Forgets those that are over.
            Some(_) = open.join_next() => {}
        }
    }
    while open.join_next().await.is_some() {}
}

/// Serves one connection until it ends or the service does, then finishes what is in flight.
async fn talk<H: Health, R: ServerReflection>(
    connection: TcpStream,
    routes: Arc<Routes<H, R>>,
    mut stopped: watch::Receiver<bool>,
) {
    let Ok(connection) = tokio::net::TcpStream::from_std(connection) else { return };
    let mut http2 = http2::Builder::new(TokioExecutor::new());
    http2
        .timer(TokioTimer::new())
        .auto_date_header(false)
        .max_concurrent_streams(STREAMS_MAX)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .initial_stream_window_size(STREAM_WINDOW)
        .max_send_buf_size(SEND_BUFFER)
        .keep_alive_interval(KEEPALIVE_INTERVAL)
        .keep_alive_timeout(KEEPALIVE_TIMEOUT);
    let answer = service_fn(move |call| {
        let answer = routes.answer(call);
        async { Ok::<_, Infallible>(answer.await) }
    });
    let mut talk = pin!(http2.serve_connection(TokioIo::new(connection), answer));
    let result = tokio::select! {
        biased;
        result = talk.as_mut() => result,
        _ = super::told(&mut stopped) => {
            talk.as_mut().graceful_shutdown();
            talk.await
        }
    };
    if let Err(error) = result {
        tracing::debug!(%error, "a connection broke");
    }
}
