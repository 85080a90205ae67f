//! TLS servers, with certificates made for one test.
//!
//! A server also listens without TLS: tests use it to inspect and configure the server.

use std::fs;
use std::io;
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType, date_time_ymd,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedProtocolVersion,
};
use tempfile::TempDir;

use super::resp::{Connection, REPLY_DEADLINE, Reply};
use super::servers::{Launch, RedisServer, Version};

/// The argument that sets a server's port for TLS.
const TLS_PORT: &str = "--tls-port";

/// A certificate authority, and its certificates for a server and for a client: files that are
/// removed with the value. Two of these values do not trust each other.
pub struct Certificates {
    folder: TempDir,
}

impl Certificates {
    /// Makes all of them; the server is `127.0.0.1` and `localhost`, and `ended` is a server whose
    /// certificate expired in 2001.
    pub fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder for temporary files");
        let made = Self { folder };
        let key = KeyPair::generate().expect("a key");
        let mut params = named("tidegate's tests", &[]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        made.write("ca.pem", &params.self_signed(&key).expect("a certificate").pem());
        let ca = Issuer::new(params, key);
        made.certify("server", &["127.0.0.1", "localhost"], &ca);
        made.certify("ended", &["127.0.0.1"], &ca);
        made.certify("client", &["tidegate"], &ca);
        made.certify("proxy", &["spiffe://tests/proxy"], &ca);
        made.certify("stranger", &["stranger"], &ca);
        made
    }

    /// This authority, and a client certificate of another one.
    pub fn with_client_of(&self, others: &Self) -> Self {
        let mixed = Self { folder: tempfile::tempdir().expect("a folder for temporary files") };
        fs::copy(self.ca(), mixed.ca()).expect("it is readable");
        fs::copy(others.client(), mixed.client()).expect("it is readable");
        fs::copy(others.client_key(), mixed.client_key()).expect("it is readable");
        mixed
    }

    /// The authority's certificate.
    pub fn ca(&self) -> PathBuf {
        self.path("ca.pem")
    }

    /// A client's certificate.
    pub fn client(&self) -> PathBuf {
        self.path("client.pem")
    }

    /// The key of [`Certificates::client`].
    pub fn client_key(&self) -> PathBuf {
        self.path("client.key")
    }

    /// The path of a file, such as `server.pem`, `proxy.key`.
    pub fn file(&self, name: &str) -> String {
        self.path(name).to_str().expect("a path of UTF-8").to_owned()
    }

    /// Replaces files by those of `others`, each atomically.
    pub fn replace(&self, others: &Self, names: &[&str]) {
        for name in names {
            let new = self.path("new");
            fs::copy(others.path(name), &new).expect("it is readable");
            fs::rename(new, self.path(name)).expect("it is writable");
        }
    }

    fn certify(&self, who: &str, names: &[&str], ca: &Issuer<'_, KeyPair>) {
        let key = KeyPair::generate().expect("a key");
        let mut params = named(who, names);
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        if who == "ended" {
            (params.not_before, params.not_after) =
                (date_time_ymd(2001, 1, 1), date_time_ymd(2002, 1, 1));
        }
        let certificate = params.signed_by(&key, ca).expect("a certificate");
        self.write(&format!("{who}.pem"), &certificate.pem());
        self.write(&format!("{who}.key"), &key.serialize_pem());
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("it is writable");
    }
}

fn named(who: &str, names: &[&str]) -> CertificateParams {
    let (uris, names): (Vec<&str>, Vec<&str>) = names.iter().partition(|name| name.contains("://"));
    let names: Vec<_> = names.into_iter().map(String::from).collect();
    let mut params = CertificateParams::new(names).expect("good names");
    let uris = uris.into_iter().map(|uri| SanType::URI(uri.try_into().expect("ASCII")));
    params.subject_alt_names.extend(uris);
    params.distinguished_name.push(DnType::CommonName, who);
    params
}

/// Whether a server requires certificates of its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientCertificates {
    /// Clients without one are refused.
    Required,
    /// Not requested.
    NotAsked,
}

impl RedisServer {
    /// Starts a server that also listens with TLS, with the server's certificate of `made`. Of the
    /// installed servers only Redis 7.0 supports it.
    ///
    /// # Panics
    /// As [`RedisServer::start`].
    pub fn start_tls(made: &Certificates, clients: ClientCertificates) -> Self {
        let [certificate, key, ca] =
            ["server.pem", "server.key", "ca.pem"].map(|name| made.file(name));
        let auth_clients = if clients == ClientCertificates::Required { "yes" } else { "no" };
        let files = ["--tls-cert-file", &certificate, "--tls-key-file", &key];
        let trust = ["--tls-ca-cert-file", &ca, "--tls-auth-clients", auth_clients];
        let args = [files, trust].concat();
        let launch = Launch { args: &args, ports: &[TLS_PORT], sentinel: false };
        Self::launch(Version::Redis70, &launch)
    }

    /// The TLS port of a server that [`RedisServer::start_tls`] started.
    ///
    /// # Panics
    /// When it was started otherwise.
    pub fn tls_port(&self) -> u16 {
        self.port_of(TLS_PORT)
    }

    /// The URL for TLS clients, with a name that is in the certificate.
    pub fn tls_url(&self) -> String {
        format!("rediss://localhost:{}", self.tls_port())
    }

    /// Sends one command with TLS, as a client that trusts `made`, with its certificate if `shown`.
    ///
    /// # Errors
    /// The handshake fails, or no reply comes in time.
    pub fn command_by_tls(
        &self,
        made: &Certificates,
        shown: ClientCertificates,
        args: &[&str],
    ) -> io::Result<Reply> {
        let config = client_config(made, shown);
        let name = "127.0.0.1".try_into().map_err(io::Error::other)?;
        let tls = ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)?;
        let stream = TcpStream::connect(("127.0.0.1", self.tls_port()))?;
        stream.set_read_timeout(Some(REPLY_DEADLINE))?;
        Connection::over(StreamOwned::new(tls, stream)).command(args)
    }
}

/// A client that trusts the authorities of all of these, and presents the first one's certificate.
pub fn client_of(made: &[&Certificates]) -> ClientConfig {
    config_of(made, ClientCertificates::Required, rustls::ALL_VERSIONS)
}

/// A client of one version of TLS.
pub fn client_by(version: &'static SupportedProtocolVersion, made: &Certificates) -> ClientConfig {
    config_of(&[made], ClientCertificates::Required, &[version])
}

fn client_config(made: &Certificates, shown: ClientCertificates) -> ClientConfig {
    config_of(&[made], shown, rustls::ALL_VERSIONS)
}

fn config_of(
    all: &[&Certificates],
    shown: ClientCertificates,
    versions: &[&'static SupportedProtocolVersion],
) -> ClientConfig {
    let read = |path| CertificateDer::from_pem_file(path).expect("a certificate");
    let mut roots = RootCertStore::empty();
    for made in all {
        roots.add(read(made.ca())).expect("an authority");
    }
    let made = all[0];
    let ring = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(ring).with_protocol_versions(versions);
    let config = config.expect("versions of TLS").with_root_certificates(roots);
    match shown {
        ClientCertificates::NotAsked => config.with_no_client_auth(),
        ClientCertificates::Required => {
            let key = PrivateKeyDer::from_pem_file(made.client_key()).expect("a key");
            config.with_client_auth_cert(vec![read(made.client())], key).expect("they fit")
        }
    }
}
