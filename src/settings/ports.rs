//! Settings of the gRPC and the HTTP port: address, certificates and allowed callers.

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;

use crate::tls::ClientFiles;

/// A listen address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// An address and a port; port 0 takes a free one.
    Tcp(SocketAddr),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix("unix:") {
            // As gRPC names them: unix:path, unix:///path.
            Some(path) => match path.strip_prefix("//").unwrap_or(path) {
                "" => Err("names no path, as in unix:/run/tidegate.sock".to_owned()),
                path => Ok(Self::Unix(path.into())),
            },
            None => resolved(text).map(Self::Tcp).map_err(|error| {
                format!(
                    "{error}; write it like 127.0.0.1:8081, localhost:8081 or unix:/run/tidegate.sock"
                )
            }),
        }
    }
}

/// Resolves a name, to IPv4 if possible: `localhost` mostly has both, and clients try IPv4.
fn resolved(text: &str) -> io::Result<SocketAddr> {
    let mut addrs: Vec<_> = text.to_socket_addrs()?.collect();
    addrs.sort_by_key(SocketAddr::is_ipv6);
    addrs.into_iter().next().ok_or_else(|| io::Error::other("the name has no address"))
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(addr) => addr.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// The ports.
#[derive(Args, Clone, Debug)]
pub struct Ports {
    /// Address of the gRPC port: HOST:PORT, where port 0 takes a free one, or unix:PATH
    #[arg(long, env = "TIDEGATE_GRPC_ADDR", default_value = "127.0.0.1:8081", value_name = "ADDR")]
    pub grpc_addr: Address,
    /// Certificate (PEM) of the gRPC port, reloaded when it changes; unset: no TLS
    #[arg(long, env = "TIDEGATE_GRPC_CERT_FILE", value_name = "FILE")]
    pub grpc_cert_file: Option<PathBuf>,
    /// Key (PEM) of that certificate
    #[arg(long, env = "TIDEGATE_GRPC_KEY_FILE", value_name = "FILE")]
    pub grpc_key_file: Option<PathBuf>,
    /// Certificate authorities (PEM) of gRPC callers. If set, callers must present a certificate
    #[arg(long, env = "TIDEGATE_GRPC_CLIENT_CA_FILE", value_name = "FILE")]
    pub grpc_client_ca_file: Option<PathBuf>,
    /// Allow only callers whose certificate has this DNS name or URI; may be repeated
    #[arg(
        long,
        visible_alias = "allow-client-san",
        env = "TIDEGATE_GRPC_ALLOW_CLIENT_SAN",
        value_delimiter = ',',
        value_name = "NAME"
    )]
    pub grpc_allow_client_san: Vec<String>,
    /// Address of the HTTP port, as --grpc-addr
    #[arg(long, env = "TIDEGATE_HTTP_ADDR", default_value = "127.0.0.1:8080", value_name = "ADDR")]
    pub http_addr: Address,
    /// Certificate (PEM) of the HTTP port, reloaded when it changes; unset: no TLS
    #[arg(long, env = "TIDEGATE_HTTP_CERT_FILE", value_name = "FILE")]
    pub http_cert_file: Option<PathBuf>,
    /// Key (PEM) of that certificate
    #[arg(long, env = "TIDEGATE_HTTP_KEY_FILE", value_name = "FILE")]
    pub http_key_file: Option<PathBuf>,
    /// As --grpc-client-ca-file
    #[arg(long, env = "TIDEGATE_HTTP_CLIENT_CA_FILE", value_name = "FILE")]
    pub http_client_ca_file: Option<PathBuf>,
    /// As --grpc-allow-client-san
    #[arg(
        long,
        env = "TIDEGATE_HTTP_ALLOW_CLIENT_SAN",
        value_delimiter = ',',
        value_name = "NAME"
    )]
    pub http_allow_client_san: Vec<String>,
    /// Names of the HTTP port, separated by commas, under which browsers may show /limits and /top,
    /// beside addresses, one word, and names that end in .internal, .local, .localhost or .svc
    #[arg(long, env = "TIDEGATE_HTTP_HOSTS", value_delimiter = ',', value_name = "NAMES")]
    pub http_hosts: Vec<String>,
}

