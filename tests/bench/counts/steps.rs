//! The steps of a request, each as a repeatable call: bytes to request, rules to counters, key,
//! decision, script call and reply, answer to bytes; and all of them together on the memory store.
//!
//! The values of requests repeat every [`REQUESTS`] calls, so the measured calls find counters that
//! the warm-up created; the clock moves forward one millisecond per call.

use std::hint::black_box;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use prost::Message;
use tidegate::clock::FakeClock;
use tidegate::decide::CounterRequest;
use tidegate::envoy::{Headers, Reply, Style};
use tidegate::grpc;
use tidegate::key::{Key, KeyFormat, KeyParts, KeyPrefix, KeySuffix};
use tidegate::metrics::Metrics;
use tidegate::on_store_failure::OnStoreFailure;
use tidegate::plan::Plan;
use tidegate::proto::envoy::extensions::common::ratelimit::v3 as common;
use tidegate::proto::envoy::service::ratelimit::v3::RateLimitRequest;
use tidegate::proto::tidegate::v1 as api;
use tidegate::request::{Bounds, Request, RequestError};
use tidegate::rules::{Domain, RuleSet, Switches, parse};
use tidegate::service::{Answer, FailurePolicy, Load, Rules, Service, Snapshot};
use tidegate::store::memory::MemoryStore;
use tidegate::store::redis::wire;
use tidegate::store::{AnyStore, DecideContext};
use tidegate::store_error::StoreError;

/// One step, by its name in the baseline.
pub(crate) struct Step {
    pub(crate) name: &'static str,
    /// Builds the measured call: nothing in here is counted.
    pub(crate) prepare: fn() -> Call,
}

/// A step, called with the number of the call.
type Call = Box<dyn FnMut(usize)>;

pub(crate) const STEPS: [Step; 15] = [
    Step { name: "parse tidegate", prepare: || parse(tidegate_messages(), Request::from_check) },
    Step { name: "parse envoy", prepare: || parse(envoy_messages(), Request::from_envoy) },
    Step { name: "plan", prepare: plan },
    Step { name: "key", prepare: key },
    Step { name: "decide fixed_window", prepare: || decide("fixed_window") },
    Step { name: "decide sliding_window_log", prepare: || decide("sliding_window_log") },
    Step { name: "decide sliding_window_counter", prepare: || decide("sliding_window_counter") },
    Step { name: "decide token_bucket", prepare: || decide("token_bucket") },
    Step { name: "script call of 64 requests", prepare: script_call },
    Step { name: "script reply to 64 requests", prepare: script_reply },
    Step { name: "answer tidegate", prepare: || answer(|_, answer| tidegate_answer(answer)) },
    Step { name: "answer envoy", prepare: || answer(envoy_answer) },
    Step { name: "request tidegate", prepare: || whole(tidegate_messages(), TIDEGATE) },
    Step { name: "request envoy", prepare: || whole(envoy_messages(), ENVOY) },
    Step { name: "request envoy, over the limit", prepare: rejected },
];

/// The number of different requests; less than the calls of a warm-up.
const REQUESTS: usize = 500;

/// Requests per script run.
const BATCH: usize = 64;

const START_MS: u64 = 1_700_000_000_000;

const KEYS_MAX: usize = 1_000_000;

