//! Encryption: certificates and keys from files, and whom clients trust.
//!
//! Without a CA file the machine's certificate authorities are trusted, as its other programs do: the
//! operator adds a company's own there once, `SSL_CERT_FILE` and `SSL_CERT_DIR` move them, and they are
//! renewed without a release of this program, which a compiled-in list would need.

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

/// More than the certificates of all authorities that there are.
const BYTES_MAX: u64 = 4 << 20;

/// Older versions are refused.
pub const VERSIONS: [&SupportedProtocolVersion; 2] = [&TLS13, &TLS12];

/// Whom a client trusts, and who it is.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct TlsFiles {
    /// The only authorities to trust, PEM.
    pub ca: Option<PathBuf>,
    /// Our certificate and its key, PEM.
    pub client: Option<ClientFiles>,
}

/// A certificate and its key, PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientFiles {
    /// The certificate, and what it is signed by, in this order.
    pub cert: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

/// Where files were named, and for whom, so that mistakes can be told.
#[derive(Clone, Copy, Debug)]
pub struct Flags {
    /// Of [`TlsFiles::ca`].
    pub ca: &'static str,
    /// Of [`ClientFiles::cert`].
    pub cert: &'static str,
    /// Of [`ClientFiles::key`].
    pub key: &'static str,
    /// Who is verified.
    pub peer: &'static str,
}

/// From when to when a certificate is valid, both in seconds since the epoch.
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

/// What encrypts.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// What a client's connections are encrypted with: TLS 1.2 or 1.3, and servers are verified always.
///
/// # Errors
/// A file cannot be read or holds no such thing, or the machine has no authorities; the message names
/// the flag and never shows a key.
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
    // A machine may have some that are too old to be read.
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

/// When the first of these certificates to end is valid; `None` where none can be read.
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
    /// Reads a file that `flag` names.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read(flag: impl Into<String>, path: &Path) -> Result<Self, String> {
        let (flag, path) = (flag.into(), path.to_owned());
        let bytes = file::read(&path, BYTES_MAX);
        let bytes = bytes.map_err(|error| format!("{flag} {}: {error}", path.display()))?;
        Ok(Self { flag, path, bytes })
    }

    /// What was read.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The certificates in it.
    ///
    /// # Errors
    /// There is none.
    pub fn certs(&self) -> Result<Vec<CertificateDer<'static>>, String> {
        let certs: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&self.bytes).collect();
        let certs = certs.ok().filter(|certs| !certs.is_empty());
        certs.ok_or_else(|| format!("{self}: holds no certificate in PEM"))
    }

    /// The authorities in it.
    ///
    /// # Errors
    /// There is none.
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
        // What the parser says could show bytes of the key.
        let key = PrivateKeyDer::from_pem_slice(&self.bytes).ok();
        key.ok_or_else(|| format!("{self}: holds no private key in PEM"))
    }
}

/// The flag and the path.
impl fmt::Display for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.flag, self.path.display())
    }
}
