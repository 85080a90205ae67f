//! Parses the URL of `--store`: the servers, their topology, and the credentials.
//!
//! ```text
//! redis[s]://[USER:PASSWORD@]HOST[:PORT][/DB]                 one server; several by commas are independent
//! redis[s]-sentinel://[USER:PASSWORD@]HOST[:PORT],…[/DB]?service=NAME[&sentinelUsername=U][&sentinelPassword=P]
//! redis[s]-cluster://[USER:PASSWORD@]HOST[:PORT],…
//! ```
//!
//! Schemes and parameters are those of the client library's URLs: `sentinelServiceName` is another
//! name of `service`, and `node=HOST:PORT` adds a host. Characters with a meaning in URLs (`@ / ? #
//! , %`) are written as `%XX` in users, passwords and parameters. A `+` is a plus, not a space.
//!
//! Errors never repeat any part of the URL, because a malformed URL may have a password anywhere.

use std::collections::BTreeSet;
use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

use percent_encoding::percent_decode_str;

use super::credentials::{Credentials, Password, Secret};

/// Servers in a URL, at most.
const NODES_MAX: usize = 64;

const SERVER_PORT: u16 = 6_379;
const SENTINEL_PORT: u16 = 26_379;

/// The parsed URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// The servers and their topology.
    pub endpoints: Endpoints,
    /// Whether all connections are encrypted.
    pub tls: bool,
}

/// The servers and their topology.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoints {
    /// One server.
    Standalone(Server),
    /// The current primary of a service, which the sentinels name.
    Sentinel(Sentinel),
    /// A Redis Cluster, whose nodes divide the slots among themselves.
    Cluster(Cluster),
    /// Independent servers: 2 or more, without repetitions.
    Sharded(Vec<Server>),
}

/// One server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Its host and port.
    pub node: HostPort,
    /// The user and password to log in with.
    pub credentials: Credentials,
    /// The database, if it is not 0.
    pub database: Option<u8>,
}

/// Sentinels and the service that they watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sentinel {
    /// Some of the sentinels.
    pub sentinels: Vec<HostPort>,
    /// The user and password for the sentinels.
    pub sentinel_credentials: Credentials,
    /// The name of the service that the sentinels watch.
    pub service: String,
    /// The user and password for the server.
    pub credentials: Credentials,
    /// The database, if it is not 0.
    pub database: Option<u8>,
}

/// A Redis Cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// Some of its nodes, which report the others.
    pub seeds: Vec<HostPort>,
    /// The user and password for all nodes.
    pub credentials: Credentials,
}

/// A host and a port. It prints as `host:port`, which is the name of a server on the ring: hosts in
/// lower case, IPv6 addresses in brackets and in their shortest form.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostPort {
    /// A name or an address, an IPv6 one without brackets.
    pub host: String,
    /// A port from 1 to 65,535.
    pub port: u16,
}

impl Endpoints {
    /// The name of the topology in messages and logs.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Standalone(_) => "standalone",
            Self::Sentinel(_) => "sentinel",
            Self::Cluster(_) => "cluster",
            Self::Sharded(_) => "sharded",
        }
    }
}

/// Shows the kind and the addresses, and no credentials.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let encrypted = if self.tls { " over TLS" } else { "" };
        let list = |nodes: &mut dyn Iterator<Item = &HostPort>| {
            nodes.map(ToString::to_string).collect::<Vec<_>>().join(", ")
        };
        let servers = match &self.endpoints {
            Endpoints::Standalone(server) => server.node.to_string(),
            Endpoints::Sentinel(sentinel) => {
                let sentinels = list(&mut sentinel.sentinels.iter());
                format!("{} by sentinels {sentinels}", sentinel.service)
            }
            Endpoints::Cluster(cluster) => list(&mut cluster.seeds.iter()),
            Endpoints::Sharded(servers) => list(&mut servers.iter().map(|server| &server.node)),
        };
        write!(f, "redis {} {servers}{encrypted}", self.endpoints.name())
    }
}

impl Address {
    /// The credentials for the servers, in the order of the URL, without those for sentinels.
    pub fn credentials(&self) -> impl Iterator<Item = &Credentials> {
        let (servers, one) = match &self.endpoints {
            Endpoints::Standalone(server) => (std::slice::from_ref(server), None),
            Endpoints::Sentinel(sentinel) => (&[][..], Some(&sentinel.credentials)),
            Endpoints::Cluster(cluster) => (&[][..], Some(&cluster.credentials)),
            Endpoints::Sharded(servers) => (&servers[..], None),
        };
        servers.iter().map(|server| &server.credentials).chain(one)
    }

