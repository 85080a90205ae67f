//! Connects to a running service: over TCP or a Unix socket, with or without TLS.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::either::Either;

use crate::settings::Client;
use crate::tls::{Flags, client_config};

/// Timeout of the connection.
const CONNECT_MAX: Duration = Duration::from_secs(5);

const FLAGS: Flags =
    Flags { ca: "--ca-file", cert: "--cert-file", key: "--key-file", peer: "the service" };

type Wire = Either<TcpStream, UnixStream>;

/// A connection.
pub(super) type Stream = Either<Wire, Box<TlsStream<Wire>>>;

/// The address of a service, and how to connect to it.
#[derive(Clone)]
pub(super) struct Target {
    destination: Destination,
    tls: Option<(TlsConnector, ServerName<'static>)>,
}

#[derive(Clone)]
enum Destination {
    Tcp(String),
    Unix(String),
}

impl Target {
    /// Parses `HOST:PORT`, `http://HOST:PORT`, `https://HOST:PORT` or `unix:PATH`; `protocol` is
    /// used for ALPN.
    ///
    /// # Errors
    /// A setting is wrong. The message is for people.
    pub(super) fn new(addr: &str, client: &Client, protocol: &[u8]) -> Result<Self, String> {
        let files = client.tls()?;
        let (rest, https) = match addr.strip_prefix("https://") {
            Some(rest) => (rest, true),
            None => (addr.strip_prefix("http://").unwrap_or(addr), false),
        };
        let destination = match rest.strip_prefix("unix:") {
            Some(path) => Destination::Unix(path.strip_prefix("//").unwrap_or(path).to_owned()),
            None => Destination::Tcp(rest.trim_end_matches('/').to_owned()),
        };
        let tls = (https || files.is_some()).then(|| {
            let mut config = client_config(&files.unwrap_or_default(), &FLAGS)?;
            config.alpn_protocols = vec![protocol.to_vec()];
            Ok::<_, String>((TlsConnector::from(Arc::new(config)), destination.name()?))
        });
        Ok(Self { tls: tls.transpose()?, destination })
    }

    /// Connects.
    ///
    /// # Errors
    /// Nothing listens there, or its certificate is not valid for the address.
    pub(super) async fn connect(&self) -> io::Result<Stream> {
        timeout(CONNECT_MAX, self.dial()).await.unwrap_or_else(|_elapsed| {
            Err(io::Error::new(io::ErrorKind::TimedOut, "no connection in 5 seconds"))
        })
    }

    async fn dial(&self) -> io::Result<Stream> {
        let wire = match &self.destination {
            Destination::Tcp(addr) => Either::Left(TcpStream::connect(addr).await?),
            Destination::Unix(path) => Either::Right(UnixStream::connect(path).await?),
        };
        match &self.tls {
            None => Ok(Either::Left(wire)),
            Some((tls, name)) => {
                let stream = tls.connect(name.clone(), wire).await?;
                Ok(Either::Right(Box::new(stream)))
            }
        }
    }
}

impl Destination {
    /// The name that the certificate must have.
    fn name(&self) -> Result<ServerName<'static>, String> {
        let host = match self {
            Self::Tcp(addr) => addr.rsplit_once(':').map_or(addr.as_str(), |(host, _)| host),
            Self::Unix(_) => "localhost",
        };
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        ServerName::try_from(host).map_err(|error| format!("--addr: {error}"))
    }
}
