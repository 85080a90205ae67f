//! Overload: other callers are served, and memory stays bounded.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tonic::Code;

use crate::support::abuse::{Abuse, Abusers, HELLO, closes_after};
use crate::support::client::{Request, Served, request};
use crate::support::load::{Load, Outcome, Sample, Samples};
use crate::support::process;
use crate::support::proxy::{Mode, Proxy};
use crate::support::servers::{RedisServer, Version};

pub const EDGE: &str =
    "{domain: edge, descriptors: [{key: k, rate_limit: {limit: 4000000000, period: 36500d}}]}";

/// A deadline for steps that must not take for ever.
const SOME_TIME: Duration = Duration::from_secs(60);

/// The deadline for another caller while abusers and other tests use up the processors: it only has
/// to be served.
const P99_MAX: Duration = Duration::from_secs(30);

/// Held by each test that uses up the machine: two at once would disturb each other's figures.
static MACHINE: Mutex<()> = Mutex::new(());

pub fn alone() -> MutexGuard<'static, ()> {
    // A test that failed leaves nothing behind.
    MACHINE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Asserts that the other caller got a decision each time.
fn assert_served(samples: &Samples) {
    let (errors, p99) = (samples.errors(), samples.p99());
    assert!(errors.is_empty(), "{} without a decision, the first: {:?}", errors.len(), errors[0]);
    assert!(p99 < P99_MAX, "{p99:?}");
}

pub fn load_request() -> Request {
    request("edge").about("k", "neighbour")
}

/// A series of /metrics.
pub fn metric(served: &Served, series: &str) -> f64 {
    let page = served.page("/metrics").body;
    let line = page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {series}: {page}")).parse().unwrap()
}

fn wait_for_metric(served: &Served, series: &str, wanted: impl Fn(f64) -> bool) {
    let found = || Some(()).filter(|()| wanted(metric(served, series)));
    process::wait_until(SOME_TIME, found)
        .unwrap_or_else(|| panic!("{series} is {}", metric(served, series)));
}

const SHED_CONNECTIONS: &str = "rate_limit_shed_total{reason=\"connections\"}";
const CONNECTIONS: &str = "rate_limit_connections";
const SHED_FLOOD: &str = "rate_limit_shed_total{reason=\"flood\"}";

/// The reasons for closing a connection at once.
const FLOODS: [Abuse; 5] =
    [Abuse::EndlessHeaders, Abuse::LargeHeaders, Abuse::Resets, Abuse::Pings, Abuse::Priorities];

/// Raises this process's limit on open files; the service raises its own.
pub fn allow_open_files(files: u64) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    assert!(
        maximum.is_none_or(|maximum| maximum >= files),
        "this test opens {files} files and may open {maximum:?}: `ulimit -Hn {files}`, as root"
    );
    if current.is_some_and(|current| current < files) {
        setrlimit(Resource::Nofile, Rlimit { current: Some(files), maximum }).unwrap();
    }
}

/// The most memory that the service uses until `done`.
fn most_kib(served: &Served, mut done: impl FnMut() -> bool) -> u64 {
    let mut most = 0;
    let look = || {
        most = most.max(served.tidegate.resident_kib());
        Some(()).filter(|()| done())
    };
    process::wait_until(SOME_TIME, look).expect("it is done");
    most
}

#[test]
fn calls_beyond_the_maximum_in_flight_are_refused_and_counted() {
    let redis = RedisServer::start(Version::Redis70);
    let proxy = Proxy::before(redis.addr());
    let args = ["--max-in-flight", "3", "--store", &proxy.url(), "--store-timeout", "20s"];
    let served = Served::with(&[EDGE], &args);
    proxy.set(Mode::DelayReplies(Duration::from_millis(200)));
    let load = Load::start(served.tidegate.grpc, 100, &load_request());
    wait_for_metric(&served, "rate_limit_in_flight", |calls| calls == 3.0);
    load.wait_for(SOME_TIME, |sample| sample.outcome == Outcome::Allowed);
    wait_for_metric(&served, "rate_limit_shed_total{reason=\"in_flight\"}", |shed| shed > 5.0);
    let refused = |sample: &&Sample| sample.outcome == Outcome::Failed(Code::ResourceExhausted);
    let samples = load.stop();
    let soonest = samples.0.iter().filter(refused).map(|refused| refused.latency).min();
    // Refused calls do not wait.
    assert!(soonest.unwrap() < Duration::from_millis(200), "{soonest:?}");
}

