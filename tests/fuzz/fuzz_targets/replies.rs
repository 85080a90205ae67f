//! Parsing anything that Redis may send ends with replies, a wait for more bytes, or an error.
#![no_main]

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use redis_protocol::resp2::decode::decode_bytes_mut;

fuzz_target!(|replies: &[u8]| {
    let mut replies = BytesMut::from(replies);
    while let Ok(Some(_reply)) = decode_bytes_mut(&mut replies) {}
});
