//! The hash that names a key inside this process.

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;

use siphasher::sip128::SipHasher13;

/// Keyed at random: nobody outside this process can choose two keys of one hash.
pub(super) static HASHER: LazyLock<SipHasher13> = LazyLock::new(|| {
    let random = RandomState::new();
    SipHasher13::new_with_keys(random.hash_one(0), random.hash_one(1))
});