#[test]
fn connections_beyond_the_maximum_replace_idle_ones_and_used_ones_are_served() {
    let served = Served::with(&[EDGE], &["--max-connections", "80"]);
    let load = Load::start(served.tidegate.grpc, 100, &load_request());
    let connect = |_| {
        let mut stream = TcpStream::connect(served.tidegate.grpc).unwrap();
        stream.write_all(HELLO).unwrap();
        stream
    };
    let mut idle: Vec<_> = (0..79).map(connect).collect();
    wait_for_metric(&served, CONNECTIONS, |connections| connections == 80.0);
    let newcomer = connect(79);
    // An eighth, to make room for more than one.
    wait_for_metric(&served, CONNECTIONS, |connections| connections == 71.0);
    assert_eq!(metric(&served, SHED_CONNECTIONS), 10.0);
    for closed in &mut idle[..10] {
        closed.set_read_timeout(Some(SOME_TIME)).unwrap();
        let end = closed.read_to_end(&mut vec![]).map_err(|error| error.kind());
        // A close or a reset.
        assert!(!matches!(end, Err(ErrorKind::WouldBlock)), "it is still open");
    }
    drop((idle, newcomer));
    wait_for_metric(&served, CONNECTIONS, |connections| connections == 1.0);
    load.go_on_for(Duration::from_millis(100));
    let samples = load.stop();
    assert!(samples.all_answered(), "{:?}", samples.errors().first());
}

#[tokio::test]
async fn silent_and_slow_connections_are_closed() {
    let served = Served::with(&[EDGE], &[]);
    let (grpc, http) = (served.tidegate.grpc, served.tidegate.http);
    let soon = Duration::from_secs(20);
    tokio::join!(
        closes_after(grpc, b"", soon),
        closes_after(grpc, b"PRI * HTTP/2.0\r\n", soon),
        closes_after(grpc, b"GET / HTTP/1.1\r\n\r\n", soon),
        closes_after(http, b"", soon),
        closes_after(http, b"GET /", soon),
    );
}

#[test]
fn ten_thousand_idle_connections_use_little_and_others_are_served() {
    let _machine = alone();
    const IDLE: u64 = 10_000;
    const EACH_KIB_MAX: u64 = 40;
    allow_open_files(IDLE + 4_000);
    let served = Served::with(&[EDGE], &[]);
    let load = Load::start(served.tidegate.grpc, 200, &load_request());
    let before_kib = served.tidegate.resident_kib();
    let connect = |_| {
        let mut stream = TcpStream::connect(served.tidegate.grpc).unwrap();
        stream.write_all(HELLO).unwrap();
        stream
    };
    let idle: Vec<_> = (0..IDLE).map(connect).collect();
    #[allow(clippy::cast_precision_loss)] // a count
    let there = |connections| connections > IDLE as f64;
    wait_for_metric(&served, CONNECTIONS, there);
    let each_kib = (served.tidegate.resident_kib() - before_kib) / IDLE;
    let all_there = load.now();
    load.go_on_for(Duration::from_secs(1));
    let samples = load.stop();
    println!("{each_kib} KiB a connection");
    assert!(each_kib <= EACH_KIB_MAX, "{each_kib} KiB a connection");
    assert!(samples.all_answered(), "{:?}", samples.errors().first());
    assert_served(&samples.between(all_there, Duration::MAX));
    drop(idle);
    wait_for_metric(&served, CONNECTIONS, |connections| connections == 0.0);
}

