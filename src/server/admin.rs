//! The port for operators, if it is enabled.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_stream::wrappers::TcpListenerStream;
use tokio_stream::{Stream, StreamExt};
use tonic::transport::Server;
use tonic::transport::server::Connected;

use super::socket::Listener;
use super::stream::GuardedStream;
use crate::grpc::admin::Admin;
use crate::proto::tidegate::admin::v1::admin_service_server::AdminServiceServer;
use crate::request::Bounds;
use crate::service::Service;
use crate::settings::Address;

/// Concurrent connections; operators have one each. Further ones wait in the backlog.
const CONNECTIONS_MAX: usize = 32;

/// Concurrent calls per connection.
const CALLS_MAX: u32 = 16;

/// How often an idle connection is pinged, and how long its peer may take to answer.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// A connection that must speak soon, and its place.
struct Connection {
    stream: GuardedStream<TcpStream>,
    _place: OwnedSemaphorePermit,
}

/// Binds the port; `None` if it is not enabled.
///
/// # Errors
/// The address is taken, or is not a loopback address: everybody who reaches this port may reset
/// counters.
pub(super) fn bind(addr: Option<SocketAddr>) -> Result<Option<TcpListener>, String> {
    let Some(addr) = addr else { return Ok(None) };
    if !addr.ip().is_loopback() {
        return Err(format!(
            "--admin-addr {addr}: must be a loopback address such as 127.0.0.1:8082, for there is \
             no telling who calls"
        ));
    }
    match Listener::open("--admin-addr", &Address::Tcp(addr))? {
        Listener::Tcp(listener) => Ok(Some(listener)),
        Listener::Unix(..) => Ok(None),
    }
}

/// Serves until `end` completes, then finishes the calls in flight.
pub(super) async fn serve(
    listener: TcpListener,
    service: Arc<Service>,
    bounds: Bounds,
    end: impl Future<Output = ()>,
) {
    let admin = AdminServiceServer::new(Admin { service, bounds });
    let server = Server::builder().concurrency_limit_per_connection(CALLS_MAX as usize);
    let server = server
        .max_concurrent_streams(CALLS_MAX)
        .http2_keepalive_interval(Some(KEEPALIVE_INTERVAL))
        .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
        .add_service(admin);
    let served = server.serve_with_incoming_shutdown(connections(listener), end).await;
    if let Err(error) = served {
        tracing::error!(%error, "the port for operators is closed");
    }
}

/// The connections of the port, as many at a time as have a place.
fn connections(listener: TcpListener) -> impl Stream<Item = io::Result<Connection>> {
    let free = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    TcpListenerStream::new(listener).then(move |accepted| {
        let free = Arc::clone(&free);
        async move {
            let accepted = accepted?;
            let place = free.acquire_owned().await.map_err(io::Error::other)?;
            Ok(Connection { stream: GuardedStream::http2(accepted), _place: place })
        }
    })
}

impl Connected for Connection {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buf)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
