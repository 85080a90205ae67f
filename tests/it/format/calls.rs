//! Script calls: the bytes of a call do not change within a format, and every recorded script still
//! gives the recorded reply.

use serde_json::{Value, json};
use tidegate::algorithm::FORMAT;
use tidegate::decide::{CounterRequest, Mode};
use tidegate::decision::Enforcement;
use tidegate::limit::{Algorithm, LimitSpec};
use tidegate::store::redis::SCRIPT;
use tidegate::store::redis::wire::Call;

use super::formats;
use super::recorded::{self, Script, bytes, hex};
use crate::counters::{checked, in_quota_group, limit, peek, refund, take};
use crate::support::servers::{RedisServer, Version};

/// A moment in 2023.
const START_MS: u64 = 1_700_000_000_000;

/// The recorded call: three requests with every algorithm, mode, enforcement and excess.
fn requests() -> Vec<Vec<CounterRequest>> {
    let hits = |hits, ask| CounterRequest { hits, ..ask };
    let of = |algorithm| limit(algorithm, 10, 60_000);
    let weighted = checked(&LimitSpec {
        algorithm: Algorithm::SlidingWindowCounter,
        hits: 10,
        period_ms: 60_000,
        sub_windows: Some(6),
        weighted: Some(true),
        ..LimitSpec::default()
    });
    let overdraft = checked(&LimitSpec {
        algorithm: Algorithm::TokenBucket,
        hits: 7,
        period_ms: 60_000,
        burst: Some(9),
        overdraft: true,
        ..LimitSpec::default()
    });
    let log = of(Algorithm::SlidingWindowLog);
    let all = Algorithm::ALL.map(|algorithm| take(algorithm.name(), &of(algorithm)));
    let enforced_as = |enforcement, ask| CounterRequest { enforcement, ..ask };
    vec![
        all.to_vec(),
        vec![
            enforced_as(Enforcement::Shadow, hits(100, take("weighted", &weighted))),
            in_quota_group(0, hits(3, take("overdraft", &overdraft))),
            in_quota_group(1, peek("fixed_window", &of(Algorithm::FixedWindow))),
            hits(0, take("sliding_window_log", &log)),
        ],
        vec![
            refund("sliding_window_log", &log, 1),
            CounterRequest { mode: Mode::Take, ..take("counted", &log.into_counted()) },
            hits(9_007_199_254_740_991, peek("overdraft", &overdraft)),
        ],
    ]
}

fn todays_call() -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    let requests = requests();
    let call = Call::of(requests.iter().map(Vec::as_slice), Some(START_MS));
    (call.keys().map(<[u8]>::to_vec).collect(), call.args().map(<[u8]>::to_vec).collect())
}

/// Runs a call on an empty server.
fn reply_to(script: &str, keys: &[Vec<u8>], args: &[Vec<u8>]) -> Vec<u8> {
    let server = RedisServer::start(Version::Redis70);
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let args: Vec<&[u8]> = args.iter().map(Vec::as_slice).collect();
    Script::load(&server, script).run(&keys, &args)
}

/// The recorded calls of a format.
fn of_format(format: u32) -> Vec<Value> {
    recorded::lines(format, "calls.jsonl", || {
        let (keys, args) = todays_call();
        let reply = reply_to(&recorded::script(format), &keys, &args);
        let text = |key: &Vec<u8>| String::from_utf8(key.clone()).unwrap();
        vec![json!({
            "keys": keys.iter().map(text).collect::<Vec<_>>(),
            "args": args.iter().map(|arg| hex(arg)).collect::<Vec<_>>(),
            "reply": hex(&reply),
        })]
    })
}

fn row(call: &Value, name: &str, read: impl Fn(&str) -> Vec<u8>) -> Vec<Vec<u8>> {
    call[name].as_array().unwrap().iter().map(|text| read(text.as_str().unwrap())).collect()
}

#[test]
fn todays_calls_are_those_that_are_recorded_for_todays_format() {
    let (keys, args) = todays_call();
    for call in of_format(FORMAT) {
        assert_eq!(row(&call, "keys", |key| key.as_bytes().to_vec()), keys);
        let hint = "another layout of calls is another format: raise FORMAT and record it";
        assert_eq!(row(&call, "args", bytes), args, "{hint}");
    }
}

/// So that the tests of several builds on one Redis may write the calls of all formats as today's.
#[test]
fn the_calls_of_all_formats_are_the_same() {
    for format in formats() {
        for (call, todays) in of_format(format).iter().zip(of_format(FORMAT)) {
            let hint = "keep the writer of the old calls for the tests of format";
            assert_eq!(call["args"], todays["args"], "{hint} {format}");
        }
    }
}

#[test]
fn every_script_gives_the_recorded_reply_to_the_recorded_call() {
    let recorded = formats().map(|format| (format, recorded::script(format)));
    for (format, script) in recorded.chain([(FORMAT, SCRIPT.to_owned())]) {
        for call in of_format(format) {
            let keys = row(&call, "keys", |key| key.as_bytes().to_vec());
            let reply = reply_to(&script, &keys, &row(&call, "args", bytes));
            assert_eq!(hex(&reply), call["reply"], "format {format}");
        }
    }
}
