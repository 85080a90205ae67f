//! Builds stored keys. No other file formats one.
//!
//! `tg:{edge}:tenant=acme,path=/login:log:1h`: the hash tag, the path of entries, the algorithm and
//! the period. The tag is the domain, or with `slot_by` the domain and those entries:
//! `{edge,tenant=acme}`. Reading from the left, the tag ends at the first `}`; from the right,
//! period and algorithm contain no `:`; so the path between them may contain one. In a path,
//! separators (`,` and `=` in an entry's key), braces, `%`, `#`, spaces and control characters are
//! written as `%XX`. A text longer than 128 bytes is written as `#` and the first 128 bits of its
//! SHA-256, so that callers cannot cause collisions; the same applies to a path of over 1,024
//! bytes. If all values of a wildcard share one counter, `#` and the wildcard replace the value.
//! Under a secret (`--key-secret-file`) every other value is written as `#` and the first 128 bits
//! of an HMAC-SHA-256.

mod group;
mod hash;
mod secret;
mod suffix;

use std::borrow::Cow;
use std::fmt;

use sha2::{Digest, Sha256};
use smallvec::SmallVec;

pub use self::group::Group;
use self::hash::HASHER;
pub use self::secret::KeySecret;
pub use self::suffix::KeySuffix;

/// The longest text that is written unhashed.
const READABLE_MAX: usize = 128;

/// The longest path that is written unhashed.
const PATH_MAX: usize = 1_024;

/// Keys up to this length need no heap allocation.
const INLINE_BYTES: usize = 64;

/// The bytes that name one counter, their hash in this process, and the group of the counter.
#[derive(Clone)]
pub struct Key {
    hash: u128,
    bytes: SmallVec<[u8; INLINE_BYTES]>,
    group: Group,
}

/// The settings that all keys of one process share.
#[derive(Clone, Debug)]
pub struct KeyFormat {
    /// The prefix: `tg`, or the prefix of a replay.
    pub prefix: String,
    /// The secret under which values are hashed; without one they are readable.
    pub secret: Option<KeySecret>,
}

/// The part before the path, which all keys of one domain share, and the secret. Formatted once,
/// when the rules load.
#[derive(Clone, Debug)]
pub struct KeyPrefix {
    bytes: Box<[u8]>,
    secret: Option<KeySecret>,
}

impl KeyFormat {
    /// A format with this prefix and readable values.
    pub fn readable(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned(), secret: None }
    }
}

impl KeyPrefix {
    /// The prefix of a domain's keys.
    pub fn of(spelling: &KeyFormat, domain: &str) -> Self {
        let mut head = Buffer::from_slice(spelling.prefix.as_bytes());
        head.extend_from_slice(b":{");
        push_text(&mut head, domain, Place::Text);
        Self { bytes: head.into_vec().into(), secret: spelling.secret.clone() }
    }
}

/// The parts of a key.
#[derive(Clone, Copy, Debug)]
pub struct KeyParts<'a, E> {
    /// Prefix, domain and secret.
    pub head: &'a KeyPrefix,
    /// Entries whose values choose the slot, if the path has all of them.
    pub slot_by: &'a [String],
    /// The path of entries, (key, value) in order.
    pub entries: E,
    /// By position in the path: the wildcard that replaces every value.
    pub shared: &'a [Option<Box<str>>],
    /// The limit's algorithm and period.
    pub tail: &'a KeySuffix,
}

impl<E> KeyParts<'_, E> {
    fn shared_at(&self, at: usize) -> Option<&str> {
        self.shared.get(at)?.as_deref()
    }
}

type Buffer = SmallVec<[u8; INLINE_BYTES]>;

impl Key {
    /// Builds the key of a counter.
    pub fn of<'a, E>(counter: &KeyParts<'a, E>) -> Self
    where
        E: Iterator<Item = (&'a str, &'a str)> + Clone,
    {
        let mut key = Buffer::from_slice(&counter.head.bytes);
        if !counter.slot_by.is_empty() {
            push_slot(&mut key, counter);
        }
        key.extend_from_slice(b"}:");
        push_path(&mut key, counter);
        key.extend_from_slice(counter.tail.as_bytes());
        Self::of_bytes(key)
    }

    /// The key with these bytes, as built by [`Key::of`].
    pub(crate) fn of_bytes(bytes: impl Into<SmallVec<[u8; INLINE_BYTES]>>) -> Self {
        let bytes = bytes.into();
        Self { hash: HASHER.hash(&bytes).into(), bytes, group: Group::default() }
    }

    /// The same key, with the counter in `group`.
    #[must_use]
    pub fn in_group(self, group: Group) -> Self {
        Self { group, ..self }
    }

    /// The group of the counter.
    pub const fn group(&self) -> Group {
        self.group
    }

    /// The key's bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Identifies the key in this process: 128 bits of SipHash under a random key. Among a billion
    /// counters two collide with a probability of 10^-21, and callers cannot raise it.
    pub const fn hash(&self) -> u128 {
        self.hash
    }
}

