//! Access to the servers: address, credentials and encryption, as configurations of the client
//! library.
//!
//! Flags and URL are merged and checked at the start, so that a mistake fails there and not at the
//! first connection. Never print a [`Config`]: its `Debug` output shows the password.

use fred::types::RespVersion;
use fred::types::config::{Config, Server as FredServer, ServerConfig, TlsConfig};
use std::sync::Arc;

use super::credentials::{Credentials, Password, Secret};
use super::tls::{TlsFiles, tls_config};
use super::url::{Address, Endpoints, HostPort, Sentinel};

/// The address, credentials and encryption of the servers.
#[derive(Clone, Debug)]
pub struct Access {
    address: Address,
    tls: Option<TlsConfig>,
}

impl Access {
    /// Merges the URL and the flags.
    ///
    /// # Errors
    /// Credentials are given twice or incompletely, a file cannot be read, or files for TLS are
    /// given without TLS. The message names the flags and the fix.
    pub fn new(
        address: Address,
        credentials: &Credentials,
        files: &TlsFiles,
    ) -> Result<Self, String> {
        let address = with_credentials(address, credentials)?;
        if !address.tls && *files != TlsFiles::default() {
            return Err(
                "--store-ca-file, --store-cert-file and --store-key-file are for TLS: begin \
                        the URL of --store with rediss (two s), or leave them out"
                    .to_owned(),
            );
        }
        let tls = address.tls.then(|| tls_config(files)).transpose()?;
        Ok(Self { address, tls: tls.map(Into::into) })
    }

    /// The servers and their topology.
    pub const fn endpoints(&self) -> &Endpoints {
        &self.address.endpoints
    }

    /// The configuration of a connection to one server: any node of a cluster, the server that
    /// sentinels named, or a server in the URL. The client reads the password before each
    /// connection.
    pub fn config_of(&self, node: &HostPort) -> Config {
        let server = |server: &&super::url::Server| server.node == *node;
        let (credentials, database) = match self.endpoints() {
            Endpoints::Standalone(server) => (Some(&server.credentials), server.database),
            Endpoints::Sentinel(sentinel) => (Some(&sentinel.credentials), sentinel.database),
            Endpoints::Cluster(cluster) => (Some(&cluster.credentials), None),
            Endpoints::Sharded(servers) => {
                let found = servers.iter().find(server);
                (found.map(|server| &server.credentials), found.and_then(|server| server.database))
            }
        };
        let server = ServerConfig::Centralized { server: fred_server(node) };
        let config = Config { database, ..self.config(server) };
        with_provider(config, credentials)
    }

    /// The configuration of a client that follows the server that sentinels name; `None` without
    /// sentinels. The passwords are read now, because the client's callback does not reveal
    /// whether it is for a sentinel or for the server.
    ///
    /// # Errors
    /// The file of the password cannot be read.
    pub fn sentinel_config(&self) -> Result<Option<Config>, String> {
        let Endpoints::Sentinel(sentinel) = self.endpoints() else { return Ok(None) };
        let Sentinel { sentinels, sentinel_credentials, service, credentials, database } = sentinel;
        let text = |secret: Secret| secret.expose().to_owned();
        let server = ServerConfig::Sentinel {
            hosts: sentinels.iter().map(fred_server).collect(),
            service_name: service.clone(),
            username: sentinel_credentials.user.clone(),
            password: sentinel_credentials.read_password()?.map(text),
        };
        Ok(Some(Config {
            username: credentials.user.clone(),
            password: credentials.read_password()?.map(text),
            database: *database,
            ..self.config(server)
        }))
    }

    fn config(&self, server: ServerConfig) -> Config {
        Config { server, tls: self.tls.clone(), version: RespVersion::RESP2, ..Config::default() }
    }
}

/// The server in the library's terms. To resolve a host, the library appends a colon and the port,
/// so an IPv6 address needs brackets; to verify a certificate, it needs the address without them.
fn fred_server(node: &HostPort) -> FredServer {
    let HostPort { host, port } = node;
    if host.contains(':') {
        FredServer::new_with_tls(format!("[{host}]"), *port, Some(host.clone()))
    } else {
        FredServer::new(host.as_str(), *port)
    }
}

fn with_provider(config: Config, credentials: Option<&Credentials>) -> Config {
    let credentials = credentials.filter(|credentials| !credentials.is_empty()).cloned();
    let provider = credentials.map(|credentials| Arc::new(credentials) as _);
    Config { credential_provider: provider, ..config }
}

