//! Settings of the store, for every command that opens one.

use std::env;
use std::ffi::OsStr;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use clap::builder::TypedValueParser;
use clap::error::ErrorKind;

use crate::store::redis::access::Access;
use crate::store::redis::credentials::{Credentials, Password, Secret};
use crate::store::redis::tls::{ClientFiles, TlsFiles};
use crate::store::redis::url::Address;

/// The variable for Redis's password. There is no flag, because other users of the machine can read
/// flags.
const PASSWORD: &str = "TIDEGATE_STORE_PASSWORD";

/// The store, and how to reach it.
#[derive(Args, Clone, Debug)]
pub struct Store {
    /// The store: `memory` (in this process), or a Redis that replicas share
    ///
    /// `redis://[USER:PASSWORD@]HOST:PORT[/DB]` is one server; several, separated by commas, are
    /// independent servers that share the keys. `redis-sentinel://HOST:PORT,…[/DB]?service=NAME`
    /// and `redis-cluster://HOST:PORT,…` list some of the sentinels or nodes. With rediss instead
    /// of redis, connections use TLS.
    #[arg(
        id = "store",
        long = "store",
        env = "TIDEGATE_STORE",
        hide_env_values = true,
        value_parser = StoreUrlParser,
        default_value = "memory",
        value_name = "URL"
    )]
    pub url: StoreUrl,
    /// Redis user, unless the URL has one
    #[arg(
        id = "store_user",
        long = "store-user",
        env = "TIDEGATE_STORE_USER",
        value_name = "USER"
    )]
    pub user: Option<String>,
    /// A file with Redis's password, read again for each connection. The variable
    /// TIDEGATE_STORE_PASSWORD may hold the password instead
    #[arg(
        id = "store_password_file",
        long = "store-password-file",
        env = "TIDEGATE_STORE_PASSWORD_FILE",
        value_name = "FILE"
    )]
    pub password_file: Option<PathBuf>,
    /// Certificate authorities (PEM) to verify Redis with; unset: those of this machine
    #[arg(
        id = "store_ca_file",
        long = "store-ca-file",
        env = "TIDEGATE_STORE_CA_FILE",
        value_name = "FILE"
    )]
    pub ca_file: Option<PathBuf>,
    /// Client certificate (PEM) for Redis
    #[arg(
        id = "store_cert_file",
        long = "store-cert-file",
        env = "TIDEGATE_STORE_CERT_FILE",
        value_name = "FILE"
    )]
    pub cert_file: Option<PathBuf>,
    /// Key (PEM) of that certificate
    #[arg(
        id = "store_key_file",
        long = "store-key-file",
        env = "TIDEGATE_STORE_KEY_FILE",
        value_name = "FILE"
    )]
    pub key_file: Option<PathBuf>,
}

/// The value of `--store`.
#[derive(Clone)]
pub enum StoreUrl {
    /// In this process.
    Memory,
    /// In Redis.
    Redis(Box<Address>),
}

impl Store {
    /// How to reach Redis; `None` for memory, which ignores the other flags.
    ///
    /// # Errors
    /// The flags contradict each other, or a file cannot be read. The message names it.
    pub fn access(&self) -> Result<Option<Access>, String> {
        self.access_with(env::var_os(PASSWORD).as_deref())
    }

    fn access_with(&self, password: Option<&OsStr>) -> Result<Option<Access>, String> {
        let StoreUrl::Redis(address) = &self.url else { return Ok(None) };
        let credentials = self.credentials(password)?;
        let access = Access::new((**address).clone(), &credentials, &self.tls_files()?)?;
        Ok(Some(access))
    }

    fn credentials(&self, password: Option<&OsStr>) -> Result<Credentials, String> {
        let password = match (password, &self.password_file) {
            (Some(_), Some(_)) => {
                return Err(format!(
                    "--store-password-file and {PASSWORD} are both set: leave one out"
                ));
            }
            (None, None) => Password::None,
            (None, Some(path)) => Password::File(path.clone()),
            (Some(text), None) => {
                let text = text.to_str().filter(|text| !text.is_empty());
                let text = text.ok_or_else(|| {
                    format!("{PASSWORD} is empty or not UTF-8: unset it, or set it to the password")
                })?;
                Password::Text(Secret::new(text))
            }
        };
        if self.user.as_deref() == Some("") {
            return Err("--store-user is empty: leave it out, or name a user".to_owned());
        }
        Ok(Credentials { user: self.user.clone(), password })
    }

    fn tls_files(&self) -> Result<TlsFiles, String> {
        let flags = ["--store-cert-file", "--store-key-file"];
        let client = ClientFiles::of([&self.cert_file, &self.key_file], flags)?;
        Ok(TlsFiles { ca: self.ca_file.clone(), client })
    }
}