    /// The same servers with these credentials.
    #[must_use]
    pub fn with_credentials(mut self, credentials: &Credentials) -> Self {
        let servers = match &mut self.endpoints {
            Endpoints::Standalone(server) => std::slice::from_mut(server),
            Endpoints::Sharded(servers) => servers,
            Endpoints::Sentinel(Sentinel { credentials: one, .. })
            | Endpoints::Cluster(Cluster { credentials: one, .. }) => {
                *one = credentials.clone();
                return self;
            }
        };
        for server in servers {
            server.credentials = credentials.clone();
        }
        self
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl FromStr for Address {
    type Err = String;

    /// Parses a URL. Errors continue the words "the value of --store".
    fn from_str(text: &str) -> Result<Self, String> {
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("has a space or a character that is not ASCII; write it as %XX".to_owned());
        }
        let (scheme, rest) = text.split_once("://").ok_or_else(unknown_scheme)?;
        let (kind, tls) = match scheme.strip_prefix("rediss") {
            Some(kind) => (kind, true),
            None => (scheme.strip_prefix("redis").ok_or_else(unknown_scheme)?, false),
        };
        let endpoints = match kind {
            "" => servers(text, scheme)?,
            "-sentinel" => Endpoints::Sentinel(sentinel(&UrlParts::of(rest)?)?),
            "-cluster" => Endpoints::Cluster(cluster(&UrlParts::of(rest)?)?),
            _ => return Err(unknown_scheme()),
        };
        Ok(Self { endpoints, tls })
    }
}

fn unknown_scheme() -> String {
    "is neither `memory` nor a URL that starts with redis://, rediss://, redis-sentinel://, \
     rediss-sentinel://, redis-cluster:// or rediss-cluster://"
        .to_owned()
}

/// Parses one server, or the URLs of several servers, separated by commas.
fn servers(text: &str, scheme: &str) -> Result<Endpoints, String> {
    let rest = |url| str::strip_prefix(url, scheme)?.strip_prefix("://");
    let urls: Vec<&str> = text.split(',').map(rest).collect::<Option<_>>().ok_or(
        "must have the whole URL of each server between commas, all with one scheme, as in \
         redis://a:6379,redis://b:6379; write a comma in a password as %2C",
    )?;
    let several = urls.len() > 1;
    let place = |at: usize, error| if several { format!("(server {at}) {error}") } else { error };
    let one = |(at, url): (usize, &&str)| {
        let server = UrlParts::of(url).and_then(|parts| server(&parts));
        server.map_err(|error| place(at, error))
    };
    let mut servers = (1..).zip(&urls).map(one).collect::<Result<Vec<_>, _>>()?;
    distinct(servers.iter().map(|server| &server.node))?;
    Ok(match servers.pop() {
        Some(server) if servers.is_empty() => Endpoints::Standalone(server),
        last => Endpoints::Sharded(servers.into_iter().chain(last).collect()),
    })
}

fn server(parts: &UrlParts<'_>) -> Result<Server, String> {
    if parts.query.is_some() {
        return Err(
            "has parameters (after a `?`), which redis:// and rediss:// do not take; write \
                    a `?` in a password as %3F"
                .to_owned(),
        );
    }
    Ok(Server {
        node: node(parts.hosts, SERVER_PORT)?,
        credentials: parts.credentials()?,
        database: parts.database()?,
    })
}

fn sentinel(parts: &UrlParts<'_>) -> Result<Sentinel, String> {
    const KEYS: [&str; 5] =
        ["service", "sentinelServiceName", "sentinelUsername", "sentinelPassword", "node"];
    let parameters = parts.parameters(&KEYS)?;
    let names_service = |key: &str| matches!(key, "service" | "sentinelServiceName");
    let services = parameters.iter().filter(|(key, _)| names_service(key));
    let services: Vec<_> = services.map(|(_, service)| service).collect();
    let [service] = services[..] else {
        return Err(
            "must name the service that the sentinels watch, once, as in ?service=mymaster"
                .to_owned(),
        );
    };
    let value = |name| one_of(&parameters, name);
    let password = value("sentinelPassword")?.map(Secret::new);
    let sentinel_credentials = Credentials {
        user: value("sentinelUsername")?,
        password: password.map_or(Password::None, Password::Text),
    };
    Ok(Sentinel {
        sentinels: nodes(parts.hosts, &parameters, SENTINEL_PORT)?,
        sentinel_credentials,
        service: service.clone(),
        credentials: parts.credentials()?,
        database: parts.database()?,
    })
}

fn cluster(parts: &UrlParts<'_>) -> Result<Cluster, String> {
    let parameters = parts.parameters(&["node"])?;
    if parts.database()?.is_some() {
        return Err("has a database, and a cluster has only one: leave out what is after the `/`"
            .to_owned());
    }
    Ok(Cluster {
        seeds: nodes(parts.hosts, &parameters, SERVER_PORT)?,
        credentials: parts.credentials()?,
    })
}

/// A URL after its scheme: `[userinfo@]hosts[/path][?query]`.
struct UrlParts<'a> {
    userinfo: Option<&'a str>,
    hosts: &'a str,
    path: &'a str,
    query: Option<&'a str>,
}

type Parameters<'a> = Vec<(&'a str, String)>;

