//! Access to a real server: TLS with certificates of both sides, and a password that changes.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use fred::clients::Client;
use fred::interfaces::{ClientLike, EventInterface};
use fred::types::Builder;
use fred::types::config::ReconnectPolicy;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tempfile::TempDir;
use tidegate::store::redis::access::Access;
use tidegate::store::redis::credentials::{Credentials, Password};
use tidegate::store::redis::tls::{ClientFiles, TlsFiles};
use tidegate::store::redis::url::{Address, HostPort};
use tokio::time::timeout;

use crate::support::servers::{RedisServer, Reply, Version, free_port};

/// The deadline of every wait.
const DEADLINE: Duration = Duration::from_secs(10);

/// An authority and its files: `ca.crt`, and `leaf.crt` with `leaf.key` for 127.0.0.1.
struct Authority(TempDir);

impl Authority {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // A name of its own: a certificate with the name of its issuer would count as self-signed.
        params.distinguished_name.push(DnType::CommonName, "authority");
        let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let names = ["127.0.0.1".to_owned()];
        let leaf = CertificateParams::new(names).unwrap().signed_by(&key, &ca).unwrap();
        for (name, pem) in
            [("ca.crt", ca.pem()), ("leaf.crt", leaf.pem()), ("leaf.key", key.serialize_pem())]
        {
            fs::write(folder.path().join(name), pem).unwrap();
        }
        Self(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn client(&self) -> ClientFiles {
        ClientFiles { cert: self.path("leaf.crt"), key: self.path("leaf.key") }
    }
}

/// A server that also listens with TLS, for clients with a certificate only.
fn tls_server(authority: &Authority, more: &[&str]) -> (RedisServer, u16) {
    let port = free_port();
    let path = |name| authority.path(name).to_str().unwrap().to_owned();
    let (ca, cert, key) = (path("ca.crt"), path("leaf.crt"), path("leaf.key"));
    let number = port.to_string();
    let mut args = vec!["--tls-port", &number, "--tls-ca-cert-file", &ca];
    args.extend(["--tls-cert-file", &cert, "--tls-key-file", &key, "--tls-auth-clients", "yes"]);
    args.extend(more);
    (RedisServer::start_with(Version::Redis70, &args), port)
}

fn client(access: &Access, port: u16) -> Client {
    let config = access.config_of(&HostPort { host: "127.0.0.1".to_owned(), port });
    let mut builder = Builder::from_config(config);
    builder.set_policy(ReconnectPolicy::new_constant(0, 10));
    builder.build().unwrap()
}

/// Connects once, and sends a command.
async fn answer(access: &Access, port: u16) -> Result<String, fred::error::Error> {
    let client = client(access, port);
    let answer = async {
        let _connection = client.init().await?;
        client.ping::<String>(None).await
    };
    timeout(DEADLINE, answer).await.expect("an answer or an error")
}

fn tls_access(port: u16, ca: &Authority, client: Option<&Authority>) -> Access {
    let address: Address = format!("rediss://127.0.0.1:{port}").parse().unwrap();
    let files = TlsFiles { ca: Some(ca.path("ca.crt")), client: client.map(Authority::client) };
    Access::new(address, &Credentials::default(), &files).unwrap()
}

#[tokio::test]
async fn tls_verifies_the_server_and_presents_our_certificate() {
    let (ours, other) = (Authority::new(), Authority::new());
    for protocol in ["TLSv1.2", "TLSv1.3"] {
        let (_server, port) = tls_server(&ours, &["--tls-protocols", protocol]);
        answer(&tls_access(port, &ours, Some(&ours)), port).await.unwrap();
        assert!(answer(&tls_access(port, &other, Some(&ours)), port).await.is_err(), "{protocol}");
        assert!(answer(&tls_access(port, &ours, None), port).await.is_err(), "{protocol}");
        assert!(answer(&tls_access(port, &ours, Some(&other)), port).await.is_err(), "{protocol}");
    }
    let (_server, port) = tls_server(&ours, &["--tls-protocols", "TLSv1.1"]);
    assert!(
        answer(&tls_access(port, &ours, Some(&ours)), port).await.is_err(),
        "too old a protocol"
    );
}

#[tokio::test]
async fn a_server_without_our_authority_is_not_trusted() {
    let ours = Authority::new();
    let (_server, port) = tls_server(&ours, &[]);
    let address: Address = format!("rediss://127.0.0.1:{port}").parse().unwrap();
    let files = TlsFiles { ca: None, client: Some(ours.client()) };
    // A machine without authorities fails here too, which is as good.
    if let Ok(access) = Access::new(address, &Credentials::default(), &files) {
        assert!(answer(&access, port).await.is_err());
    }
}

#[tokio::test]
async fn a_changed_password_file_applies_to_the_next_connection() {
    let server = RedisServer::start_with(
        Version::Redis70,
        &["--user", "default", "off", "--user", "tide", "on", ">one", "+@all", "~*"],
    );
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("password");
    fs::write(&path, "one\n").unwrap();
    let credentials =
        Credentials { user: Some("tide".to_owned()), password: Password::File(path.clone()) };
    let address: Address = server.url().parse().unwrap();
    let access = Access::new(address, &credentials, &TlsFiles::default()).unwrap();
    let client = client(&access, server.port());
    timeout(DEADLINE, client.init()).await.unwrap().unwrap();

    let mut reconnected = client.reconnect_rx();
    fs::write(&path, "two\n").unwrap();
    let change = ["ACL", "SETUSER", "tide", "resetpass", ">two"];
    let printed =
        client.custom::<String, _>(fred::cmd!(change[0]), change[1..].to_vec()).await.unwrap();
    assert_eq!(printed, "OK");
    let kill = ["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "no"];
    let _ = client.custom::<i64, _>(fred::cmd!(kill[0]), kill[1..].to_vec()).await;
    timeout(DEADLINE, reconnected.recv()).await.expect("it connects again").unwrap();
    assert_eq!(client.ping::<String>(None).await.unwrap(), "PONG");
    answer(&access, server.port()).await.unwrap();

    fs::write(&path, "three\n").unwrap();
    assert!(answer(&access, server.port()).await.is_err(), "the file is not read again");
    assert!(matches!(server.command(&["PING"]), Reply::Error(_)));
}