#[test]
fn a_thousand_abusive_connections_use_bounded_memory_and_others_are_served() {
    let _machine = alone();
    const RESIDENT_KIB_MAX: u64 = 400 << 10;
    allow_open_files(14_000);
    let others = [Abuse::SlowReader, Abuse::SlowMessages, Abuse::HugeMessages];
    let kinds = [&FLOODS[..], &others].concat();
    let served = Served::with(&[EDGE], &[]);
    let load = Load::start(served.tidegate.grpc, 100, &load_request());
    let abusers = Abusers::start(served.tidegate.grpc, &kinds, 1_000 / kinds.len());
    let shed = |reason| metric(&served, &format!("rate_limit_shed_total{{reason=\"{reason}\"}}"));
    let start = load.now();
    let most_kib = most_kib(&served, || {
        let some_time = load.now() - start > Duration::from_secs(5) && abusers.turns() > 500;
        some_time && shed("flood") > 0.0 && shed("stalled") > 0.0
    });
    drop(abusers);
    let samples = load.stop();
    println!("{most_kib} KiB at most");
    assert!(most_kib < RESIDENT_KIB_MAX, "{most_kib} KiB");
    assert_served(&samples);
}

#[test]
fn idle_connections_to_the_http_port_leave_capacity_for_probes() {
    let _machine = alone();
    allow_open_files(8_000);
    let served = Served::with(&[EDGE], &[]);
    let connect = |number: usize| {
        let mut stream = TcpStream::connect(served.tidegate.http).unwrap();
        let end = if number.is_multiple_of(2) { "\r\n\r\n" } else { "" };
        // Connections without a free place may be closed already.
        let _ = stream.write_all(format!("GET /healthz HTTP/1.1\r\nhost: t{end}").as_bytes());
        stream
    };
    let idle: Vec<_> = (0..1_200).map(connect).collect();
    // Far less than the idle timeout while there are free places.
    let soon = Duration::from_secs(30);
    for _ in 0..10 {
        process::wait_until(soon, || is_healthy(&served)).expect("a probe is answered");
    }
    drop(idle);
}

pub fn is_healthy(served: &Served) -> Option<()> {
    let mut stream = TcpStream::connect(served.tidegate.http).ok()?;
    let ask = b"GET /healthz HTTP/1.1\r\nhost: t\r\nconnection: close\r\n\r\n";
    stream.write_all(ask).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    answer.starts_with("HTTP/1.1 200").then_some(())
}

#[test]
fn every_kind_of_flood_is_counted() {
    for kind in FLOODS {
        println!("{kind:?}");
        let served = Served::with(&[EDGE], &[]);
        let _abusers = Abusers::start(served.tidegate.grpc, &[kind], 2);
        wait_for_metric(&served, SHED_FLOOD, |floods| floods > 0.0);
    }
}

#[test]
fn abusive_http_connections_use_bounded_memory_and_calls_are_served() {
    let _machine = alone();
    const RESIDENT_KIB_MAX: u64 = 250 << 10;
    let kinds = [Abuse::EndlessHeadersOfPages, Abuse::SlowBodies, Abuse::UnreadPages];
    let served = Served::with(&[EDGE], &[]);
    let load = Load::start(served.tidegate.grpc, 100, &load_request());
    let abusers = Abusers::start(served.tidegate.http, &kinds, 200);
    let start = load.now();
    let most_kib = most_kib(&served, || load.now() - start > Duration::from_secs(4));
    assert!(abusers.turns() > 100, "some are thrown out: {}", abusers.turns());
    // The pages respond all the time.
    assert!(metric(&served, CONNECTIONS) >= 1.0);
    drop(abusers);
    let samples = load.stop();
    println!("{most_kib} KiB at most");
    assert!(most_kib < RESIDENT_KIB_MAX, "{most_kib} KiB");
    assert_served(&samples);
}
