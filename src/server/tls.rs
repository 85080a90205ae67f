//! TLS on a port: the handshake, with certificates that may be replaced, and client certificates.
//!
//! The configuration is swapped as a whole when its files change; handshakes in progress keep the
//! old one. With `--client-ca` every caller needs a certificate of that authority, and with names
//! one of these names. A handshake has a deadline and a bounded buffer, so that silent callers use
//! little.

use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, ServerConfig,
    SignatureScheme,
};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use webpki::EndEntityCert;

use super::socket::Socket;
use crate::clock::{Clock, SystemClock};
use crate::metrics::TlsMetrics;
use crate::settings::Secured;
use crate::tls::{Pem, VERSIONS, Validity, provider, validity};

/// The deadline of a handshake.
const HANDSHAKE_MAX: Duration = Duration::from_secs(5);

/// Encrypted bytes buffered for a slow reader, per connection.
const UNSENT_MAX: usize = 16 << 10;

/// TLS on one port.
pub(super) struct Tls {
    secured: Secured,
    /// The protocols offered on the port (ALPN).
    protocol: &'static [u8],
    config: ArcSwap<ServerConfig>,
    metrics: TlsMetrics,
}

/// The contents of the files of a port, read together.
pub(super) struct PortFiles {
    cert: Pem,
    key: Pem,
    client_ca: Option<Pem>,
}

impl PortFiles {
    /// Reads the files.
    ///
    /// # Errors
    /// One of them cannot be read; the message names its flag.
    pub(super) fn read(secured: &Secured) -> Result<Self, String> {
        let read = |flag: &str, path: &Path| Pem::read(secured.flag(flag), path);
        let client_ca = secured.client_ca.as_ref();
        Ok(Self {
            client_ca: client_ca.map(|path| read("client-ca-file", path)).transpose()?,
            cert: read("cert-file", &secured.own.cert)?,
            key: read("key-file", &secured.own.key)?,
        })
    }

    /// The contents of each file.
    pub(super) fn contents(&self) -> impl Iterator<Item = &[u8]> {
        [Some(&self.cert), Some(&self.key), self.client_ca.as_ref()]
            .into_iter()
            .flatten()
            .map(Pem::bytes)
    }
}

impl Tls {
    /// A TLS configuration from these files. Failed handshakes are counted.
    ///
    /// # Errors
    /// A file is invalid; the message names its flag.
    pub(super) fn new(
        secured: Secured,
        protocol: &'static [u8],
        metrics: TlsMetrics,
        files: &PortFiles,
    ) -> Result<Self, String> {
        let (config, validity) = configure(&secured, protocol, files)?;
        report_validity(&secured, &metrics, validity);
        Ok(Self { secured, protocol, config: ArcSwap::from_pointee(config), metrics })
    }

    /// The paths of its files.
    pub(super) const fn secured(&self) -> &Secured {
        &self.secured
    }

    /// Uses other files for new connections.
    ///
    /// # Errors
    /// As [`Tls::new`]; the old files stay in use.
    pub(super) fn replace(&self, files: &PortFiles) -> Result<(), String> {
        let (config, validity) = configure(&self.secured, self.protocol, files)?;
        self.config.store(Arc::new(config));
        report_validity(&self.secured, &self.metrics, validity);
        Ok(())
    }

    /// Counts a refusal of new files.
    pub(super) fn count_refusal(&self) {
        self.metrics.refused();
    }

    /// Performs the TLS handshake within `HANDSHAKE_MAX`.
    ///
    /// # Errors
    /// The handshake failed or took too long.
    pub(super) async fn accept(&self, wire: Socket) -> io::Result<TlsStream<Socket>> {
        let acceptor = TlsAcceptor::from(self.config.load_full());
        let shaken = acceptor.accept_with(wire, |tls| tls.set_buffer_limit(Some(UNSENT_MAX)));
        let shaken = timeout(HANDSHAKE_MAX, shaken).await;
        let shaken = shaken.unwrap_or_else(|_elapsed| Err(ErrorKind::TimedOut.into()));
        if let Err(error) = &shaken {
            self.metrics.handshakes_failed.increment(1);
            tracing::debug!(%error, port = self.secured.port, "TLS handshake failed");
        }
        shaken
    }
}

/// Logs the new certificate, and its validity as metrics; callers refuse an expired one.
fn report_validity(secured: &Secured, metrics: &TlsMetrics, validity: Option<Validity>) {
    metrics.read(validity);
    let now_s = i64::try_from(SystemClock.now_ms() / 1_000).unwrap_or(i64::MAX);
    if let Some(Validity { not_after_s, .. }) = validity
        && not_after_s < now_s
    {
        let (port, ended_s) = (secured.port, now_s - not_after_s);
        tracing::warn!(port, ended_s, "the certificate has expired, and callers will refuse it");
    }
}

fn configure(
    secured: &Secured,
    protocol: &[u8],
    files: &PortFiles,
) -> Result<(ServerConfig, Option<Validity>), String> {
    let builder = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&VERSIONS)
        .map_err(|error| format!("TLS on the {} port: {error}", secured.port))?;
    let builder = match &files.client_ca {
        Some(ca) => builder.with_client_cert_verifier(verifier(ca, &secured.names)?),
        None => builder.with_no_client_auth(),
    };
    let PortFiles { cert, key, .. } = files;
    let chain = cert.certs()?;
    let validity = validity(&chain);
    let built = builder.with_single_cert(chain, key.key()?);
    let mut config = built.map_err(|error| format!("{cert}, {key}: {error}"))?;
    config.alpn_protocols = vec![protocol.to_vec()];
    if files.client_ca.is_some() {
        // A resumed session shows no certificate, so it would outlive the one that it began with.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    }
    Ok((config, validity))
}

fn verifier(ca: &Pem, names: &[String]) -> Result<Arc<dyn ClientCertVerifier>, String> {
    let roots = Arc::new(ca.roots()?);
    let certified = WebPkiClientVerifier::builder_with_provider(roots, provider()).build();
    let certified = certified.map_err(|error| format!("{ca}: {error}"))?;
    if names.is_empty() {
        return Ok(certified);
    }
    Ok(Arc::new(Named { certified, names: names.to_vec() }))
}

/// Verifies that callers have a certificate of the authority with one of these names.
#[derive(Debug)]
struct Named {
    certified: Arc<dyn ClientCertVerifier>,
    names: Vec<String>,
}

impl Named {
    /// Whether the certificate has one of the names. The comparison ignores case, as DNS does.
    fn knows(&self, cert: &CertificateDer<'_>) -> Result<bool, Error> {
        let bad = |_| Error::InvalidCertificate(CertificateError::BadEncoding);
        let cert = EndEntityCert::try_from(cert).map_err(bad)?;
        let mut dns = cert.valid_dns_names();
        let is_dns =
            dns.any(|name| self.names.iter().any(|known| known.eq_ignore_ascii_case(name)));
        let mut uris = cert.valid_uri_names();
        Ok(is_dns || uris.any(|name| self.names.iter().any(|known| known == name)))
    }
}

impl ClientCertVerifier for Named {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.certified.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.certified.verify_client_cert(end_entity, intermediates, now)?;
        if self.knows(end_entity)? {
            Ok(verified)
        } else {
            Err(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure))
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.certified.verify_tls12_signature(message, cert, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.certified.verify_tls13_signature(message, cert, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.certified.supported_verify_schemes()
    }
}
