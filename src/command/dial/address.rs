//! The value of `--addr`.

use std::fmt;

use rustls::pki_types::ServerName;

/// A parsed address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) destination: Destination,
    pub(super) is_https: bool,
}

/// Where to connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Destination {
    Tcp { host: String, port: u16 },
    Unix(String),
}

impl Address {
    /// Parses an address; `port` is used if it has none.
    ///
    /// # Errors
    /// It is no address. The message says how to write one.
    pub(super) fn parse(text: &str, port: u16) -> Result<Self, String> {
        let (rest, is_https) = match text.strip_prefix("https://") {
            Some(rest) => (rest, true),
            None => (text.strip_prefix("http://").unwrap_or(text), false),
        };
        if let Some(path) = rest.strip_prefix("unix:") {
            let path = path.strip_prefix("//").unwrap_or(path).to_owned();
            return Ok(Self { destination: Destination::Unix(path), is_https });
        }
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = split(rest, port)?;
        if host.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(format!("names no host: write 127.0.0.1:{rest}"));
        }
        if host.contains(|c: char| c.is_whitespace() || "/@?#,=".contains(c)) {
            let example = format!("HOST:{port}, https://HOST:{port} or unix:PATH");
            return Err(format!("is not an address; write {example}"));
        }
        Ok(Self { destination: Destination::Tcp { host: host.to_owned(), port }, is_https })
    }

    /// The name that the certificate must have.
    ///
    /// # Errors
    /// The host cannot be the name of a certificate.
    pub(super) fn server_name(&self) -> Result<ServerName<'static>, String> {
        let host = match &self.destination {
            Destination::Tcp { host, .. } => host.as_str(),
            Destination::Unix(_) => "localhost",
        };
        ServerName::try_from(host.to_owned()).map_err(|error| format!("--addr: {error}"))
    }
}

/// The host, without brackets, and the port.
fn split(text: &str, default_port: u16) -> Result<(&str, u16), String> {
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, port)) => (host, port.strip_prefix(':')),
        // More than one colon is an IPv6 address without a port.
        None if text.matches(':').count() > 1 => (text, None),
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    let host = if host.is_empty() && port.is_some() { "127.0.0.1" } else { host };
    match port {
        None => Ok((host, default_port)),
        Some(port) => match port.parse() {
            Ok(port) if port > 0 => Ok((host, port)),
            Ok(_) | Err(_) => Err(format!("the port {port:?} is not a number from 1 to 65535")),
        },
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.destination {
            Destination::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Destination::Tcp { host, port } => write!(f, "{host}:{port}"),
            Destination::Unix(path) => write!(f, "unix:{path}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_without_a_port_has_the_usual_one() {
        for (text, shown, is_https) in [
            ("localhost", "localhost:8081", false),
            ("localhost:9", "localhost:9", false),
            ("127.0.0.1", "127.0.0.1:8081", false),
            (":9000", "127.0.0.1:9000", false),
            ("https://edge.example", "edge.example:8081", true),
            ("http://edge.example:80/", "edge.example:80", false),
            ("::1", "[::1]:8081", false),
            ("[::1]", "[::1]:8081", false),
            ("[::1]:9", "[::1]:9", false),
            ("unix:/run/t.sock", "unix:/run/t.sock", false),
            ("unix:///run/t.sock", "unix:/run/t.sock", false),
        ] {
            let address = Address::parse(text, 8081).unwrap();
            assert_eq!(
                (address.to_string().as_str(), address.is_https),
                (shown, is_https),
                "{text}"
            );
        }
    }

    #[test]
    fn what_is_no_address_is_refused_with_the_way_to_write_one() {
        for (text, part) in [
            ("8081", "write 127.0.0.1:8081"),
            ("", "names no host"),
            ("localhost:grpc", "\"grpc\" is not a number from 1 to 65535"),
            ("localhost:70000", "is not a number"),
            ("no address", "is not an address; write HOST:8081"),
            ("http://host/top", "is not an address"),
            ("user@host:1", "is not an address"),
        ] {
            let error = Address::parse(text, 8081).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
