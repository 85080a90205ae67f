//! Slots of a cluster must equal those that the servers compute.

use tidegate::store::redis::slot::{SLOTS, slot};

use crate::random::Random;
use crate::support::servers::{RedisServer, Reply, Version};

/// Braces in every order, tags of our own keys, and bytes of all kinds.
fn keys() -> Vec<Vec<u8>> {
    let mut keys: Vec<Vec<u8>> =
        ["", "edge", "tg:{edge}:user_id=42:fixed:1m", "foo{}{bar}", "{", "}"]
            .map(|key| key.as_bytes().to_vec())
            .into();
    keys.extend((0..200).map(|tenant| format!("tg:{{edge,tenant={tenant}}}:x").into_bytes()));
    let mut random = Random::of_seed(7);
    for _ in 0..500 {
        let len = random.within(0..=11);
        keys.push((0..len).map(|_| random.pick(b"ab{}")).collect());
        keys.push((0..len).map(|_| u8::try_from(random.within(0..=255)).unwrap()).collect());
    }
    keys
}

#[test]
fn slots_equal_those_of_every_server() {
    for version in Version::ALL {
        let server = RedisServer::start_with(version, &["--cluster-enabled", "yes"]);
        for key in keys() {
            let printed = server.command(&[b"CLUSTER".as_slice(), b"KEYSLOT", &key]);
            let text = key.escape_ascii();
            assert_eq!(printed, Reply::Int(slot(&key).into()), "{version:?}: {text}");
            assert!(slot(&key) < SLOTS);
        }
    }
}
