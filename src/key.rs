//! The one place that spells a stored key.
//!
//! `tg:{edge}:tenant=acme,path=/login:log:1h`: the hash tag, the path of entries, the algorithm
//! and the period. The tag is the domain, or with `slot_by` the domain and those entries:
//! `{edge,tenant=acme}`. Reading from the left, the tag ends at the first `}`; from the right,
//! period and algorithm hold no `:`; so the path between them may hold one. Inside a path, the
//! bytes that separate (`,` and `=` in an entry's key), braces, `%`, `#`, spaces and controls are
//! written as `%XX`. What is longer than 128 bytes is written as `#` and the first 128 bits of
//! its SHA-256, which nobody can steer into another's counter; so is a path of over 1,024 bytes.

use std::fmt;
use std::hash::BuildHasher;
use std::sync::LazyLock;

use rapidhash::fast::RandomState;
use sha2::{Digest, Sha256};

use crate::limit::{Algorithm, Limit, Shape, format_period};

/// The longest text that stands in a key as it is.
const READABLE_MAX: usize = 128;

/// The longest path that stands in a key as it is.
const PATH_MAX: usize = 1_024;

/// The bytes that name one counter.
#[derive(Clone, PartialEq, Eq)]
pub struct Key {
    /// Compared first: most keys that differ differ here.
    hash: u64,
    bytes: Vec<u8>,
}

/// Seeded at random, so that no caller can choose keys that collide in our tables.
static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// What a counter counts: the parts that a key is spelled from.
#[derive(Clone, Copy, Debug)]
pub struct Counter<'a> {
    /// Before every key: `tg`, or a prefix that a replay chose.
    pub prefix: &'a str,
    /// The domain.
    pub domain: &'a str,
    /// Entries whose values choose the slot, where the path has all of them.
    pub slot_by: &'a [String],
    /// The path of entries asked about.
    pub entries: &'a [(String, String)],
    /// The limit, of which algorithm and period are named.
    pub limit: &'a Limit,
    /// Tells limits of one rule with the same algorithm and period apart.
    pub ordinal: u8,
}

impl Key {
    /// Spells the key of a counter.
    pub fn of(counter: &Counter<'_>) -> Self {
        let mut key = Vec::with_capacity(96);
        key.extend_from_slice(counter.prefix.as_bytes());
        key.extend_from_slice(b":{");
        push_text(&mut key, counter.domain, false);
        push_slot(&mut key, counter);
        key.extend_from_slice(b"}:");
        push_path(&mut key, counter.entries);
        key.push(b':');
        push_algorithm(&mut key, counter.limit);
        key.push(b':');
        key.extend_from_slice(format_period(counter.limit.period_ms()).as_bytes());
        if counter.ordinal > 0 {
            key.push(b'#');
            key.extend_from_slice(counter.ordinal.to_string().as_bytes());
        }
        Self::of_bytes(key)
    }

    /// The key of these bytes, as [`Key::of`] spelled them.
    pub(crate) fn of_bytes(bytes: impl Into<Vec<u8>>) -> Self {
        let bytes = bytes.into();
        Self { hash: HASHER.hash_one(&bytes), bytes }
    }

    /// The key's bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// A hash of the bytes, of this process only.
    pub const fn hash(&self) -> u64 {
        self.hash
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.bytes))
    }
}

/// The entries that choose the slot, where the path has all of them.
fn push_slot(key: &mut Vec<u8>, counter: &Counter<'_>) {
    let entry = |name: &String| counter.entries.iter().find(|(key, _)| key == name);
    let slot: Option<Vec<_>> = counter.slot_by.iter().map(entry).collect();
    for entry in slot.unwrap_or_default() {
        key.push(b',');
        push_entry(key, entry);
    }
}

/// The entries; a path too long for a key as `#` and its hash, which no path as it is looks like,
/// for that has a `=`.
fn push_path(key: &mut Vec<u8>, entries: &[(String, String)]) {
    let start = key.len();
    for (at, entry) in entries.iter().enumerate() {
        if at > 0 {
            key.push(b',');
        }
        push_entry(key, entry);
    }
    if key.len() - start > PATH_MAX {
        let path = key.split_off(start);
        push_hash(key, &path);
    }
}

fn push_entry(key: &mut Vec<u8>, (name, value): &(String, String)) {
    push_text(key, name, true);
    key.push(b'=');
    push_text(key, value, false);
}

fn push_text(key: &mut Vec<u8>, text: &str, names_entry: bool) {
    if text.len() > READABLE_MAX {
        push_hash(key, text.as_bytes());
        return;
    }
    for byte in text.bytes() {
        let separates = matches!(byte, b',' | b'{' | b'}' | b'%' | b'#' | 0..=b' ' | 0x7f);
        if separates || (names_entry && byte == b'=') {
            push_escaped(key, byte);
        } else {
            key.push(byte);
        }
    }
}

fn push_hash(key: &mut Vec<u8>, text: &[u8]) {
    key.push(b'#');
    for byte in &Sha256::digest(text)[..16] {
        push_hex(key, *byte);
    }
}

fn push_escaped(key: &mut Vec<u8>, byte: u8) {
    key.push(b'%');
    push_hex(key, byte);
}

fn push_hex(key: &mut Vec<u8>, byte: u8) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    key.push(DIGITS[usize::from(byte >> 4)]);
    key.push(DIGITS[usize::from(byte & 15)]);
}

/// The algorithm as far as it shapes the state: another number of sub-windows starts afresh.
fn push_algorithm(key: &mut Vec<u8>, limit: &Limit) {
    let name: &[u8] = match limit.algorithm() {
        Algorithm::FixedWindow => b"fixed",
        Algorithm::SlidingWindowLog => b"log",
        Algorithm::SlidingWindowCounter => b"counter",
        Algorithm::TokenBucket => b"token",
        Algorithm::LeakyBucket => b"leaky",
        Algorithm::Gcra => b"gcra",
    };
    key.extend_from_slice(name);
    if let Shape::SlidingWindowCounter(windows) = limit.shape() {
        key.extend_from_slice(windows.count.to_string().as_bytes());
    }
}
