//! Connects to a running service: over TCP or a Unix socket, with or without TLS.
//!
//! Most failures are a wrong port, or TLS on one side only. The peer's first bytes tell which, so they are
//! kept, and [`Target::explain`] says what to type instead.

mod address;
mod heard;

use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::either::Either;
use tokio_util::io::InspectReader;

use self::address::{Address, Destination};
use self::heard::{Heard, Listener, Speech};
use crate::settings::Client;
use crate::tls::{Flags, client_config};

/// Timeout of the connection.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// Timeout of the answer to a greeting.
const PROBE_MAX: Duration = Duration::from_secs(1);

/// What rustls calls the failures that [`Target::explain`] knows: its errors lose their types on the way.
const TLS_ERRORS: [&str; 4] =
    ["NoApplicationProtocol", "UnknownIssuer", "BadSignature", "CertificateRequired"];

const FLAGS: Flags =
    Flags { ca: "--ca-file", cert: "--cert-file", key: "--key-file", peer: "the service" };

type Wire = InspectReader<Either<TcpStream, UnixStream>, Listener>;

/// A connection.
pub(super) type Stream = Either<Wire, Box<TlsStream<Wire>>>;

/// A port of the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Port {
    Grpc,
    Http,
    Admin,
}

impl Port {
    /// The port unless the address has one.
    const fn number(self) -> u16 {
        match self {
            Self::Grpc => 8081,
            Self::Http => 8080,
            Self::Admin => 8082,
        }
    }

    const fn speech(self) -> Speech {
        match self {
            Self::Grpc | Self::Admin => Speech::Http2,
            Self::Http => Speech::Http1,
        }
    }

    /// The name for ALPN.
    const fn protocol(self) -> &'static [u8] {
        match self {
            Self::Grpc | Self::Admin => b"h2",
            Self::Http => b"http/1.1",
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Grpc => "gRPC port",
            Self::Http => "HTTP port",
            Self::Admin => "admin port",
        }
    }

    /// The flag of `serve` that sets it.
    const fn flag(self) -> &'static str {
        match self {
            Self::Grpc => "--grpc-addr",
            Self::Http => "--http-addr",
            Self::Admin => "--admin-addr",
        }
    }
}

/// The address of a service, and how to connect to it.
#[derive(Clone)]
pub(super) struct Target {
    address: Address,
    port: Port,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    heard: Arc<Heard>,
}

impl Target {
    /// Parses `HOST[:PORT]`, `http://HOST[:PORT]`, `https://HOST[:PORT]` or `unix:PATH`.
    ///
    /// # Errors
    /// A setting is wrong. The message is for people.
    pub(super) fn new(addr: &str, client: &Client, port: Port) -> Result<Self, String> {
        let files = client.tls()?;
        let address = Address::parse(addr, port.number())
            .map_err(|error| format!("--addr {addr}: {error}"))?;
        let tls = (address.is_https || files.is_some()).then(|| {
            let mut config = client_config(&files.unwrap_or_default(), &FLAGS)?;
            config.alpn_protocols = vec![port.protocol().to_vec()];
            Ok::<_, String>((TlsConnector::from(Arc::new(config)), address.server_name()?))
        });
        Ok(Self { tls: tls.transpose()?, address, port, heard: Arc::default() })
    }

    /// Connects.
    ///
    /// # Errors
    /// Nothing listens there, or it is not what was expected. The message is for people.
    pub(super) async fn connect(&self) -> Result<Stream, String> {
        let late = || io::Error::new(io::ErrorKind::TimedOut, "no connection in 5 seconds");
        let dialed = timeout(CONNECT_MAX, self.dial()).await.unwrap_or_else(|_late| Err(late()));
        match dialed {
            Ok(stream) => Ok(stream),
            Err(error) => Err(self.failure(&error).await),
        }
    }

    async fn dial(&self) -> io::Result<Stream> {
        let wire = self.dial_wire().await?;
        match &self.tls {
            None => Ok(Either::Left(wire)),
            Some((tls, name)) => {
                let stream = tls.connect(name.clone(), wire).await?;
                Ok(Either::Right(Box::new(stream)))
            }
        }
    }