/// The TLS settings of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Secured {
    /// The prefix of its flags: `grpc` or `http`.
    pub port: &'static str,
    /// The port's certificate.
    pub own: ClientFiles,
    /// The authorities of its callers; `None`: callers need no certificate.
    pub client_ca: Option<PathBuf>,
    /// The allowed names of callers; empty: all that the authorities certified.
    pub names: Vec<String>,
}

impl Secured {
    /// The name of a flag: `--grpc-cert-file` for `cert-file`.
    pub fn flag(&self, of: &str) -> String {
        flag(self.port, of)
    }
}

fn flag(port: &str, of: &str) -> String {
    format!("--{port}-{of}")
}

impl Ports {
    /// TLS on the gRPC port, if it is enabled.
    ///
    /// # Errors
    /// A flag is set without the one it depends on. The message names both.
    pub fn grpc(&self) -> Result<Option<Secured>, String> {
        let (cert, key) = (&self.grpc_cert_file, &self.grpc_key_file);
        secured("grpc", [cert, key, &self.grpc_client_ca_file], &self.grpc_allow_client_san)
    }

    /// TLS on the HTTP port, if it is enabled.
    ///
    /// # Errors
    /// As [`Ports::grpc`].
    pub fn http(&self) -> Result<Option<Secured>, String> {
        let (cert, key) = (&self.http_cert_file, &self.http_key_file);
        secured("http", [cert, key, &self.http_client_ca_file], &self.http_allow_client_san)
    }
}

fn secured(
    port: &'static str,
    [cert, key, client_ca]: [&Option<PathBuf>; 3],
    names: &[String],
) -> Result<Option<Secured>, String> {
    let flag = |of| flag(port, of);
    let needs = |one, other| Err(format!("{} needs {}", flag(one), flag(other)));
    if !names.is_empty() && client_ca.is_none() {
        return needs("allow-client-san", "client-ca-file");
    }
    match ClientFiles::of([cert, key], [&flag("cert-file"), &flag("key-file")])? {
        Some(own) => {
            Ok(Some(Secured { port, own, client_ca: client_ca.clone(), names: names.to_vec() }))
        }
        None if client_ca.is_none() => Ok(None),
        None => needs("client-ca-file", "cert-file"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_of_a_port_or_of_a_socket() {
        let tcp = "127.0.0.1:8081".parse().unwrap();
        assert_eq!("127.0.0.1:8081".parse(), Ok(Address::Tcp(tcp)));
        assert_eq!("localhost:8081".parse(), Ok(Address::Tcp(tcp)));
        for text in ["unix:/run/t.sock", "unix:///run/t.sock"] {
            let address: Address = text.parse().unwrap();
            assert_eq!(address, Address::Unix("/run/t.sock".into()));
            assert_eq!(address.to_string(), "unix:/run/t.sock");
        }
        for wrong in ["", "unix:", "unix://", "localhost", "8081"] {
            assert!(wrong.parse::<Address>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn settings_that_go_together_are_named_together() {
        let some = Some(PathBuf::from("file"));
        let wrong = |files, names: &[String]| secured("http", files, names).unwrap_err();
        let pair = "--http-cert-file and --http-key-file need each other";
        assert_eq!(wrong([&some, &None, &None], &[]), pair);
        assert_eq!(wrong([&None, &some, &None], &[]), pair);
        let ca = wrong([&None, &None, &some], &[]);
        assert_eq!(ca, "--http-client-ca-file needs --http-cert-file");
        let name = wrong([&some, &some, &None], &["a".to_owned()]);
        assert_eq!(name, "--http-allow-client-san needs --http-client-ca-file");
        assert_eq!(secured("http", [&None; 3], &[]), Ok(None));
    }
}
