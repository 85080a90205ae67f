//! A real Prometheus and a real redis_exporter as values.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::client::Page;
use super::process;
use super::servers::{RedisServer, free_port};
use super::tools::installed;

/// The deadline from a program's start until it listens.
const START_DEADLINE: Duration = Duration::from_secs(20);

/// A program that serves HTTP on a port of its own, killed on drop.
struct Exporter {
    addr: SocketAddr,
    child: Child,
}

impl Exporter {
    /// Starts the command that `command` builds for an address, and waits until it listens there.
    fn start(command: impl FnOnce(&str) -> Command) -> Self {
        let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let mut command = command(&addr.to_string());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut exporter = Self { addr, child: process::spawn(command).expect("it starts") };
        let listens = process::wait_until(START_DEADLINE, || {
            let ended = exporter.child.try_wait().expect("a child can be waited for");
            assert!(ended.is_none(), "it ended at its start: {ended:?}");
            TcpStream::connect(addr).ok()
        });
        assert!(listens.is_some(), "it does not listen on {addr} in time");
        exporter
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        process::kill(&mut self.child);
    }
}

fn program(path: &str) -> Command {
    process::bound_to_this_process(installed(path).to_str().expect("the checkout is UTF-8"))
}

/// Exports the INFO of a Redis as metrics.
pub struct RedisExporter(Exporter);

impl RedisExporter {
    /// Starts one for `redis`.
    ///
    /// # Panics
    /// When it is not installed or does not listen in time.
    pub fn of(redis: &RedisServer) -> Self {
        let url = redis.url();
        Self(Exporter::start(|addr| {
            let mut command = program("redis-exporter/prometheus-redis-exporter");
            command.args(["-redis.addr", &url, "-web.listen-address", addr]);
            command
        }))
    }

    /// Its address.
    pub fn addr(&self) -> SocketAddr {
        self.0.addr
    }
}

/// A Prometheus that stores in a folder of its own.
pub struct Prometheus {
    exporter: Exporter,
    _folder: TempDir,
}

/// One series of a result: its labels, and pairs of seconds and values.
#[derive(Clone, Debug)]
pub struct Series {
    pub labels: Value,
    pub points: Vec<(f64, f64)>,
}

impl Prometheus {
    /// Starts one with this configuration and its rules, and waits until it has scraped so many
    /// targets. It discovers them five seconds after its start.
    ///
    /// # Panics
    /// When it is not installed, refuses the configuration, or does not scrape in time.
    pub fn start(config: &str, rules: &str, targets: usize) -> Self {
        let folder = tempfile::tempdir().expect("a folder for temporary files");
        let path = |name: &str| folder.path().join(name).to_str().expect("UTF-8").to_owned();
        fs::write(path("prometheus.yml"), config).expect("it is writable");
        fs::write(path("rules.yml"), rules).expect("it is writable");
        let exporter = Exporter::start(|addr| {
            let mut command = program("prometheus/prometheus");
            command.args(["--config.file", &path("prometheus.yml")]);
            command.args(["--storage.tsdb.path", &path("data"), "--web.listen-address", addr]);
            command
        });
        let prometheus = Self { exporter, _folder: folder };
        let scraped = || (prometheus.query("up == 1").len() == targets).then_some(());
        assert!(
            process::wait_until(START_DEADLINE, scraped).is_some(),
            "a target is not scraped in time"
        );
        prometheus
    }

    /// The result of a query now.
    ///
    /// # Panics
    /// When Prometheus refuses the query.
    pub fn query(&self, query: &str) -> Vec<Series> {
        let path = format!("/api/v1/query?query={}", encoded(query));
        let data = self.data(&path);
        data["result"].as_array().expect("a vector").iter().map(Series::of_sample).collect()
    }

    /// The results of a query over the last `seconds`, every `step` seconds.
    ///
    /// # Panics
    /// When Prometheus refuses the query.
    pub fn query_range(&self, query: &str, seconds: f64, step: f64) -> Vec<Series> {
        let now = self.query("time()")[0].points[0].1;
        let (query, start) = (encoded(query), now - seconds);
        let path = format!("/api/v1/query_range?query={query}&start={start}&end={now}&step={step}");
        let data = self.data(&path);
        data["result"].as_array().expect("a matrix").iter().map(Series::of_matrix).collect()
    }

    /// The rules with their health.
    ///
    /// # Panics
    /// When it does not answer.
    pub fn rules(&self) -> Vec<Value> {
        let data = self.data("/api/v1/rules");
        let groups = data["groups"].as_array().expect("groups").clone();
        groups.iter().flat_map(|group| group["rules"].as_array().expect("rules").clone()).collect()
    }

    fn data(&self, path: &str) -> Value {
        let page = Page::get_by("HTTP/1.0", self.exporter.addr, path);
        if page.status == 503 {
            // It listens before it has opened its storage.
            return json!({ "result": [] });
        }
        let answer: Value = serde_json::from_str(&page.body).expect("Prometheus answers in JSON");
        if answer["status"] == "success" { answer["data"].clone() } else { panic!("{answer}") }
    }
}

impl Series {
    /// A scalar has no labels and no surrounding object.
    fn of_sample(sample: &Value) -> Self {
        if sample.get("value").is_none() {
            return Self { labels: Value::Null, points: vec![(0.0, number(sample))] };
        }
        Self { labels: sample["metric"].clone(), points: vec![point(&sample["value"])] }
    }

    fn of_matrix(series: &Value) -> Self {
        let points = series["values"].as_array().expect("points").iter().map(point).collect();
        Self { labels: series["metric"].clone(), points }
    }
}

fn point(value: &Value) -> (f64, f64) {
    (number(&value[0]), number(&value[1]))
}

/// Prometheus writes times as numbers and values as strings.
fn number(value: &Value) -> f64 {
    let text = value.as_str().map(str::parse);
    text.map_or_else(|| value.as_f64().expect("a number"), |number| number.expect("a number"))
}

fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}
