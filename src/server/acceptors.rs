//! Opens the two ports that callers use.

use std::sync::Arc;

use super::certificates;
use super::listen::Acceptor;
use super::pages::CONNECTIONS_MAX;
use super::places::Places;
use super::socket::Listener;
use super::tls::{PortFiles, Tls};
use crate::metrics::{Metrics, Shed};
use crate::peer::Peers;
use crate::settings::{Secured, Serve};

/// Opens the gRPC and the HTTP port.
///
/// # Errors
/// A setting, a certificate or an address cannot be used. The message is for people.
pub(super) fn open(settings: &Serve, metrics: &Metrics) -> Result<(Acceptor, Acceptor), String> {
    let ports = &settings.ports;
    let grpc_tls = tls(ports.grpc()?, b"h2", metrics)?;
    let http_tls = tls(ports.http()?, b"http/1.1", metrics)?;
    let peers = Arc::new(Peers::new(settings.connections.trusted_peers.clone()));
    let places = |max| Places::new(max, metrics.shed(Shed::Connections).clone());
    let grpc = Listener::open("--grpc-addr", &ports.grpc_addr)?;
    let grpc_places = places(settings.connections.max_connections);
    let grpc = Acceptor::new(grpc, grpc_tls, grpc_places, Arc::clone(&peers));
    let http = Listener::open("--http-addr", &ports.http_addr)?;
    let http = Acceptor::new(http, http_tls, places(CONNECTIONS_MAX), peers);
    Ok((grpc, http))
}

fn tls(
    secured: Option<Secured>,
    protocol: &'static [u8],
    metrics: &Metrics,
) -> Result<Option<Arc<Tls>>, String> {
    let Some(secured) = secured else { return Ok(None) };
    let metrics = metrics.tls(secured.port);
    let files = PortFiles::read(&secured)?;
    let tls = Arc::new(Tls::new(secured, protocol, metrics, &files)?);
    certificates::follow(&tls, &files)
        .map_err(|error| format!("a thread to follow certificates on: {error}"))?;
    Ok(Some(tls))
}
