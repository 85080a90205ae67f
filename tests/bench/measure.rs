//! Measures one leg: its load, and the CPU time of each process.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;

use serde_json::Value;
use tempfile::tempdir;
use tidegate::clock::Stopwatch;

use crate::legs::{self, Leg, Sending};
use crate::limits::{ONE_VALUE, domain_of};
use crate::machine::{cpu_ns, resident_bytes};
use crate::servers::{Server, Servers, TIDEGATE};

const WARMUP: &str = "500ms";

/// Hits that each of the 20 long logs gets before the first leg.
const LOG_HITS: u32 = 10_000;

/// The deadline of one leg.
const ATTEMPTS_MAX: usize = 3;

const PINGS: usize = 20_000;

const COUNTERS: u32 = 1_000_000;

/// The figures of one leg; CPU times per request, latencies in microseconds.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    /// `None` for a service without a known process.
    pub server_us: Option<f64>,
    pub redis_us: f64,
    /// The load generator's.
    pub own_us: f64,
    pub per_second: f64,
    pub p50_us: f64,
    pub p99_us: f64,
    pub p999_us: f64,
    /// Shares of the requests.
    pub over: f64,
    pub errors: f64,
}

impl Figures {
    /// The median of each figure.
    fn median(all: &[Self]) -> Self {
        let of = |figure: fn(&Self) -> f64| median(all.iter().map(figure).collect());
        Self {
            server_us: all[0].server_us.map(|_| of(|each| each.server_us.unwrap_or(0.0))),
            redis_us: of(|each| each.redis_us),
            own_us: of(|each| each.own_us),
            per_second: of(|each| each.per_second),
            p50_us: of(|each| each.p50_us),
            p99_us: of(|each| each.p99_us),
            p999_us: of(|each| each.p999_us),
            over: of(|each| each.over),
            errors: of(|each| each.errors),
        }
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.server_us {
            Some(us) => write!(f, "{us:>6.2} us server, ")?,
            None => write!(f, "     ? us server, ")?,
        }
        let Self { redis_us, per_second, p50_us, p999_us, .. } = self;
        write!(f, "{redis_us:>6.2} us Redis, {per_second:>7.0}/s, ")?;
        write!(f, "p50 {p50_us:.0} us, p99.9 {p999_us:.0} us")?;
        if self.errors > 0.0 { write!(f, ", {:.2} % errors", self.errors * 100.0) } else { Ok(()) }
    }
}

/// The middle one, or the mean of the two in the middle.
pub fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    let middle = figures.len() / 2;
    if figures.len() % 2 == 1 {
        figures[middle]
    } else {
        f64::midpoint(figures[middle - 1], figures[middle])
    }
}

/// All rounds of all legs.
#[derive(Debug, Default)]
pub struct Results {
    /// In the order of the first round.
    names: Vec<String>,
    figures: BTreeMap<String, Vec<Figures>>,
}

impl Results {
    pub fn add(&mut self, leg: &Leg, figures: Figures) {
        if !self.names.contains(&leg.name) {
            self.names.push(leg.name.clone());
        }
        self.figures.entry(leg.name.clone()).or_default().push(figures);
    }

    pub fn median(&self, name: &str) -> Option<Figures> {
        self.figures.get(name).map(|all| Figures::median(all))
    }

    /// Every leg with its medians.
    pub fn medians(&self) -> impl Iterator<Item = (&str, Figures)> {
        self.names.iter().map(|name| (name.as_str(), Figures::median(&self.figures[name])))
    }
}

/// The parameters of a round.
#[derive(Clone, Copy, Debug)]
pub struct Round {
    /// Rounds draw different values, and legs of one round the same.
    pub seed: u32,
    pub seconds: u32,
    /// Requests per second of the open loop.
    pub open_rate: u32,
}

/// Runs the load of a leg.
pub fn run(servers: &Servers, leg: &Leg, round: Round) -> Figures {
    let cpu = || (leg.target.pid.map(cpu_ns), cpu_ns(servers.redis_pid()));
    let args = args(leg, round);
    let attempt = || {
        let before = cpu();
        let said = load(&leg.target.addr, &leg.domain, &args, &leg.descriptors);
        let said = said.inspect_err(|error| eprintln!("{}: {error}", leg.name)).ok()?;
        Some((said, before, cpu()))
    };
    // If the machine is suspended for a whole leg, there is nothing to measure.
    let loaded = std::iter::repeat_with(attempt).take(ATTEMPTS_MAX).flatten().next();
    let (said, (server, redis), (server_after, redis_after)) = loaded.expect("bench measures");
    let number = |name: &str| said[name].as_f64().unwrap_or_else(|| panic!("no {name}: {said}"));
    let latency = |name: &str| said["latency_us"][name].as_f64().expect("a latency");
    let us = |ns: u64| ns as f64 / 1_000.0 / number("sent");
    let errors: u64 = said["errors"].as_object().unwrap().values().filter_map(Value::as_u64).sum();
    Figures {
        server_us: server_after.zip(server).map(|(after, before)| us(after - before)),
        redis_us: us(redis_after - redis),
        own_us: said["cpu_us_per_request"].as_f64().unwrap_or(f64::NAN),
        per_second: number("requests_per_second"),
        p50_us: latency("p50"),
        p99_us: latency("p99"),
        p999_us: latency("p99.9"),
        over: number("over_limit") / number("requests"),
        errors: errors as f64 / number("requests"),
    }
}

