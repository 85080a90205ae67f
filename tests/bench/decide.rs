//! The path of a decision in this process, without the network: parsing a message, matching it
//! against the rules, deciding on the memory store.
#![allow(clippy::unwrap_used)] // what cannot be measured ends the run
#![allow(missing_docs)] // of the macros below

use std::fmt::Write;
use std::hint::black_box;
use std::path::PathBuf;
use std::sync::Arc;

use criterion::{BatchSize, BenchmarkId, Criterion, criterion_group, criterion_main};
use prost::Message;
use tidegate::clock::SystemClock;
use tidegate::key::{KeyFormat, KeyPrefix, KeySecret};
use tidegate::limit::Algorithm;
use tidegate::plan::Plan;
use tidegate::proto::envoy::extensions::common::ratelimit::v3::{
    RateLimitDescriptor, rate_limit_descriptor::Entry,
};
use tidegate::proto::envoy::service::ratelimit::v3::RateLimitRequest;
use tidegate::request::{Bounds, Request};
use tidegate::rules::{RuleSet, Switches, parse};
use tidegate::store::memory::MemoryStore;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const KEYS_MAX: usize = 10_000_000;

/// Values per descriptor.
const VALUES: u32 = 100_000;

fn rules(count: usize, limit: &str) -> RuleSet {
    let mut text = "domain: edge\ndescriptors:\n".to_owned();
    for at in 0..count {
        let _ = writeln!(text, "  - {{key: k{at}, rate_limit: {{{limit}}}}}");
    }
    parse::parse(&[(PathBuf::from("edge.yaml"), text)], Switches::default()).unwrap()
}

/// An Envoy message with so many descriptors.
fn message(descriptors: usize) -> Vec<u8> {
    let descriptor = |at: usize| RateLimitDescriptor {
        entries: vec![Entry { key: format!("k{at}"), value: fastrand::u32(..VALUES).to_string() }],
        ..RateLimitDescriptor::default()
    };
    let descriptors = (0..descriptors).map(descriptor).collect();
    let domain = "edge".to_owned();
    RateLimitRequest { domain, descriptors, hits_addend: 1 }.encode_to_vec()
}

fn request(descriptors: usize) -> Request {
    Request::from_envoy(&message(descriptors), &Bounds::default()).unwrap()
}

fn read(bench: &mut Criterion) {
    let mut group = bench.benchmark_group("read a message");
    for descriptors in [3, 24] {
        let message = message(descriptors);
        group.bench_function(BenchmarkId::from_parameter(descriptors), |bench| {
            bench.iter(|| Request::from_envoy(black_box(&message), &Bounds::default()));
        });
    }
}

fn plan(bench: &mut Criterion) {
    let mut group = bench.benchmark_group("match 3 descriptors against rules");
    let readable = KeyFormat::readable("tg");
    let head = KeyPrefix::of(&readable, "edge");
    let request = request(3);
    for count in [10, 10_000] {
        let rules = rules(count, "limit: 1000000, period: 1d");
        let domain = rules.domain("edge").unwrap();
        group.bench_function(BenchmarkId::from_parameter(count), |bench| {
            bench.iter(|| Plan::of(black_box(&request), domain, &head));
        });
    }
    let secret = KeySecret::of(b"sixteen bytes...").unwrap();
    let head = KeyPrefix::of(&KeyFormat { secret: Some(secret), ..readable }, "edge");
    let rules = rules(10, "limit: 1000000, period: 1d");
    let domain = rules.domain("edge").unwrap();
    group.bench_function("under a secret", |bench| {
        bench.iter(|| Plan::of(black_box(&request), domain, &head));
    });
}

fn decide(bench: &mut Criterion) {
    let mut group = bench.benchmark_group("decide 3 limits of 100,000 values in memory");
    let head = KeyPrefix::of(&KeyFormat::readable("tg"), "edge");
    for algorithm in Algorithm::ALL {
        let name = algorithm.name();
        let rules = rules(3, &format!("limit: 1000, period: 1d, algorithm: {name}"));
        let domain = rules.domain("edge").unwrap();
        let store = MemoryStore::new(KEYS_MAX, Arc::new(SystemClock));
        group.bench_function(name, |bench| {
            let asks = || Plan::of(&request(3), domain, &head).unwrap().counters;
            let decide = |asks: Vec<_>| store.transact(&asks, None);
            bench.iter_batched(asks, decide, BatchSize::SmallInput);
        });
    }
}

criterion_group!(benches, read, plan, decide);
criterion_main!(benches);
