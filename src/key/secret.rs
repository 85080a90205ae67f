//! Hashes values in keys under a secret, so that they reveal no personal data.
//!
//! Keys are visible in Redis, its backups and its monitoring. A plain hash does not protect short
//! values such as addresses or user names: all of them can be tried. An HMAC under a secret that
//! only the replicas have prevents this. Each entry's name is part of the hashed text, so that
//! equal values of two entries look different. The secret cannot change while the service runs,
//! because a new one renames every counter.

use std::fmt;

use hmac::{Hmac, Mac};
use sha2::Sha256;

/// The shortest secret that cannot be brute-forced, in bytes.
const BYTES_MIN: usize = 16;

/// HMAC-SHA-256 under the secret; the secret itself is not kept.
#[derive(Clone)]
pub struct KeySecret(Hmac<Sha256>);

impl KeySecret {
    /// The HMAC key made from this secret.
    ///
    /// # Errors
    /// The secret is too short. The text is for people.
    pub fn of(secret: &[u8]) -> Result<Self, String> {
        if secret.len() < BYTES_MIN {
            return Err(format!(
                "holds {} bytes, and a secret needs at least {BYTES_MIN}: `openssl rand -hex 32` makes one",
                secret.len()
            ));
        }
        // HMAC takes a key of any length.
        Hmac::new_from_slice(secret).map(Self).map_err(|error| error.to_string())
    }

    /// The first 128 bits for a value of this entry. Equal values of two entries have different
    /// hashes, so that nobody sees that they are equal.
    pub(super) fn hash(&self, name: &str, value: &str) -> [u8; 16] {
        let mut mac = self.0.clone();
        // The length marks where the name ends.
        mac.update(&(name.len() as u64).to_be_bytes());
        mac.update(name.as_bytes());
        mac.update(value.as_bytes());
        let mut hash = [0; 16];
        hash.copy_from_slice(&mac.finalize().into_bytes()[..16]);
        hash
    }
}

impl fmt::Debug for KeySecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &[u8] = b"sixteen bytes...";

    #[test]
    fn a_hash_depends_on_secret_name_and_value() {
        let secret = KeySecret::of(SECRET).unwrap();
        let hash = secret.hash("user", "a");
        assert_eq!(hash, KeySecret::of(SECRET).unwrap().hash("user", "a"));
        let other = KeySecret::of(b"sixteen other...").unwrap();
        let others = [
            secret.hash("user", "b"),
            secret.hash("ip", "a"),
            secret.hash("use", "ra"),
            other.hash("user", "a"),
        ];
        assert!(!others.contains(&hash));
    }

    #[test]
    fn a_short_secret_is_refused_and_never_printed() {
        let error = KeySecret::of(b"hunter2").unwrap_err();
        assert!(error.contains("holds 7 bytes, and a secret needs at least 16"), "{error}");
        assert!(!error.contains("hunter2"), "{error}");
        assert_eq!(format!("{:?}", KeySecret::of(SECRET).unwrap()), "***");
    }
}