fn args(leg: &Leg, round: Round) -> Vec<String> {
    let mut args = match leg.sending {
        Sending::Saturating => vec!["--connections".to_owned(), "4".to_owned()],
        Sending::OneAtATime => ["--connections", "1", "--in-flight", "1"].map(String::from).into(),
        Sending::OpenLoop => vec!["--rate".to_owned(), round.open_rate.to_string()],
    };
    args.extend(match leg.requests {
        Some(requests) => vec![format!("--requests={requests}")],
        None => vec![format!("--duration={}s", round.seconds), format!("--warmup={WARMUP}")],
    });
    args.push(format!("--seed={}", round.seed));
    args
}

/// The output of `tidegate bench`, or the reason why it failed.
fn load(
    addr: &str,
    domain: &str,
    args: &[String],
    descriptors: &[String],
) -> Result<Value, String> {
    let mut command = Command::new(TIDEGATE);
    command.args(["bench", "--json", "--addr", addr, "--domain", domain]);
    let output = command.args(args).args(descriptors).output().unwrap();
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    Ok(serde_json::from_slice(&output.stdout).unwrap())
}

/// Gives each long log its hits. Several in one millisecond share a record, as in production.
pub fn fill_logs(servers: &Servers) {
    let redis = servers.target("redis").unwrap();
    let requests = format!("--requests={}", 20 * LOG_HITS);
    load(&redis.addr, "log-10000", &[requests], &["k={seq:20}".to_owned()]).unwrap();
}

/// Creates every counter of the legs with many keys, so that all their rounds find existing keys,
/// as in a service that has run for a while.
pub fn fill_counters(servers: &Servers) {
    let numbered: Vec<_> = (0..24).map(|at| format!("k{at}={{seq:10000}}")).collect();
    let uniform = legs::three("{seq:100000}");
    let algorithms = ONE_VALUE.map(domain_of);
    let of_redis = ["edge", "over"].into_iter().chain(algorithms.iter().map(String::as_str));
    let of_redis: Vec<_> = of_redis.collect();
    for (name, domains) in
        [("memory", vec!["edge", "rules-10", "rules-10000"]), ("redis", of_redis)]
    {
        let target = servers.target(name).unwrap();
        let fill = |domain: &str, requests: &str, descriptors: &[String]| {
            load(&target.addr, domain, &[format!("--requests={requests}")], descriptors).unwrap();
        };
        domains.into_iter().for_each(|domain| fill(domain, "100000", &uniform));
        fill("wide", "10000", &numbered);
    }
}

/// The median latency of sequential PINGs on one connection.
pub fn ping_p50_us(redis_port: u16) -> f64 {
    const PING: &[u8] = b"*1\r\n$4\r\nPING\r\n";
    let mut stream = TcpStream::connect(("127.0.0.1", redis_port)).unwrap();
    stream.set_nodelay(true).unwrap();
    let mut ping = || {
        let watch = Stopwatch::start();
        let mut pong = [0; "+PONG\r\n".len()];
        stream.write_all(PING).unwrap();
        stream.read_exact(&mut pong).unwrap();
        assert_eq!(&pong, b"+PONG\r\n");
        watch.elapsed().as_secs_f64() * 1e6
    };
    median((0..PINGS).map(|_| ping()).collect())
}

/// The memory that a million counters add to the process with the memory store, per counter.
pub fn bytes_a_counter() -> f64 {
    eprintln!("{COUNTERS} counters in memory");
    let limits = tempdir().unwrap();
    let text =
        "domain: edge\ndescriptors:\n  - key: user\n    rate_limit: { limit: 10, period: 1d }\n";
    std::fs::write(limits.path().join("edge.yaml"), text).unwrap();
    let server = Server::tidegate(limits.path(), &["--memory-max-keys", "2000000"]);
    let ask = |requests: u32, descriptor: &str| {
        let requests = format!("--requests={requests}");
        load(&server.addr(), "edge", &[requests], &[descriptor.to_owned()]).unwrap()
    };
    // Excludes the memory of connections and allocators.
    ask(50_000, "nothing=x");
    let before = resident_bytes(server.pid());
    let said = ask(COUNTERS, "user={seq}");
    assert_eq!(said["allowed"].as_u64(), Some(u64::from(COUNTERS)), "{said}");
    let added = resident_bytes(server.pid()) - before;
    added as f64 / f64::from(COUNTERS)
}

/// The pair of legs that shows the cost of one script run per request: without batches every run
/// has one request.
pub fn single_script(results: &Results) -> Option<Figures> {
    results.median(legs::REDIS_SINGLE).or_else(|| results.median(legs::REDIS_UNIFORM))
}
