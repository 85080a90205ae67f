//! Whatever a caller sends, reading it ends, in a request or in a refusal.
#![no_main]

use libfuzzer_sys::fuzz_target;
use prost::Message;
use tidegate::proto::envoy::service::ratelimit::v3::RateLimitRequest;
use tidegate::proto::tidegate::v1::CheckRateLimitRequest;
use tidegate::request::{Bounds, Request};

fuzz_target!(|message: &[u8]| {
    let bounds = Bounds::default();
    if let Ok(check) = CheckRateLimitRequest::decode(message) {
        let _ = Request::from_check(check, &bounds);
    }
    if let Ok(envoy) = RateLimitRequest::decode(message) {
        let _ = Request::from_envoy(envoy, &bounds);
    }
});
