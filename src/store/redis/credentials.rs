//! Who Tidegate is to Redis. Passwords are never printed, by whatever way.

use std::fmt;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use fred::error::{Error, ErrorKind};
use fred::types::config::{CredentialProvider, Server};

use crate::secret_file;

/// A text that is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

/// Where a password comes from.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Password {
    /// There is none.
    #[default]
    None,
    /// This one.
    Text(Secret),
    /// What the file holds at the moment of connecting, so that it can be changed.
    File(PathBuf),
}

/// A user and a password, or neither.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Credentials {
    /// The user of Redis's ACL; without one it is `default`.
    pub user: Option<String>,
    /// The password.
    pub password: Password,
}

impl Secret {
    /// Keeps a text from being printed.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text, for who sends it to the server.
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
    /// Whether there is neither.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The password as it is now: a file is read at each call, without the line end that it ends with.
    ///
    /// # Errors
    /// The file cannot be read, or holds no password.
    pub fn read_password(&self) -> Result<Option<Secret>, String> {
        match &self.password {
            Password::None => Ok(None),
            Password::Text(secret) => Ok(Some(secret.clone())),
            Password::File(path) => read_password(path).map(Some),
        }
    }
}

/// fred asks before each connection: a client built once follows a file that changes.
#[async_trait]
impl CredentialProvider for Credentials {
    async fn fetch(&self, _: Option<&Server>) -> Result<(Option<String>, Option<String>), Error> {
        // A few bytes of a local file, once a connection: not worth a thread.
        let password = self.read_password().map_err(|error| Error::new(ErrorKind::Auth, error))?;
        Ok((self.user.clone(), password.map(|password| password.0)))
    }
}

fn read_password(path: &Path) -> Result<Secret, String> {
    let wrong = |what: &str| format!("--store-password-file {}: {what}", path.display());
    let bytes = secret_file::read(path).map_err(|what| format!("--store-password-file {what}"))?;
    // The error of the standard library would show where the text ends, no more; the bytes not.
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
    fn a_file_is_read_at_each_call_and_one_line_end_left_off() {
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
    fn a_file_without_a_password_is_named_with_its_flag() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("password");
        let said = |bytes: &[u8]| {
            fs::write(&path, bytes).unwrap();
            let error = of_file(&path).read_password().unwrap_err();
            let start = format!("--store-password-file {}: ", path.display());
            error.strip_prefix(&start).unwrap_or_else(|| panic!("{error}")).to_owned()
        };
        assert_eq!(said(b"\n"), "is empty; write the password into it");
        assert_eq!(said(b"hunter2\xff"), "is not UTF-8");
        assert_eq!(said(&[b'x'; 4_097]), "is longer than 4096 bytes");
        assert!(of_file(&folder.path().join("none")).read_password().is_err());
    }
}