/// Parses [`StoreUrl`]s. Unlike clap's own parser it does not repeat a bad URL, which may contain a
/// password.
#[derive(Clone)]
struct StoreUrlParser;

impl TypedValueParser for StoreUrlParser {
    type Value = StoreUrl;

    fn parse_ref(
        &self,
        command: &clap::Command,
        _arg: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<StoreUrl, clap::Error> {
        value.to_string_lossy().parse().map_err(|error| {
            let message = format!("the value of --store {error}\n");
            clap::Error::raw(ErrorKind::ValueValidation, message).with_cmd(command)
        })
    }
}

/// Shows the kind and the servers, and no credentials.
impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("memory"),
            Self::Redis(address) => address.fmt(f),
        }
    }
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("memory"),
            Self::Redis(address) => f.write_str(address.endpoints.name()),
        }
    }
}

impl FromStr for StoreUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "memory" {
            return Ok(Self::Memory);
        }
        Ok(Self::Redis(Box::new(text.parse()?)))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::Parser;

    use super::*;
    use crate::store::redis::url::Endpoints;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        store: Store,
    }

    /// The parsed settings, with or without a password in the environment.
    fn access(flags: &[&str], password: Option<&str>) -> Result<Option<Access>, String> {
        let cli = Cli::try_parse_from([&["tidegate"], flags].concat());
        cli.map_err(|error| error.to_string())?.store.access_with(password.map(OsStr::new))
    }

    fn refused(flags: &[&str], password: Option<&str>) -> String {
        let error = access(flags, password).unwrap_err();
        assert!(!error.contains("hunter2"), "{error}");
        error
    }

    const REDIS: [&str; 2] = ["--store", "redis://a:1"];

    fn with<'a>(flags: &[&'a str]) -> Vec<&'a str> {
        [&REDIS, flags].concat()
    }

    fn credentials(access: &Access) -> &Credentials {
        let Endpoints::Standalone(server) = access.endpoints() else { panic!("not one server") };
        &server.credentials
    }

    #[test]
    fn memory_is_the_default_and_needs_nothing_else() {
        assert!(access(&[], Some("hunter2")).unwrap().is_none());
        assert!(access(&["--store", "memory", "--store-user", "u"], None).unwrap().is_none());
    }

    #[test]
    fn credentials_come_from_flags_and_the_environment() {
        let access = access(&with(&["--store-user", "tide"]), Some("hunter2")).unwrap().unwrap();
        let credentials = credentials(&access);
        assert_eq!(credentials.user.as_deref(), Some("tide"));
        assert_eq!(credentials.password, Password::Text(Secret::new("hunter2")));
        assert!(!format!("{access:?}").contains("hunter2"));
    }

    #[test]
    fn a_password_file_is_named_and_not_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("password");
        let flags = ["--store-password-file", path.to_str().unwrap()];
        let error = refused(&with(&flags), None);
        assert!(error.starts_with("--store-password-file "), "{error}");
        std::fs::write(&path, "hunter2\n").unwrap();
        let access = access(&with(&flags), None).unwrap().unwrap();
        assert_eq!(credentials(&access).password, Password::File(path));
    }

    #[test]
    fn what_does_not_go_together_is_refused_with_the_fix() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        let file = file.to_str().unwrap();
        let in_url = ["--store", "redis://:hunter2@a:1"];
        for (flags, password, part) in [
            (with(&["--store-user", "u"]), None, "has no password: set --store-password-file or"),
            (with(&["--store-user", ""]), Some("hunter2"), "--store-user is empty"),
            (with(&[]), Some(""), "TIDEGATE_STORE_PASSWORD is empty"),
            (with(&["--store-password-file", file]), Some("hunter2"), "are both set"),
            (in_url.to_vec(), Some("hunter2"), "has a user or password too: leave one of both out"),
            ([&in_url[..], &["--store-user", "u"]].concat(), None, "leave one of both out"),
            (vec!["--store", "redis://u@a:1"], None, "has no password"),
            (with(&["--store-ca-file", file]), None, "begin the URL of --store with rediss"),
            (with(&["--store-cert-file", file]), None, "need each other"),
            (
                vec!["--store", "redis-sentinel://a?service=s&sentinelUsername=u"],
                None,
                "needs sentinelPassword",
            ),
        ] {
            let error = refused(&flags, password);
            assert!(error.contains(part), "{flags:?}: {error}");
        }
    }

    #[test]
    fn what_is_printed_of_settings_shows_no_url() {
        let cli = Cli::try_parse_from(["tidegate", "--store", "redis://:hunter2@a:1"]).unwrap();
        let printed = format!("{cli:?}");
        assert!(printed.contains("standalone") && !printed.contains("hunter2"), "{printed}");
    }
}