/// Rules that the requests match by an exact key, by a nested key and by a wildcard, among some
/// that they do not match.
fn limits(limit: &str) -> String {
    format!(
        "
domain: edge
descriptors:
  - {{ key: user_id, rate_limit: {{ {limit} }} }}
  - {{ key: ip, rate_limit: {{ {limit} }} }}
  - key: tenant
    descriptors:
      - {{ key: path, value: /v1/admin, rate_limit: {{ {limit} }} }}
      - {{ key: path, value: /v1/*, rate_limit: {{ {limit} }} }}
  - {{ key: session, rate_limit: {{ {limit} }} }}
  - {{ key: country, value: nl, rate_limit: {{ {limit} }} }}
"
    )
}

fn rules(limit: &str) -> RuleSet {
    let file = (PathBuf::from("edge.yaml"), limits(limit));
    parse::parse(&[file], Switches::default()).unwrap()
}

/// Leaks a value that the measured process keeps to its end.
fn kept<T>(value: T) -> &'static T {
    Box::leak(Box::new(value))
}

fn domain(algorithm: &str) -> &'static Domain {
    let limit = format!("limit: 1000000, period: 1d, algorithm: {algorithm}");
    kept(rules(&limit)).domain("edge").unwrap()
}

fn head() -> KeyPrefix {
    KeyPrefix::of(&KeyFormat::readable("tg"), "edge")
}

/// The entries of a request's three descriptors.
fn descriptors(at: usize) -> [Vec<(&'static str, String)>; 3] {
    // Values of different lengths.
    let number = at * 7_919 % 100_003;
    [
        vec![("user_id", number.to_string())],
        vec![("ip", format!("203.0.{}.{}", number % 256, at % 256))],
        vec![("tenant", format!("acme-{}", at % 7)), ("path", format!("/v1/items/{number}"))],
    ]
}

fn tidegate_messages() -> Vec<Vec<u8>> {
    let entry = |(key, value): (&str, String)| api::Entry { key: key.to_owned(), value };
    let descriptor = |entries: Vec<(&'static str, String)>| api::Descriptor {
        entries: entries.into_iter().map(entry).collect(),
        hits: None,
    };
    let message = |at| api::CheckRateLimitRequest {
        domain: "edge".to_owned(),
        descriptors: descriptors(at).map(descriptor).into(),
        hits: Some(1),
    };
    (0..REQUESTS).map(|at| message(at).encode_to_vec()).collect()
}

fn envoy_messages() -> Vec<Vec<u8>> {
    use common::rate_limit_descriptor::Entry;
    let entry = |(key, value): (&str, String)| Entry { key: key.to_owned(), value };
    let descriptor = |entries: Vec<(&'static str, String)>| common::RateLimitDescriptor {
        entries: entries.into_iter().map(entry).collect(),
        ..common::RateLimitDescriptor::default()
    };
    let message = |at| RateLimitRequest {
        domain: "edge".to_owned(),
        descriptors: descriptors(at).map(descriptor).into(),
        hits_addend: 1,
    };
    (0..REQUESTS).map(|at| message(at).encode_to_vec()).collect()
}

fn requests() -> Vec<Request> {
    let read = |message: &Vec<u8>| Request::from_envoy(message, &Bounds::default()).unwrap();
    envoy_messages().iter().map(read).collect()
}

/// Parses a message to a request.
type Read = fn(&[u8], &Bounds) -> Result<Request, RequestError>;

fn parse(messages: Vec<Vec<u8>>, read: Read) -> Call {
    let bounds = Bounds::default();
    Box::new(move |at| drop(black_box(read(&messages[at % REQUESTS], &bounds))))
}

fn plan() -> Call {
    let (domain, head, requests) = (domain("fixed_window"), head(), requests());
    Box::new(move |at| drop(black_box(Plan::of(&requests[at % REQUESTS], domain, &head))))
}

fn key() -> Call {
    let (head, requests) = (head(), requests());
    let limit = domain("fixed_window").rules().flat_map(|rule| rule.limits()).next().unwrap();
    let tail = KeySuffix::of(limit.limit(), 0);
    Box::new(move |at| {
        let descriptor = requests[at % REQUESTS].descriptors().last().unwrap();
        let (entries, slot_by, shared) = (descriptor.entries, &[][..], &[][..]);
        black_box(Key::of(&KeyParts { head: &head, slot_by, entries, shared, tail: &tail }));
    })
}

/// The counter requests of each request.
fn counter_requests(algorithm: &str) -> Vec<Vec<CounterRequest>> {
    let (domain, head) = (domain(algorithm), head());
    let counter_requests: Vec<_> = requests()
        .iter()
        .map(|request| Plan::of(request, domain, &head).unwrap().counters)
        .collect();
    assert!(
        counter_requests.iter().all(|counter_requests| counter_requests.len() == 3),
        "each descriptor meets a limit"
    );
    counter_requests
}

fn decide(algorithm: &str) -> Call {
    let (counter_requests, clock) = (counter_requests(algorithm), FakeClock::at(START_MS));
    let store = MemoryStore::new(KEYS_MAX, Arc::new(clock.clone()));
    let mut now_ms = START_MS;
    Box::new(move |at| {
        now_ms += 1;
        clock.set(now_ms);
        drop(black_box(store.transact(&counter_requests[at % REQUESTS], None)));
    })
}

fn batch() -> Vec<Vec<CounterRequest>> {
    counter_requests("fixed_window").into_iter().take(BATCH).collect()
}

fn script_call() -> Call {
    let batch = batch();
    Box::new(move |_| drop(black_box(wire::Call::of(batch.iter().map(Vec::as_slice), None))))
}

fn script_reply() -> Call {
    let batch = batch();
    let row = |remaining: u8| {
        let mut row = vec![1; 1];
        row.extend([[remaining; 7], [7; 7], [0; 7]].concat());
        row
    };
    let reply: Vec<u8> = (0..batch.len() * 3).flat_map(|at| row(at.to_le_bytes()[0])).collect();
    Box::new(move |_| {
        let decisions = wire::decisions(batch.iter().map(Vec::as_slice), &reply);
        decisions.unwrap().for_each(|decision| drop(black_box(decision)));
    })
}

/// A service on the memory store, and its clock.
fn service(limit: &str) -> (&'static Service, FakeClock) {
    let metrics = Metrics::new(0, &StoreError::KINDS).unwrap();
    let rules = Rules::new(rules(limit), Load::default(), &metrics, KeyFormat::readable("tg"));
    let clock = FakeClock::at(START_MS);
    let store = AnyStore::Memory(Arc::new(MemoryStore::new(KEYS_MAX, Arc::new(clock.clone()))));
    (
        kept(Service::new(
            Arc::new(rules),
            store,
            FailurePolicy::Always(OnStoreFailure::Error),
            metrics,
        )),
        clock,
    )
}

/// The memory store never waits.
fn ready<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("the memory store waits for nothing"),
    }
}

/// Encodes an answer.
type Write = fn(&Request, &Answer<'_>) -> Vec<u8>;

fn tidegate_answer(answer: &Answer<'_>) -> Vec<u8> {
    grpc::check_response(answer).encode_to_vec()
}

fn envoy_answer(request: &Request, answer: &Answer<'_>) -> Vec<u8> {
    let style = Style { headers: Headers::Draft, dynamic_metadata: false };
    Reply::of(request, answer, style).encode_to_vec()
}

const ROOMY: &str = "limit: 1000000, period: 1d, algorithm: token_bucket";

fn answer(write: Write) -> Call {
    let (service, _) = service(ROOMY);
    let snapshot: &Arc<Snapshot> = kept(Arc::clone(&service.snapshot()));
    let request = requests().swap_remove(0);
    let answer = ready(service.decide(snapshot, &request, DecideContext::now())).unwrap();
    Box::new(move |_| drop(black_box(write(&request, &answer))))
}

/// How to parse and encode the messages of a protocol.
#[derive(Clone, Copy)]
struct Dialect {
    read: Read,
    write: Write,
}

const TIDEGATE: Dialect =
    Dialect { read: Request::from_check, write: |_, answer| tidegate_answer(answer) };
const ENVOY: Dialect = Dialect { read: Request::from_envoy, write: envoy_answer };

fn whole(messages: Vec<Vec<u8>>, dialect: Dialect) -> Call {
    of_service(ROOMY, messages, dialect)
}

/// The second call with the same values is rejected, and so are all later ones.
fn rejected() -> Call {
    of_service("limit: 1, period: 1d", envoy_messages(), ENVOY)
}

/// From a message's bytes to the answer's, including metrics.
fn of_service(limit: &str, messages: Vec<Vec<u8>>, dialect: Dialect) -> Call {
    let (service, clock) = service(limit);
    let bounds = Bounds::default();
    let mut now_ms = START_MS;
    Box::new(move |at| {
        now_ms += 1;
        clock.set(now_ms);
        let request = (dialect.read)(&messages[at % REQUESTS], &bounds);
        let answer = ready(service.process(request, DecideContext::now(), dialect.write));
        drop(black_box(answer.unwrap()));
    })
}