impl<'a> UrlParts<'a> {
    fn of(rest: &'a str) -> Result<Self, String> {
        if rest.contains('#') {
            return Err("has a `#`; in a password write it as %23".to_owned());
        }
        let (rest, query) = match rest.split_once('?') {
            Some((rest, query)) => (rest, Some(query)),
            None => (rest, None),
        };
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        if path.contains('@') {
            return Err("has an `@` after a `/`; in a password write `/` as %2F".to_owned());
        }
        let (userinfo, hosts) = match authority.rsplit_once('@') {
            Some((userinfo, hosts)) => (Some(userinfo), hosts),
            None => (None, authority),
        };
        Ok(Self { userinfo, hosts, path, query })
    }

    fn credentials(&self) -> Result<Credentials, String> {
        let Some(userinfo) = self.userinfo else { return Ok(Credentials::default()) };
        let (user, password) = userinfo.split_once(':').unwrap_or((userinfo, ""));
        let user = Some(decoded(user)?).filter(|user| !user.is_empty());
        let password = Some(decoded(password)?).filter(|password| !password.is_empty());
        let password = password.map(Secret::new).map_or(Password::None, Password::Text);
        Ok(Credentials { user, password })
    }

    fn database(&self) -> Result<Option<u8>, String> {
        let number = match self.path {
            "" => return Ok(None),
            path if path.bytes().all(|byte| byte.is_ascii_digit()) => path.parse().ok(),
            _ => None,
        };
        let number: u8 = number
            .ok_or("has something after the `/` that is not a database number from 0 to 255")?;
        Ok(Some(number).filter(|number| *number > 0))
    }

    fn parameters(&self, keys: &[&str]) -> Result<Parameters<'a>, String> {
        let unknown = || {
            let known = keys.join(", ");
            format!("has a parameter (after the `?`) that is not one of {known}, each with a value")
        };
        let pairs = self.query.into_iter().flat_map(|query| query.split('&'));
        let pair = |pair: &'a str| {
            let known = |(key, value): &(&str, &str)| keys.contains(key) && !value.is_empty();
            let (key, value) = pair.split_once('=').filter(known).ok_or_else(unknown)?;
            Ok((key, decoded(value)?))
        };
        pairs.map(pair).collect()
    }
}

fn one_of(parameters: &Parameters<'_>, name: &str) -> Result<Option<String>, String> {
    let mut values = parameters.iter().filter(|(key, _)| *key == name).map(|(_, value)| value);
    match (values.next(), values.next()) {
        (Some(_), Some(_)) => Err(format!("has the parameter {name} twice")),
        (value, _) => Ok(value.cloned()),
    }
}

fn nodes(hosts: &str, parameters: &Parameters<'_>, port: u16) -> Result<Vec<HostPort>, String> {
    let more = parameters.iter().filter(|(key, _)| *key == "node").map(|(_, value)| value.as_str());
    let nodes: Vec<_> =
        hosts.split(',').chain(more).map(|host| node(host, port)).collect::<Result<_, _>>()?;
    distinct(nodes.iter())?;
    Ok(nodes)
}

fn distinct<'a>(nodes: impl Iterator<Item = &'a HostPort>) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    for node in nodes {
        if !seen.insert(node) {
            return Err(
                "names a server twice (a host and a port, in upper or lower case)".to_owned()
            );
        }
    }
    if seen.len() > NODES_MAX {
        return Err(format!("names more than {NODES_MAX} servers"));
    }
    Ok(())
}

/// Parses `HOST[:PORT]`, with an IPv6 address in brackets.
fn node(text: &str, default_port: u16) -> Result<HostPort, String> {
    const WRONG: &str = "has a host that is not a name, an IPv4 address or an IPv6 address in \
        brackets; write HOST:PORT, and in a password write `@` as %40 and `/` as %2F";
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let (address, port) = rest.split_once(']').ok_or(WRONG)?;
        let address: Ipv6Addr = address.parse().ok().ok_or(WRONG)?;
        (address.to_string(), port)
    } else {
        let (host, port) = text.split_at(text.find(':').unwrap_or(text.len()));
        let in_names = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        if host.is_empty() || !host.bytes().all(in_names) {
            return Err(WRONG.to_owned());
        }
        (host.to_ascii_lowercase(), port)
    };
    let port = match port.strip_prefix(':') {
        None if port.is_empty() => Some(default_port),
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => digits.parse().ok(),
        _ => None,
    };
    let port = port.filter(|port| *port > 0);
    let port = port.ok_or("has a port that is not a number from 1 to 65535")?;
    Ok(HostPort { host, port })
}

fn decoded(text: &str) -> Result<String, String> {
    let text = percent_decode_str(text).decode_utf8();
    let text =
        text.ok().ok_or("has a %XX that does not decode to UTF-8; write a percent sign as %25")?;
    Ok(text.into_owned())
}

#[cfg(test)]
mod tests;
