//! The port for operators, if it is enabled.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;

use super::socket::Listener;
use crate::grpc::admin::Admin;
use crate::proto::tidegate::admin::v1::admin_service_server::AdminServiceServer;
use crate::request::Bounds;
use crate::service::Service;
use crate::settings::Address;

/// Concurrent calls per connection.
const CALLS_MAX: u32 = 16;

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
    let server = server.max_concurrent_streams(CALLS_MAX).add_service(admin);
    let served = server.serve_with_incoming_shutdown(TcpListenerStream::new(listener), end).await;
    if let Err(error) = served {
        tracing::error!(%error, "the port for operators is closed");
    }
}
