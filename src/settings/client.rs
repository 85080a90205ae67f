//! Settings of commands that call a running service.

use std::path::PathBuf;

use clap::Args;

use crate::tls::{ClientFiles, TlsFiles};

/// TLS to the service.
#[derive(Args, Clone, Debug, Default)]
pub struct Client {
    /// Certificate authorities (PEM) to verify the service with, over TLS. Without it, https://
    /// addresses are verified with this machine's authorities
    #[arg(long, env = "TIDEGATE_CA_FILE", value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
    /// Client certificate (PEM)
    #[arg(long, env = "TIDEGATE_CERT_FILE", value_name = "FILE")]
    pub cert_file: Option<PathBuf>,
    /// Key (PEM) of the client certificate
    #[arg(long, env = "TIDEGATE_KEY_FILE", value_name = "FILE")]
    pub key_file: Option<PathBuf>,
}

impl Client {
    /// The TLS files, if any are set.
    ///
    /// # Errors
    /// A certificate without a key, or a key without a certificate.
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
