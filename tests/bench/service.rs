//! `make bench`: the cost of a request, compared with a service that decides nothing.
//!
//! Real processes on free ports, loaded by `tidegate bench`, one leg after the other and round
//! after round: a machine that is slower for a while is slower for all. docs/performance.md
//! describes each leg; this program writes its tables. A figure never fails the run,
//! because machines differ.
#![allow(clippy::unwrap_used, clippy::expect_used)] // what cannot be measured ends the run
#![allow(clippy::print_stdout)] // the tables are the output
#![allow(unreachable_pub)] // a program exports nothing; `pub` says what other modules use

mod floor;
mod goals;
mod legs;
mod limits;
mod machine;
mod measure;
mod page;
// The tests use the rest of it, and their deadlines are real.
#[allow(dead_code, clippy::disallowed_methods)]
#[path = "../it/support/process.rs"]
mod process;
mod servers;

use std::env;

use self::goals::Extra;
use self::legs::Leg;
use self::measure::{Results, Round};
use self::servers::Servers;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The open loop's share of the saturation with Redis.
const OPEN_LOOP_SHARE: f64 = 1.0 / 3.0;

/// The number of measurements per leg, and their duration.
#[derive(Clone, Copy, Debug)]
struct Effort {
    rounds: u32,
    seconds: u32,
}

fn main() {
    let (flag, args): (Vec<_>, Vec<_>) = env::args().skip(1).partition(|arg| arg == "--bench");
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        // `cargo test --all-targets` runs this too.
        [] if flag.is_empty() => println!("nothing is measured: this is for `make bench`"),
        [] => {
            bench(Effort { rounds: number("BENCH_ROUNDS", 5), seconds: number("BENCH_SECONDS", 2) })
        }
        ["floor", "--addr", addr] => floor::serve(addr),
        _ => panic!("{args:?}: give nothing, or floor --addr HOST:PORT"),
    }
}

fn number(name: &str, default: u32) -> u32 {
    let Ok(text) = env::var(name) else { return default };
    let number = text.parse().ok().filter(|number| (1..=60).contains(number));
    number.unwrap_or_else(|| panic!("{name}={text}: needs a whole number from 1 to 60"))
}

fn bench(effort: Effort) {
    let servers = Servers::start();
    eprintln!("filling counters");
    measure::fill_counters(&servers);
    measure::fill_logs(&servers);
    let legs = legs::all(&servers);
    let open_rate = open_rate(&servers, &legs);
    let mut results = Results::default();
    let mut pings_us = Vec::new();
    for round in 1..=effort.rounds {
        for leg in &legs {
            let round = Round { seed: round, seconds: effort.seconds, open_rate };
            let figures = measure::run(&servers, leg, round);
            eprintln!("round {}/{}: {:<34} {figures}", round.seed, effort.rounds, leg.name);
            results.add(leg, figures);
            // Right beside the leg that it is compared with: how fast a core wakes up varies.
            if leg.name == legs::LOW_REDIS {
                pings_us.push(measure::ping_p50_us(servers.redis_port()));
            }
        }
    }
    let extra = Extra {
        ping_us: measure::median(pings_us),
        bytes_a_counter: measure::bytes_a_counter(),
        open_rate,
    };
    page::write(&results, &extra, effort);
}

/// Requests per second of the open loop, rounded to two figures: a share of the saturation measured
/// before the rounds, so that all rounds have the same.
fn open_rate(servers: &Servers, legs: &[Leg]) -> u32 {
    let leg = legs.iter().find(|leg| leg.name == legs::REDIS_UNIFORM).expect("a leg on Redis");
    let saturation = |seed| {
        let round = Round { seed, seconds: 1, open_rate: 0 };
        measure::run(servers, leg, round).per_second
    };
    let rate = measure::median((1..=3).map(saturation).collect()) * OPEN_LOOP_SHARE;
    let step = 10_f64.powf(rate.log10().floor() - 1.0);
    machine::whole((rate / step).round() * step)
}