    async fn dial_wire(&self) -> io::Result<Wire> {
        self.heard.clear();
        let wire = match &self.address.destination {
            Destination::Tcp { host, port } => {
                let stream = TcpStream::connect((host.as_str(), *port)).await?;
                stream.set_nodelay(true)?;
                Either::Left(stream)
            }
            Destination::Unix(path) => Either::Right(UnixStream::connect(path).await?),
        };
        Ok(InspectReader::new(wire, self.heard.listener()))
    }

    /// Hears what the peer answers to a greeting.
    async fn probe(&self) -> io::Result<()> {
        let mut wire = self.dial_wire().await?;
        wire.write_all(heard::GREETING).await?;
        let mut first = [0; heard::FIRST_BYTES];
        wire.read_exact(&mut first).await.map(drop)
    }

    /// Waits for what the peer says after the handshake, such as that it wants a certificate.
    async fn probe_tls(&self) -> io::Result<()> {
        self.dial().await?.read_exact(&mut [0]).await.map(drop)
    }

    /// The value for an HTTP `Host` header.
    pub(super) fn host(&self) -> String {
        match &self.address.destination {
            Destination::Tcp { .. } => self.address.to_string(),
            Destination::Unix(_) => "localhost".to_owned(),
        }
    }

    /// The message about a call or connection that failed with this error.
    pub(super) async fn failure(&self, error: &(dyn fmt::Display + Sync)) -> String {
        match self.explain(&error.to_string()).await {
            Some(explained) => explained,
            None => format!("no service at {}: {error}; {}", self.address, self.advice()),
        }
    }

    /// What else to try if nothing answers.
    fn advice(&self) -> String {
        match self.port {
            Port::Grpc | Port::Http => {
                "start one with `tidegate serve`, or name another address with --addr".to_owned()
            }
            Port::Admin => {
                "start `tidegate serve` with --admin-addr, or name its address with --addr"
                    .to_owned()
            }
        }
    }

    /// What is wrong if the peer is not what was expected, and what to type instead.
    pub(super) async fn explain(&self, error: &str) -> Option<String> {
        let Self { address, port, .. } = self;
        let wrong_port = |spoken: &str| {
            format!(
                "{address} {spoken}, so it is not the {}: name that one with --addr; `tidegate serve` has it \
                 at {}, by default port {}",
                port.name(),
                port.flag(),
                port.number()
            )
        };
        // The peer may have closed the connection before its answer was read.
        let mut probed = String::new();
        if self.tls.is_none() && self.heard.speech().is_none() {
            let _ = timeout(PROBE_MAX, self.probe()).await;
        } else if self.tls.is_some() && !TLS_ERRORS.iter().any(|name| error.contains(name)) {
            let found = timeout(PROBE_MAX, self.probe_tls()).await;
            probed = found.ok().and_then(Result::err).map_or(probed, |error| error.to_string());
        }
        let error = if probed.is_empty() { error } else { &probed };
        match (&self.tls, self.heard.speech()) {
            (None, Some(Speech::Tls)) => Some(format!(
                "{address} uses TLS: write --addr https://{address}, with --ca-file if this machine does \
                 not know its authority"
            )),
            (Some(_), Some(Speech::Http1 | Speech::Http2)) => Some(format!(
                "{address} does not use TLS: write --addr {address}, without https://, --ca-file and \
                 --cert-file"
            )),
            (None, Some(spoken)) if spoken != port.speech() => Some(wrong_port(spoken.verb())),
            (Some(_), _) if error.contains("NoApplicationProtocol") => {
                Some(wrong_port("speaks another protocol over TLS"))
            }
            (Some(_), _)
                if ["UnknownIssuer", "BadSignature"].iter().any(|why| error.contains(why)) =>
            {
                Some(format!(
                    "the certificate of {address} is from an authority that is not trusted here ({error}): \
                     name its file with --ca-file"
                ))
            }
            (Some(_), _) if error.contains("CertificateRequired") => Some(format!(
                "{address} wants a client certificate ({error}): name one with --cert-file and --key-file"
            )),
            _ => None,
        }
    }
}

/// Shows the address with its port.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)
    }
}