/// Only the bytes name a counter: a limit from a request may name the counter of a configured
/// limit.
impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash && self.bytes == other.bytes
    }
}

impl Eq for Key {}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.bytes))
    }
}

/// Appends the entries that choose the slot, if the path has all of them.
fn push_slot<'a, E>(key: &mut Buffer, counter: &KeyParts<'a, E>)
where
    E: Iterator<Item = (&'a str, &'a str)> + Clone,
{
    let entries = || counter.entries.clone().enumerate();
    let entry = |name: &String| entries().find(|(_, (key, _))| key == name);
    let slot: Option<SmallVec<[_; 4]>> = counter.slot_by.iter().map(entry).collect();
    for (at, entry) in slot.unwrap_or_default() {
        key.push(b',');
        push_entry(key, entry, counter, at);
    }
}

/// Appends the entries. A path too long for a key is written as `#` and its hash, which cannot
/// equal a readable path, because those contain `=`.
fn push_path<'a, E>(key: &mut Buffer, counter: &KeyParts<'a, E>)
where
    E: Iterator<Item = (&'a str, &'a str)> + Clone,
{
    let start = key.len();
    for (at, entry) in counter.entries.clone().enumerate() {
        if at > 0 {
            key.push(b',');
        }
        push_entry(key, entry, counter, at);
    }
    if key.len() - start > PATH_MAX {
        let path = Buffer::from_slice(&key[start..]);
        key.truncate(start);
        push_hash(key, &path);
    }
}

/// Appends the entry at one position of the path.
fn push_entry<E>(
    key: &mut Buffer,
    (name, value): (&str, &str),
    counter: &KeyParts<'_, E>,
    at: usize,
) {
    push_text(key, name, Place::EntryName);
    key.push(b'=');
    match (counter.shared_at(at), &counter.head.secret) {
        (None, None) => push_text(key, value, Place::Text),
        (None, Some(secret)) => push_hex(key, &secret.hash(name, value)),
        (Some(wildcard), _) => {
            // No value starts with `#*`: only hashes start with `#`, and they contain no star.
            key.push(b'#');
            push_text(key, wildcard, Place::Text);
        }
    }
}

/// Bytes that are always escaped; `=` is escaped in names only.
const SEPARATES: [bool; 256] = {
    let mut separates = [false; 256];
    let mut byte = 0;
    while byte <= b' ' {
        separates[byte as usize] = true;
        byte += 1;
    }
    separates[b',' as usize] = true;
    separates[b'{' as usize] = true;
    separates[b'}' as usize] = true;
    separates[b'%' as usize] = true;
    separates[b'#' as usize] = true;
    separates[0x7f] = true;
    separates
};

/// The text itself, or its hash if it is too long to read.
pub(crate) fn shortened(text: &str) -> Cow<'_, str> {
    if text.len() <= READABLE_MAX {
        return text.into();
    }
    hashed(text).into()
}

/// Replaces a text that must not be readable: `#` and the first 128 bits of its SHA-256.
pub(crate) fn hashed(text: &str) -> String {
    let mut hash = Buffer::new();
    push_hash(&mut hash, text.as_bytes());
    String::from_utf8_lossy(&hash).into_owned()
}

/// Where a text is in a key.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// The name of an entry, which ends at the first `=`.
    EntryName,
    /// A domain or a value.
    Text,
}

fn push_text(key: &mut Buffer, text: &str, place: Place) {
    if text.len() > READABLE_MAX {
        push_hash(key, text.as_bytes());
        return;
    }
    let separates =
        |byte: u8| SEPARATES[usize::from(byte)] || (byte == b'=' && place == Place::EntryName);
    if !text.bytes().any(separates) {
        key.extend_from_slice(text.as_bytes());
        return;
    }
    for byte in text.bytes() {
        if separates(byte) {
            key.push(b'%');
            push_byte(key, byte);
        } else {
            key.push(byte);
        }
    }
}

fn push_hash(key: &mut Buffer, text: &[u8]) {
    push_hex(key, &Sha256::digest(text)[..16]);
}

fn push_hex(key: &mut Buffer, hash: &[u8]) {
    key.push(b'#');
    for byte in hash {
        push_byte(key, *byte);
    }
}

fn push_byte(key: &mut Buffer, byte: u8) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    key.push(DIGITS[usize::from(byte >> 4)]);
    key.push(DIGITS[usize::from(byte & 15)]);
}
