//! Settings of commands that ask a running service: whom to trust, and who they are.

use std::path::PathBuf;

use clap::Args;

use crate::tls::{ClientFiles, TlsFiles};

/// How a service is asked that is served with TLS.
#[derive(Args, Clone, Debug, Default)]
pub struct Client {
    /// Certificate authorities (PEM) to verify the service with, by TLS; an address of https:// trusts
    /// this machine's
    #[arg(long, env = "TIDEGATE_CA_FILE", value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
    /// Certificate (PEM) to show to the service
    #[arg(long, env = "TIDEGATE_CERT_FILE", value_name = "FILE")]
    pub cert_file: Option<PathBuf>,
    /// Key (PEM) of that certificate
    #[arg(long, env = "TIDEGATE_KEY_FILE", value_name = "FILE")]
    pub key_file: Option<PathBuf>,
}

impl Client {
    /// Those files, if any of them is named.
    ///
    /// # Errors
    /// A certificate has no key, or a key no certificate.
    pub fn tls(&self) -> Result<Option<TlsFiles>, String> {
        let client = match (&self.cert_file, &self.key_file) {
            (None, None) => None,
            (Some(cert), Some(key)) => Some(ClientFiles { cert: cert.clone(), key: key.clone() }),
            _ => return Err("--cert-file and --key-file need each other".to_owned()),
        };
        let files = TlsFiles { ca: self.ca_file.clone(), client };
        Ok(Some(files).filter(|files| *files != TlsFiles::default()))
    }
}
