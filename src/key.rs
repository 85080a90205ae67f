//! The one place that spells a stored key.
//!
//! `tg:{edge}:tenant=acme,path=/login:log:1h`: the hash tag, the path of entries, the algorithm
//! and the period. The tag is the domain, or with `slot_by` the domain and those entries:
//! `{edge,tenant=acme}`. Reading from the left, the tag ends at the first `}`; from the right,
//! period and algorithm hold no `:`; so the path between them may hold one. Inside a path, the
//! bytes that separate (`,` and `=` in an entry's key), braces, `%`, `#`, spaces and controls are
//! written as `%XX`. What is longer than 128 bytes is written as `#` and the first 128 bits of
//! its SHA-256, which nobody can steer into another's counter; so is a path of over 1,024 bytes.
//! Where all values of a wildcard share one counter, `#` and the wildcard stand for the value.
//! Under a secret (`--key-secret-file`) every other value is written as `#` and the first 128 bits of
//! an HMAC-SHA-256.

mod group;
mod secret;

use std::borrow::Cow;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;

use sha2::{Digest, Sha256};
use siphasher::sip128::SipHasher13;
use smallvec::SmallVec;

pub use self::group::Group;
pub use self::secret::KeySecret;
use crate::limit::{Algorithm, Limit, Shape};
use crate::period;

/// The longest text that stands in a key as it is.
const READABLE_MAX: usize = 128;

/// The longest path that stands in a key as it is.
const PATH_MAX: usize = 1_024;

/// Keys of no more bytes need no allocation of their own.
const INLINE_BYTES: usize = 64;

/// The bytes that name one counter, their name in this process, and the group of the counter.
#[derive(Clone)]
pub struct Key {
    hash: u128,
    bytes: SmallVec<[u8; INLINE_BYTES]>,
    group: Group,
}

/// Keyed at random: nobody outside this process can choose two keys of one hash.
static HASHER: LazyLock<SipHasher13> = LazyLock::new(|| {
    let random = RandomState::new();
    SipHasher13::new_with_keys(random.hash_one(0), random.hash_one(1))
});

/// What the keys of one process have in common.
#[derive(Clone, Debug)]
pub struct KeyFormat {
    /// What they begin with: `tg`, or what a replay chose.
    pub prefix: String,
    /// What values are hashed under; without one they stand as they are.
    pub secret: Option<KeySecret>,
}

/// What stands before the path in the keys of one domain, spelled once, when its rules load; and
/// what values are hashed under.
#[derive(Clone, Debug)]
pub struct KeyPrefix {
    bytes: Box<[u8]>,
    secret: Option<KeySecret>,
}

impl KeyFormat {
    /// Keys that begin with `prefix`, of values as they are.
    pub fn readable(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned(), secret: None }
    }
}

impl KeyPrefix {
    /// The head of a domain's keys.
    pub fn of(spelling: &KeyFormat, domain: &str) -> Self {
        let mut head = Buffer::from_slice(spelling.prefix.as_bytes());
        head.extend_from_slice(b":{");
        push_text(&mut head, domain, Place::Text);
        Self { bytes: head.into_vec().into(), secret: spelling.secret.clone() }
    }
}

/// What stands behind the path in the keys of one limit: spelled once, when the limit loads.
#[derive(Clone, Debug)]
pub struct KeySuffix(SmallVec<[u8; 24]>);

impl KeySuffix {
    /// The tail for a limit; `ordinal` tells limits of one rule with the same algorithm and
    /// period apart.
    pub fn of(limit: &Limit, ordinal: u8) -> Self {
        let mut tail = SmallVec::new();
        tail.push(b':');
        tail.extend_from_slice(algorithm_name(limit).as_bytes());
        // As far as it shapes the state: another number of sub-windows starts afresh.
        if let Shape::SlidingWindowCounter(windows) = limit.shape() {
            tail.extend_from_slice(windows.count.to_string().as_bytes());
        }
        tail.push(b':');
        tail.extend_from_slice(period::format(limit.period_ms()).as_bytes());
        if ordinal > 0 {
            tail.push(b'#');
            tail.extend_from_slice(ordinal.to_string().as_bytes());
        }
        Self(tail)
    }
}

/// What a counter counts: the parts that a key is spelled from.
#[derive(Clone, Copy, Debug)]
pub struct KeyParts<'a, E> {
    /// Prefix, domain and secret.
    pub head: &'a KeyPrefix,
    /// Entries whose values choose the slot, where the path has all of them.
    pub slot_by: &'a [String],
    /// The path of entries asked about, (key, value) in order.
    pub entries: E,
    /// By place in the path: the wildcard that stands for every value.
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
    /// Spells the key of a counter.
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
        key.extend_from_slice(&counter.tail.0);
        Self::of_bytes(key)
    }

    /// The key of these bytes, as [`Key::of`] spelled them.
    pub(crate) fn of_bytes(bytes: impl Into<SmallVec<[u8; INLINE_BYTES]>>) -> Self {
        let bytes = bytes.into();
        Self { hash: HASHER.hash(&bytes).into(), bytes, group: Group::default() }
    }

    /// The same key, of a counter in `group`.
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

    /// The key's name in this process: 128 bits of SipHash under a random key, so that a billion
    /// counters have two of one name with a probability of 10^-21, and no caller can raise it.
    pub const fn hash(&self) -> u128 {
        self.hash
    }
}

/// The bytes alone name a counter: a limit that a request brings can name one of a configured limit.
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

/// The entries that choose the slot, where the path has all of them.
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

/// The entries; a path too long for a key as `#` and its hash, which no path as it is looks like,
/// for that has a `=`.
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

/// The entry at a place of the path.
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
            // No value begins so: of values only hashes have a `#`, and they have no star.
            key.push(b'#');
            push_text(key, wildcard, Place::Text);
        }
    }
}

/// Bytes that never stand in a text as they are; `=` does in values, not in names.
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

/// A text as it is, or its hash if it is too long to read.
pub(crate) fn shortened(text: &str) -> Cow<'_, str> {
    if text.len() <= READABLE_MAX {
        return text.into();
    }
    hashed(text).into()
}

/// What stands for a text that is not to be read: `#` and the first 128 bits of its SHA-256.
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

const fn algorithm_name(limit: &Limit) -> &'static str {
    match limit.algorithm() {
        Algorithm::FixedWindow => "fixed",
        Algorithm::SlidingWindowLog => "log",
        Algorithm::SlidingWindowCounter => "counter",
        Algorithm::TokenBucket => "token",
        Algorithm::LeakyBucket => "leaky",
        Algorithm::Gcra => "gcra",
    }
}
