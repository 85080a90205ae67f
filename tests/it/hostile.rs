//! Attacks beside a neighbour with 200 calls per second, who keeps its calls. `make hostile` prints the
//! figures.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::overload::{EDGE, allow_open_files, alone, is_healthy, load_request};
use crate::support::abuse::{Abuse, Abusers};
use crate::support::client::{Served, request};
use crate::support::load::Load;
use crate::support::process::wait_until;

/// Calls of the neighbour per second.
const RATE: u32 = 200;

/// The deadline of an attack, beyond its duration.
const SLACK: Duration = Duration::from_secs(60);

/// What an attack did to the neighbour and to the service.
#[derive(Debug)]
pub struct Figures {
    /// Calls of the neighbour, and those without a decision.
    pub sent: usize,
    pub refused: usize,
    /// The most memory of the service.
    pub most_kib: u64,
}

/// The duration of each attack; longer for the figures of `make hostile`.
fn duration() -> Duration {
    let seconds = std::env::var("TIDEGATE_HOSTILE_SECONDS").ok();
    let seconds = seconds.map_or(2, |seconds| seconds.parse().expect("whole seconds"));
    Duration::from_secs(seconds)
}

/// Runs the neighbour while an attack goes on, with `beside` again and again, and prints a row.
#[allow(clippy::print_stdout, reason = "`make hostile` collects the rows")]
pub fn figures(attack: &str, served: &Served, mut beside: impl FnMut()) -> Figures {
    let load = Load::start(served.tidegate.grpc, RATE, &load_request());
    let mut most_kib = 0;
    let is_over = || {
        most_kib = most_kib.max(served.tidegate.resident_kib());
        beside();
        Some(()).filter(|()| load.now() > duration())
    };
    wait_until(duration() + SLACK, is_over).expect("time passes");
    let samples = load.stop();
    let refused = samples.errors().len();
    println!(
        "| {attack} | {refused} of {} | {:.1} ms | {} MiB | {} |",
        samples.0.len(),
        samples.p99().as_secs_f64() * 1_000.0,
        most_kib / 1_024,
        served.tidegate.log().lines().count(),
    );
    if let Some(error) = samples.errors().first() {
        println!("the first: {error:?}");
    }
    Figures { sent: samples.0.len(), refused, most_kib }
}

impl Figures {
    /// Whether the neighbour keeps its calls. A debug build on a busy machine may queue so many of them
    /// that some exceed their share; the attacks cost 13 to 100 % where nothing holds them back.
    pub fn keeps_calls(&self) -> bool {
        self.refused * 20 <= self.sent
    }
}

#[test]
fn calls_without_a_message_leave_room_for_others() {
    let _machine = alone();
    let served = Served::with(&[EDGE], &[]);
    let _abusers = Abusers::start(served.tidegate.grpc, &[Abuse::CallsWithoutMessage], 80);
    let figures = figures("80 connections × 256 calls without a message", &served, || ());
    assert!(figures.keeps_calls(), "{figures:?}");
    assert!(figures.most_kib < 300 << 10, "{figures:?}");
}

#[test]
fn unread_answers_of_any_size_use_bounded_memory() {
    let _machine = alone();
    for (kind, attack, connections, kib_max) in [
        (Abuse::UnreadLargeAnswers, "unread answers of 20 KB", 200, 250 << 10),
        (Abuse::UnreadReflection, "unread streams of reflection", 500, 150 << 10),
    ] {
        let served = Served::with(&[EDGE], &[]);
        let _abusers = Abusers::start(served.tidegate.grpc, &[kind], connections);
        let figures = figures(&format!("{connections} × {attack}"), &served, || ());
        assert!(figures.keeps_calls(), "{attack}: {figures:?}");
        assert!(figures.most_kib < kib_max, "{attack}: {figures:?}");
    }
}

#[test]
fn idle_connections_leave_places_for_newcomers() {
    let _machine = alone();
    allow_open_files(10_000);
    let served = Served::with(&[EDGE], &["--max-connections", "1000"]);
    let _abusers = Abusers::start(served.tidegate.grpc, &[Abuse::Idle], 1_300);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let newcomer = || {
        runtime.block_on(async {
            let call = request("edge").about("k", "newcomer");
            served.caller().await.check(&call).await.expect("a newcomer is served");
        });
    };
    let figures = figures("1,300 idle connections for 1,000 places", &served, newcomer);
    assert!(figures.keeps_calls(), "{figures:?}");
}

#[test]
fn the_service_stays_within_its_memory_limit_under_every_attack() {
    let _machine = alone();
    allow_open_files(14_000);
    const LIMIT_KIB: u64 = 256 << 10;
    let kinds = [
        Abuse::CallsWithoutMessage,
        Abuse::HugeMessages,
        Abuse::Idle,
        Abuse::SlowMessages,
        Abuse::SlowReader,
        Abuse::UnreadLargeAnswers,
        Abuse::UnreadReflection,
    ];
    for kind in kinds {
        let served = Served::with(&[EDGE], &["--memory-limit", "256MiB"]);
        let _abusers = Abusers::start(served.tidegate.grpc, &[kind], 200);
        let attack = format!("256 MiB: 200 × {kind:?}");
        let figures = figures(&attack, &served, || ());
        assert!(figures.most_kib < LIMIT_KIB, "{attack}: {figures:?}");
    }
}

#[test]
fn a_page_of_many_rules_is_made_once_and_shared_by_its_readers() {
    let _machine = alone();
    let rules: String = (0..20_000)
        .map(|number| format!("  - {{key: k{number}, rate_limit: {{limit: 5, period: 1h}}}}\n"))
        .collect();
    let limits = format!("domain: edge\ndescriptors:\n{rules}");
    let served = Served::with(&[&limits], &[]);
    let page = served.page("/limits").body;
    assert!(page.len() > 3 << 20, "{} bytes", page.len());
    let before_kib = served.tidegate.resident_kib();
    let readers: Vec<_> = (0..100).map(|_| ask_for_limits(served.tidegate.http)).collect();
    // The last of them is answered, so all have been.
    for mut reader in &readers {
        reader.read_exact(&mut [0; 1_000]).expect("the page begins");
    }
    let grown_kib = served.tidegate.resident_kib().saturating_sub(before_kib);
    println!("100 readers of {} KiB: {grown_kib} KiB more", page.len() >> 10);
    assert!(grown_kib < 40 << 10, "{grown_kib} KiB more");
    assert_eq!(served.page("/limits").body, page, "while others read");
}

/// A connection on which /limits is asked for.
fn ask_for_limits(http: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(http).unwrap();
    stream.set_read_timeout(Some(SLACK)).unwrap();
    stream.write_all(b"GET /limits HTTP/1.1\r\nhost: t\r\n\r\n").unwrap();
    stream
}

#[test]
fn slow_bodies_on_the_http_port_leave_places_for_probes() {
    let _machine = alone();
    allow_open_files(10_000);
    let served = Served::with(&[EDGE], &[]);
    let _abusers = Abusers::start(served.tidegate.http, &[Abuse::SlowBodies], 1_500);
    let (mut asked, mut answered) = (0, 0);
    let probe = || {
        asked += 1;
        answered += usize::from(is_healthy(&served).is_some());
    };
    let figures = figures("1,500 slow bodies on the HTTP port", &served, probe);
    assert!(figures.keeps_calls(), "{figures:?}");
    assert_eq!(answered, asked, "probes");
}
