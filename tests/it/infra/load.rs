//! A load keeps its rate under all conditions, and reports the results.

use std::time::Duration;

use tidegate::proto::tidegate::v1::DecisionSource;
use tonic::Code;

use crate::support::client::{Served, request};
use crate::support::load::{Load, Outcome, Sample, Samples};

const DEADLINE: Duration = Duration::from_secs(20);

const HUNDRED: &str = "
domain: edge
descriptors:
  - key: user
    rate_limit: { limit: 100, period: 36500d }
";

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[test]
fn a_load_keeps_its_rate_and_reports_the_source_of_decisions() {
    let served = Served::with_limits(HUNDRED);
    let load = Load::start(served.tidegate.grpc, 1_000, &request("edge").about("user", "1"));
    load.go_on_for(ms(500));
    let samples = load.stop();
    assert!(samples.all_answered(), "{:?}", samples.errors());
    assert_eq!(samples.count(Outcome::Allowed), 100);
    assert_eq!(samples.count(Outcome::Rejected), samples.0.len() - 100);
    let last = samples.0.last().unwrap().sent;
    let due = usize::try_from(last.as_millis()).unwrap();
    // Never early; late by at most the time that a busy machine delays the thread between two
    // lines.
    let sent = samples.0.len();
    assert!((due.saturating_sub(200)..=due + 1).contains(&sent), "{sent} sent, {last:?}");
    let first = samples.first_by_store(ms(100)).unwrap();
    assert!(first.sent >= ms(100) && first.source == DecisionSource::Store, "{first:?}");
    eprintln!("p99.9 {:?}, slowest {:?}", samples.p999(), samples.slowest());
}

#[test]
fn a_load_continues_while_the_service_is_down_and_reports_it() {
    let mut served = Served::with_limits(HUNDRED);
    let load = Load::start(served.tidegate.grpc, 200, &request("edge").about("user", "1"));
    load.wait_for(DEADLINE, |sample| sample.outcome == Outcome::Allowed);
    let gone = load.now();
    served.tidegate.terminate();
    let failed =
        load.wait_for(DEADLINE, |sample| sample.outcome == Outcome::Failed(Code::Unavailable));
    load.go_on_for(ms(200));
    let samples = load.stop();
    assert!(!samples.all_answered());
    assert!(samples.between(ms(0), gone).0.len() < samples.0.len());
    assert!(samples.errors().contains(&failed));
    assert_eq!(samples.first_by_store(failed.sent + DEADLINE), None);
}

#[test]
fn a_dropped_load_ends() {
    let served = Served::with_limits(HUNDRED);
    drop(Load::start(served.tidegate.grpc, 100, &request("edge").about("user", "1")));
}

#[test]
fn of_1000_requests_one_may_be_slower_than_the_999th() {
    let sample = |at: u64| Sample {
        sent: ms(at),
        latency: ms(if at >= 998 { 10 * at } else { 1 }),
        outcome: Outcome::Allowed,
        limits: (0, 0),
        source: DecisionSource::Fallback,
    };
    let samples = Samples((0..1_000).map(sample).collect());
    assert_eq!(samples.p999(), ms(9_980));
    assert_eq!(samples.slowest().unwrap().latency, ms(9_990));
    assert_eq!(samples.between(ms(0), ms(998)).p999(), ms(1));
    assert_eq!(samples.first_by_store(ms(0)), None);
}
