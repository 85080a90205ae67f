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
        let flags = ["--cert-file", "--key-file"];
        let client = ClientFiles::of([&self.cert_file, &self.key_file], flags)?;
        let files = TlsFiles { ca: self.ca_file.clone(), client };
        Ok(Some(files).filter(|files| *files != TlsFiles::default()))
    }
}
