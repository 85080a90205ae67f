//! Any request, however hostile, gets an answer or a refusal, and the next request is served.

use std::fmt::Write;

use tidegate::proto::tidegate::v1::CheckRateLimitResponse;
use tonic::Code;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic_prost::ProstCodec;

use crate::support::client::{Caller, Request, Served, request};
use crate::support::servers::{RedisServer, Version};

/// Values that break naive keys: separators, hash tags, escapes, NUL, four-byte characters.
const VALUES: [&str; 14] =
    ["", "{}", "{", "}", "{a}{b}", ":", "a:b", "%", "%00", "\0", "a\0b", "\u{1f6a6}", "\r\n", "*"];

const MANY_HITS: [u64; 5] = [0, 1 << 32, (1 << 32) - 1, 1 << 53, u64::MAX];

fn limits() -> Vec<String> {
    let mut edge = "domain: edge\ndescriptors:\n".to_owned();
    let algorithms = ["fixed_window", "sliding_window_log", "sliding_window_counter"];
    for name in algorithms.into_iter().chain(["token_bucket", "leaky_bucket", "gcra"]) {
        for limit in [0_u64, 7, 1 << 32] {
            if name == "sliding_window_log" && limit > 7 {
                continue;
            }
            let burst = if name == "gcra" { ", burst: 7" } else { "" };
            writeln!(
                edge,
                "  - {{ key: {name}, value: \"{limit}\", \
                 rate_limit: {{ algorithm: {name}, limit: {limit}, period: 1h{burst} }} }}"
            )
            .unwrap();
        }
    }
    edge += "  - { key: k, rate_limit: { limit: 1000000, period: 36500d } }\n";
    // 32 levels, of which the last has the limit.
    let mut nest = "{ key: k, rate_limit: { limit: 5, period: 36500d } }".to_owned();
    for _ in 1..32 {
        nest = format!("{{ key: k, descriptors: [{nest}] }}");
    }
    vec![edge, format!("domain: nest\ndescriptors: [{nest}]\n")]
}

fn hostile() -> Vec<Request> {
    let mut requests = Vec::new();
    for text in VALUES {
        requests.push(request("edge").about("k", text));
        requests.push(request(text).about("k", "v"));
        requests.push(request("edge").about(text, "v"));
        requests.push(request("edge").about("k", text).and(text, text));
        // Overrides create counters for keys that no limits file names.
        requests.push(request("edge").about(text, text).limited_to(5, 2));
    }
    for hits in MANY_HITS {
        for (key, value) in
            [("k", "v"), ("sliding_window_log", "7"), ("fixed_window", "4294967296")]
        {
            let base = || request("edge").about(key, value).taking(hits);
            requests.push(base());
            requests.push(base().giving_back());
            requests.push(base().about(key, value).taking(hits).giving_back());
            requests.push(base().about(key, value).taking(hits));
        }
    }
    for algorithm in tidegate::limit::Algorithm::ALL {
        for limit in ["0", "7", "4294967296"] {
            requests.push(request("edge").about(algorithm.name(), limit));
            requests.push(request("edge").about(algorithm.name(), limit).taking(u64::MAX));
            requests
                .push(request("edge").about(algorithm.name(), limit).each_taking(u32::MAX.into()));
        }
    }
    for (limit, unit) in [(0, 1), (u32::MAX, 6), (5, 0), (5, 99), (5, i32::MIN)] {
        requests.push(request("edge").about("k", "v").limited_to(limit, unit));
        requests.push(request("edge").about("k", "v").limited_to(limit, unit).every(u32::MAX));
    }
    let deep = |entries: usize| {
        (1..entries).fold(request("nest").about("k", "v"), |request, _| request.and("k", "v"))
    };
    requests.extend([deep(31), deep(32), deep(33), deep(10_000)]);
    let huge = "x".repeat(1 << 20);
    requests.push(request("edge").about("k", &huge));
    requests.push(request("edge").about(&huge, "v"));
    requests.push(request(&huge).about("k", "v"));
    requests.push((0..50_000).fold(request("edge"), |request, _| request.about("k", "v")));
    requests
}

fn assert_answer<T>(answer: Result<T, tonic::Status>, request: &Request) {
    if let Err(status) = answer {
        let head: String = format!("{request:?}").chars().take(300).collect();
        assert_eq!(status.code(), Code::InvalidArgument, "{status:?} to {head}");
    }
}

async fn assert_next_is_served(caller: &Caller, at: usize) {
    let next = request("edge").about("k", format!("next {at}"));
    assert!(caller.allows(&next).await);
}

async fn survives(served: &Served) {
    let caller = served.caller().await;
    for (at, request) in hostile().iter().enumerate() {
        assert_answer(caller.check(request).await, request);
        assert_answer(caller.quota(request).await, request);
        assert_answer(caller.quota(&request.clone().explained()).await, request);
        assert_answer(caller.refund(request).await, request);
        assert_answer(caller.should(request).await, request);
        assert_next_is_served(&caller, at).await;
    }
}

#[tokio::test]
async fn hostile_requests_are_answered_or_refused_on_memory() {
    let limits = limits();
    survives(&Served::with(&limits.iter().map(String::as_str).collect::<Vec<_>>(), &[])).await;
}

#[tokio::test]
async fn hostile_requests_are_answered_or_refused_on_redis() {
    let redis = RedisServer::start(Version::Redis70);
    let limits = limits();
    let limits: Vec<_> = limits.iter().map(String::as_str).collect();
    let args = ["--store", &redis.url(), "--store-timeout", "10s"];
    survives(&Served::with(&limits, &args)).await;
}

#[tokio::test]
async fn the_deepest_path_has_its_own_limit() {
    let limits = limits();
    let served = Served::with(&limits.iter().map(String::as_str).collect::<Vec<_>>(), &[]);
    let caller = served.caller().await;
    let path = (1..32).fold(request("nest").about("k", "v"), |request, _| request.and("k", "v"));
    assert!(caller.allows(&path.clone().taking(5)).await);
    assert!(!caller.allows(&path).await);
}

#[tokio::test]
async fn malformed_bytes_leave_the_connection_usable() {
    let served = Served::with(&["{domain: edge, descriptors: [{key: k}]}"], &[]);
    let caller = served.caller().await;
    // Sent as field 1, the domain: bytes that are not UTF-8, and more than a message may have.
    for bytes in [vec![0xff, 0xfe], vec![b'x'; 5 << 20]] {
        let mut grpc = Grpc::new(caller.channel());
        grpc.ready().await.unwrap();
        let path = "/tidegate.v1.RateLimitService/CheckRateLimit";
        let codec: ProstCodec<Vec<u8>, CheckRateLimitResponse> = ProstCodec::default();
        let path = PathAndQuery::from_static(path);
        grpc.unary(tonic::Request::new(bytes), path, codec).await.unwrap_err();
        assert_next_is_served(&caller, 0).await;
    }
}
