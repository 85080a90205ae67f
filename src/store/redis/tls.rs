//! TLS to Redis: the authorities to trust, and the client certificate.
//!
//! [`crate::tls`] reads the files and builds the configuration. This module only names the flags in
//! its errors.

use fred::types::config::TlsConnector;

pub use crate::tls::{ClientFiles, TlsFiles};
use crate::tls::{Flags, client_config};

const FLAGS: Flags = Flags {
    ca: "--store-ca-file",
    cert: "--store-cert-file",
    key: "--store-key-file",
    peer: "Redis",
};

/// The TLS configuration of connections: TLS 1.2 or 1.3, always with verification of the server.
///
/// # Errors
/// A file cannot be read or does not have what it should, or the machine has no authorities. The
/// message names the flag and never shows a key.
pub fn tls_config(files: &TlsFiles) -> Result<TlsConnector, String> {
    Ok(client_config(files, &FLAGS)?.into())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::*;

    struct Files {
        folder: tempfile::TempDir,
    }

    impl Files {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            for name in ["one", "two"] {
                let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
                fs::write(folder.path().join(format!("{name}.crt")), made.cert.pem()).unwrap();
                let key = made.signing_key.serialize_pem();
                fs::write(folder.path().join(format!("{name}.key")), key).unwrap();
            }
            fs::write(folder.path().join("text"), "hunter2").unwrap();
            Self { folder }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.folder.path().join(name)
        }

        fn client(&self, cert: &str, key: &str) -> TlsFiles {
            let client = ClientFiles { cert: self.path(cert), key: self.path(key) };
            TlsFiles { ca: Some(self.path("one.crt")), client: Some(client) }
        }

        fn ca(&self, name: &str) -> TlsFiles {
            TlsFiles { ca: Some(self.path(name)), client: None }
        }

        /// The error without the folder.
        fn wrong(&self, files: &TlsFiles) -> String {
            let folder = format!("{}/", self.folder.path().display());
            tls_config(files).unwrap_err().replace(&folder, "")
        }
    }

    #[test]
    fn files_of_an_authority_and_a_client_are_accepted() {
        let files = Files::new();
        tls_config(&files.ca("one.crt")).unwrap();
        tls_config(&files.client("two.crt", "two.key")).unwrap();
    }

    #[test]
    fn an_error_names_the_file_and_its_flag() {
        let files = Files::new();
        let errors = [
            files.wrong(&files.ca("text")),
            files.wrong(&files.ca("one.key")),
            files.wrong(&files.client("text", "one.key")),
            files.wrong(&files.client("one.crt", "text")),
            files.wrong(&files.client("one.crt", "one.crt")),
        ];
        assert_eq!(
            errors,
            [
                "--store-ca-file text: holds no certificate in PEM",
                "--store-ca-file one.key: holds no certificate in PEM",
                "--store-cert-file text: holds no certificate in PEM",
                "--store-key-file text: holds no private key in PEM",
                "--store-key-file one.crt: holds no private key in PEM",
            ]
        );
        let missing = files.wrong(&files.ca("none"));
        assert!(missing.starts_with("--store-ca-file none: No such file"), "{missing}");
        let other = files.wrong(&files.client("one.crt", "two.key"));
        assert!(
            other.starts_with("--store-cert-file one.crt, --store-key-file two.key: "),
            "{other}"
        );
    }
}
