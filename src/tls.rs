//! TLS of clients and servers: certificates and keys from files, and the authorities to trust.
//!
//! Without a CA file the authorities of the machine are trusted, as by its other programs:
//! operators add a company's own authority there once, `SSL_CERT_FILE` and `SSL_CERT_DIR` move
//! them, and they are renewed without a release of this program. A compiled-in list was rejected,
//! because it would need one. No error message contains bytes of a key.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::WantsClientCert;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ConfigBuilder, RootCertStore, SupportedProtocolVersion};
use x509_parser::parse_x509_certificate;

use crate::file;

/// The largest PEM file: more than the certificates of all public authorities.
const BYTES_MAX: u64 = 4 << 20;

/// Older versions are refused.
pub const VERSIONS: [&SupportedProtocolVersion; 2] = [&TLS13, &TLS12];

/// The authorities that a client trusts, and its own certificate.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct TlsFiles {
    /// The only authorities to trust, PEM.
    pub ca: Option<PathBuf>,
    /// The client's certificate and key, PEM.
    pub client: Option<ClientFiles>,
}

/// A certificate and its key, PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientFiles {
    /// The certificate and its intermediates, in this order.
    pub cert: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

impl ClientFiles {
    /// A certificate and its key, if they are set. `flags` name them in the error.
    ///
    /// # Errors
    /// One is set without the other.
    pub fn of(files: [&Option<PathBuf>; 2], flags: [&str; 2]) -> Result<Option<Self>, String> {
        match files {
            [None, None] => Ok(None),
            [Some(cert), Some(key)] => Ok(Some(Self { cert: cert.clone(), key: key.clone() })),
            _ => Err(format!("{} and {} need each other", flags[0], flags[1])),
        }
    }
}

/// The flags that named the files, and the verified party, for error messages.
#[derive(Clone, Copy, Debug)]
pub struct Flags {
    /// The flag of [`TlsFiles::ca`].
    pub ca: &'static str,
    /// The flag of [`ClientFiles::cert`].
    pub cert: &'static str,
    /// The flag of [`ClientFiles::key`].
    pub key: &'static str,
    /// The verified party.
    pub peer: &'static str,
}

/// The validity of a certificate, in seconds since the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// The first second.
    pub not_before_s: i64,
    /// The last.
    pub not_after_s: i64,
}

/// The contents of a PEM file. They may be a key and are never printed.
pub struct Pem {
    flag: String,
    path: PathBuf,
    bytes: Vec<u8>,
}

/// The cryptographic provider.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// The TLS configuration of a client: TLS 1.2 or 1.3, and servers are always verified.
///
/// # Errors
/// A file cannot be read or has no certificate or key, or the machine has no authorities. The
/// message names the flag and never shows a key.
pub fn client_config(files: &TlsFiles, flags: &Flags) -> Result<ClientConfig, String> {
    let roots = match &files.ca {
        Some(path) => Pem::read(flags.ca, path)?.roots()?,
        None => system_roots(flags)?,
    };
    let builder = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&VERSIONS)
        .map_err(|error| format!("TLS: {error}"))?
        .with_root_certificates(roots);
    match &files.client {
        Some(client) => with_client(builder, client, flags),
        None => Ok(builder.with_no_client_auth()),
    }
}

fn system_roots(flags: &Flags) -> Result<RootCertStore, String> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    // Some certificates of a machine may be too old to parse.
    let (added, _ignored) = roots.add_parsable_certificates(found.certs);
    if added == 0 {
        return Err(format!(
            "this machine has no certificate authorities to verify {} with: install them (often the \
             package ca-certificates), or name a file with {}",
            flags.peer, flags.ca
        ));
    }
    Ok(roots)
}

fn with_client(
    builder: ConfigBuilder<ClientConfig, WantsClientCert>,
    files: &ClientFiles,
    flags: &Flags,
) -> Result<ClientConfig, String> {
    let (cert, key) = (Pem::read(flags.cert, &files.cert)?, Pem::read(flags.key, &files.key)?);
    let client = builder.with_client_auth_cert(cert.certs()?, key.key()?);
    client.map_err(|error| format!("{cert}, {key}: {error}"))
}

/// The validity of the certificate that ends first; `None` if none can be parsed.
pub fn validity(certs: &[CertificateDer<'_>]) -> Option<Validity> {
    let of = |cert: &CertificateDer<'_>| {
        let (_, cert) = parse_x509_certificate(cert).ok()?;
        let validity = cert.validity();
        let (not_before_s, not_after_s) =
            (validity.not_before.timestamp(), validity.not_after.timestamp());
        Some(Validity { not_before_s, not_after_s })
    };
    certs.iter().filter_map(of).min_by_key(|validity| validity.not_after_s)
}

impl Pem {
    /// Reads the file that `flag` names.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read(flag: impl Into<String>, path: &Path) -> Result<Self, String> {
        let (flag, path) = (flag.into(), path.to_owned());
        let bytes = file::read(&path, BYTES_MAX);
        let bytes = bytes.map_err(|error| format!("{flag} {}: {error}", path.display()))?;
        Ok(Self { flag, path, bytes })
    }

    /// The contents.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The certificates in it.
    ///
    /// # Errors
    /// There are none.
    pub fn certs(&self) -> Result<Vec<CertificateDer<'static>>, String> {
        let certs: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&self.bytes).collect();
        let certs = certs.ok().filter(|certs| !certs.is_empty());
        certs.ok_or_else(|| format!("{self}: holds no certificate in PEM"))
    }

    /// The authorities in it.
    ///
    /// # Errors
    /// There are none.
    pub fn roots(&self) -> Result<RootCertStore, String> {
        let mut roots = RootCertStore::empty();
        for cert in self.certs()? {
            roots.add(cert).map_err(|error| format!("{self}: {error}"))?;
        }
        Ok(roots)
    }

    /// The key in it.
    ///
    /// # Errors
    /// There is none.
    pub fn key(&self) -> Result<PrivateKeyDer<'static>, String> {
        // The parser's message could contain bytes of the key.
        let key = PrivateKeyDer::from_pem_slice(&self.bytes).ok();
        key.ok_or_else(|| format!("{self}: holds no private key in PEM"))
    }
}

/// Formats the flag and the path.
impl fmt::Display for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.flag, self.path.display())
    }
}