fn with_credentials(address: Address, flags: &Credentials) -> Result<Address, String> {
    // Without a password the client library ignores the user and logs in as another one.
    const NO_PASSWORD: &str = "a user for --store has no password: set --store-password-file or \
        TIDEGATE_STORE_PASSWORD, or write USER:PASSWORD@ in the URL";
    if !flags.is_empty() && address.credentials().any(|one| !one.is_empty()) {
        return Err("--store-user, --store-password-file or TIDEGATE_STORE_PASSWORD is set, and \
                    the URL of --store has a user or password too: leave one of both out"
            .to_owned());
    }
    let address = if flags.is_empty() { address } else { address.with_credentials(flags) };
    let is_incomplete = |one: &Credentials| one.user.is_some() && one.password == Password::None;
    if address.credentials().any(is_incomplete) {
        return Err(NO_PASSWORD.to_owned());
    }
    if let Endpoints::Sentinel(sentinel) = &address.endpoints
        && is_incomplete(&sentinel.sentinel_credentials)
    {
        return Err("sentinelUsername in the URL of --store needs sentinelPassword".to_owned());
    }
    // Read again before each connection, and also now, so that a mistake shows at the start.
    address.credentials().try_for_each(|one| one.read_password().map(drop))?;
    Ok(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(url: &str) -> Access {
        let files = TlsFiles::default();
        Access::new(url.parse().unwrap(), &Credentials::default(), &files).unwrap()
    }

    fn node(host: &str, port: u16) -> HostPort {
        HostPort { host: host.to_owned(), port }
    }

    fn server(config: &Config) -> &FredServer {
        let ServerConfig::Centralized { server } = &config.server else { panic!("{config:?}") };
        server
    }

    /// The user and password that the client logs in with.
    async fn login(config: &Config) -> (Option<String>, Option<String>) {
        let Some(provider) = &config.credential_provider else { return (None, None) };
        provider.fetch(None).await.unwrap()
    }

    fn user_password(user: &str, password: &str) -> (Option<String>, Option<String>) {
        (Some(user.to_owned()), Some(password.to_owned()))
    }

    #[tokio::test]
    async fn a_config_has_the_credentials_and_database_of_its_server() {
        let access = access("redis://u:p@a:1/3,redis://v:q@b:2,redis://c:3");
        let of = |host, port| access.config_of(&node(host, port));
        let (a, b, c) = (of("a", 1), of("b", 2), of("c", 3));
        assert_eq!((&*server(&b).host, server(&b).port, b.database), ("b", 2, None));
        assert_eq!((&*server(&a).host, a.database), ("a", Some(3)));
        assert_eq!(login(&a).await, user_password("u", "p"));
        assert_eq!(login(&b).await, user_password("v", "q"));
        assert_eq!(login(&c).await, (None, None));
        assert!(a.tls.is_none());
    }

    #[tokio::test]
    async fn a_node_of_a_cluster_need_not_be_in_the_url() {
        let access = access("redis-cluster://u:p@a:1");
        let config = access.config_of(&node("10.0.0.9", 7_000));
        assert_eq!((&*server(&config).host, server(&config).port), ("10.0.0.9", 7_000));
        assert_eq!(login(&config).await, user_password("u", "p"));
    }

    #[tokio::test]
    async fn sentinels_have_their_own_credentials() {
        let rest = "service=m&sentinelUsername=s&sentinelPassword=t";
        let access = access(&format!("redis-sentinel://u:p@a,b:5/2?{rest}"));
        let all = access.sentinel_config().unwrap().unwrap();
        let ServerConfig::Sentinel { hosts, service_name, username, password } = &all.server else {
            panic!("no sentinels");
        };
        let hosts: Vec<_> = hosts.iter().map(|host| (&*host.host, host.port)).collect();
        assert_eq!((&hosts[..], &service_name[..]), (&[("a", 26_379), ("b", 5)][..], "m"));
        assert_eq!((username.clone(), password.clone()), user_password("s", "t"));
        assert_eq!(
            (all.username.clone(), all.password.clone(), all.database),
            (Some("u".to_owned()), Some("p".to_owned()), Some(2),)
        );
        let named = access.config_of(&node("10.0.0.9", 6_379));
        assert_eq!((login(&named).await, named.database), (user_password("u", "p"), Some(2)));
    }

    #[test]
    fn only_sentinels_have_a_sentinel_config() {
        let access = access("redis-cluster://a");
        assert!(access.sentinel_config().unwrap().is_none());
    }

    #[test]
    fn an_ipv6_address_is_resolved_with_brackets_and_verified_without() {
        let config = access("redis://[::1]:7").config_of(&node("::1", 7));
        let server = server(&config);
        assert_eq!((&*server.host, server.tls_server_name.as_deref()), ("[::1]", Some("::1")));
    }
}
