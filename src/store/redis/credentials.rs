//! The user and password to log in to Redis with.
//!
//! Passwords are never printed: [`Secret`] formats as `***`, also with `Debug`. A password in a
//! file is read again before each connection, so that it can be rotated without a restart.

use std::fmt;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use fred::error::{Error, ErrorKind};
use fred::types::config::{CredentialProvider, Server};

use crate::secret_file;

/// A text that is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

/// The source of a password.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Password {
    /// No password.
    #[default]
    None,
    /// This text.
    Text(Secret),
    /// The content of a file, read before each connection, so that it can be rotated.
    File(PathBuf),
}

/// A user and a password, or neither.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Credentials {
    /// The ACL user of Redis; `None` is the user `default`.
    pub user: Option<String>,
    /// The password.
    pub password: Password,
}

impl Secret {
    /// Wraps a text, so that it is not printed.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself, to send to the server.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl Credentials {
    /// Whether there is neither a user nor a password.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The current password. A file is read on each call, without one line end at its end.
    ///
    /// # Errors
    /// The file cannot be read, or has no password in it.
    pub fn read_password(&self) -> Result<Option<Secret>, String> {
        match &self.password {
            Password::None => Ok(None),
            Password::Text(secret) => Ok(Some(secret.clone())),
            Password::File(path) => read_password(path).map(Some),
        }
    }
}

/// fred calls this before each connection, so a client follows a file that changes.
#[async_trait]
impl CredentialProvider for Credentials {
    async fn fetch(&self, _: Option<&Server>) -> Result<(Option<String>, Option<String>), Error> {
        // Blocking is fine: it reads a few bytes of a local file, once per connection.
        let password = self.read_password().map_err(|error| Error::new(ErrorKind::Auth, error))?;
        Ok((self.user.clone(), password.map(|password| password.0)))
    }
}

fn read_password(path: &Path) -> Result<Secret, String> {
    let wrong = |what: &str| format!("--store-password-file {}: {what}", path.display());
    let bytes = secret_file::read(path).map_err(|what| format!("--store-password-file {what}"))?;
    // The error of the standard library is dropped: its `Debug` output would show the bytes.
    let text = String::from_utf8(bytes).ok().ok_or_else(|| wrong("is not UTF-8"))?;
    if text.is_empty() {
        return Err(wrong("is empty; write the password into it"));
    }
    Ok(Secret::new(text))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn of_file(path: &Path) -> Credentials {
        Credentials { user: None, password: Password::File(path.to_owned()) }
    }

    #[test]
    fn a_password_is_not_printed() {
        let secret = Secret::new("hunter2");
        assert_eq!(format!("{secret} {secret:?} {secret:#?}"), "*** *** ***");
        let credentials =
            Credentials { user: Some("tide".to_owned()), password: Password::Text(secret) };
        assert!(!format!("{credentials:?} {credentials:#?}").contains("hunter2"));
        assert_eq!(credentials.read_password().unwrap().unwrap().expose(), "hunter2");
    }

    #[test]
    fn a_file_is_read_on_each_call_without_one_line_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("password");
        for (text, password) in [
            ("one", "one"),
            ("two\n", "two"),
            ("three\r\n", "three"),
            ("four\n\n", "four\n"),
            (" five ", " five "),
        ] {
            fs::write(&path, text).unwrap();
            let read = of_file(&path).read_password().unwrap().unwrap();
            assert_eq!(read.expose(), password);
        }
    }

    #[test]
    fn an_error_names_the_file_and_its_flag() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("password");
        let error_of = |bytes: &[u8]| {
            fs::write(&path, bytes).unwrap();
            let error = of_file(&path).read_password().unwrap_err();
            let start = format!("--store-password-file {}: ", path.display());
            error.strip_prefix(&start).unwrap_or_else(|| panic!("{error}")).to_owned()
        };
        assert_eq!(error_of(b"\n"), "is empty; write the password into it");
        assert_eq!(error_of(b"hunter2\xff"), "is not UTF-8");
        assert_eq!(error_of(&[b'x'; 4_097]), "is longer than 4096 bytes");
        assert!(of_file(&folder.path().join("none")).read_password().is_err());
    }
}
