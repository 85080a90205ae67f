//! Encryption on the way to Redis: whom to trust, and who we are.
//!
//! Without a CA file the machine's certificate authorities are trusted, as its other programs do: the
//! operator adds a company's own there once, `SSL_CERT_FILE` and `SSL_CERT_DIR` move them, and they are
//! renewed without a release of this program, which a compiled-in list would need.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fred::types::config::TlsConnector;
use rustls::client::WantsClientCert;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ConfigBuilder, RootCertStore, crypto};

/// The files beside a URL with TLS.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct TlsFiles {
    /// The only authorities to trust, PEM.
    pub ca: Option<PathBuf>,
    /// Our certificate and its key, PEM.
    pub client: Option<ClientFiles>,
}

/// A client's certificate and its key, PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientFiles {
    /// The certificate, and what it is signed by, in this order.
    pub cert: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

/// What connections are encrypted with: TLS 1.2 or 1.3, and servers are verified always.
///
/// # Errors
/// A file cannot be read or holds no such thing, or the machine has no authorities; the message names
/// the flag and never shows a key.
pub fn tls_config(files: &TlsFiles) -> Result<TlsConnector, String> {
    let roots = files.ca.as_deref().map_or_else(system_roots, roots_of)?;
    let provider = Arc::new(crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13, &TLS12])
        .map_err(|error| format!("TLS: {error}"))?
        .with_root_certificates(roots);
    let config = match &files.client {
        Some(client) => with_client(builder, client)?,
        None => builder.with_no_client_auth(),
    };
    Ok(config.into())
}

fn system_roots() -> Result<RootCertStore, String> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    // A machine may have some that are too old to be read.
    let (added, _ignored) = roots.add_parsable_certificates(found.certs);
    if added == 0 {
        return Err("this machine has no certificate authorities to verify Redis with: install \
                    them (often the package ca-certificates), or name a file with --store-ca-file"
            .to_owned());
    }
    Ok(roots)
}

fn roots_of(path: &Path) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for cert in certs("--store-ca-file", path)? {
        let wrong = |error| format!("--store-ca-file {}: {error}", path.display());
        roots.add(cert).map_err(wrong)?;
    }
    Ok(roots)
}

fn with_client(
    builder: ConfigBuilder<ClientConfig, WantsClientCert>,
    files: &ClientFiles,
) -> Result<ClientConfig, String> {
    let certs = certs("--store-cert-file", &files.cert)?;
    let key = &files.key;
    // What the parser says could show bytes of the key.
    let read = PrivateKeyDer::from_pem_slice(&read("--store-key-file", key)?).ok();
    let read = read.ok_or_else(|| {
        format!("--store-key-file {}: holds no private key in PEM", key.display())
    })?;
    builder.with_client_auth_cert(certs, read).map_err(|error| {
        let cert = files.cert.display();
        format!("--store-cert-file {cert}, --store-key-file {}: {error}", key.display())
    })
}

fn certs(flag: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let pem = read(flag, path)?;
    let certs: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let certs = certs.ok().filter(|certs| !certs.is_empty());
    certs.ok_or_else(|| format!("{flag} {}: holds no certificate in PEM", path.display()))
}

fn read(flag: &str, path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|error| format!("{flag} {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Files {
        folder: tempfile::TempDir,
    }

    impl Files {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            for name in ["one", "two"] {
                let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
                fs::write(folder.path().join(format!("{name}.crt")), made.cert.pem()).unwrap();
                let key = made.signing_key.serialize_pem();
                fs::write(folder.path().join(format!("{name}.key")), key).unwrap();
            }
            fs::write(folder.path().join("text"), "hunter2").unwrap();
            Self { folder }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.folder.path().join(name)
        }

        fn client(&self, cert: &str, key: &str) -> TlsFiles {
            let client = ClientFiles { cert: self.path(cert), key: self.path(key) };
            TlsFiles { ca: Some(self.path("one.crt")), client: Some(client) }
        }

        fn ca(&self, name: &str) -> TlsFiles {
            TlsFiles { ca: Some(self.path(name)), client: None }
        }

        /// The error with the folder left out.
        fn wrong(&self, files: &TlsFiles) -> String {
            let folder = format!("{}/", self.folder.path().display());
            tls_config(files).unwrap_err().replace(&folder, "")
        }
    }

    #[test]
    fn files_of_an_authority_and_a_client_are_taken() {
        let files = Files::new();
        tls_config(&files.ca("one.crt")).unwrap();
        tls_config(&files.client("two.crt", "two.key")).unwrap();
    }

    #[test]
    fn what_is_wrong_with_a_file_is_said_with_its_flag() {
        let files = Files::new();
        let said = [
            files.wrong(&files.ca("text")),
            files.wrong(&files.ca("one.key")),
            files.wrong(&files.client("text", "one.key")),
            files.wrong(&files.client("one.crt", "text")),
            files.wrong(&files.client("one.crt", "one.crt")),
        ];
        assert_eq!(
            said,
            [
                "--store-ca-file text: holds no certificate in PEM",
                "--store-ca-file one.key: holds no certificate in PEM",
                "--store-cert-file text: holds no certificate in PEM",
                "--store-key-file text: holds no private key in PEM",
                "--store-key-file one.crt: holds no private key in PEM",
            ]
        );
        let missing = files.wrong(&files.ca("none"));
        assert!(missing.starts_with("--store-ca-file none: No such file"), "{missing}");
        let other = files.wrong(&files.client("one.crt", "two.key"));
        assert!(
            other.starts_with("--store-cert-file one.crt, --store-key-file two.key: "),
            "{other}"
        );
    }
}
