//! Traces: the spans that a collector receives, and that they delay no request.

use std::time::Duration;

use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use tidegate::proto::tidegate::v1::rate_limit_service_client::RateLimitServiceClient;
use tonic::{Code, Status};

use crate::support::client::{Caller, Page, Request, Served, limits_folder, request};
use crate::support::collector::{Collector, Span};
use crate::support::process::wait_until;
use crate::support::servers::{RedisServer, Version, free_port};
use crate::support::tidegate::Tidegate;
use crate::support::tls::Certificates;

/// The deadline for spans to arrive.
const DEADLINE: Duration = Duration::from_secs(30);

const EDGE: &str = "
domain: edge
descriptors:
  - key: user
    rate_limit: { limit: 2, period: 36500d, name: per_user }
";

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CALLER: &str = "00f067aa0ba902b7";

/// The header of a caller whose call is sampled, or is not.
fn traceparent(sampled: bool) -> String {
    format!("00-{TRACE}-{CALLER}-0{}", u8::from(sampled))
}

fn served(collector: &str, more: &[&str]) -> Served {
    Served::with(&[EDGE], &[&["--otlp-endpoint", collector], more].concat())
}

async fn check(caller: &Caller, request: &Request, sampled: bool) -> Result<(), Status> {
    let mut call = tonic::Request::new(request.check());
    call.metadata_mut().insert("traceparent", traceparent(sampled).parse().unwrap());
    let mut client = RateLimitServiceClient::new(caller.channel());
    client.check_rate_limit(call).await.map(drop)
}

fn user(name: &str) -> Request {
    request("edge").about("user", name)
}

/// The number of spans with this result, from `/metrics`.
fn spans_counted(served: &Served, result: &str) -> u64 {
    let name = format!("rate_limit_spans_total{{result=\"{result}\"}} ");
    let page = served.page("/metrics");
    page.body.lines().find_map(|line| line.strip_prefix(&name)?.parse().ok()).unwrap()
}

/// The spans of script runs, and those of calls.
fn apart(spans: Vec<Span>) -> (Vec<Span>, Vec<Span>) {
    spans.into_iter().partition(|span| span.span.name == "EVALSHA")
}

#[tokio::test]
async fn a_sampled_call_is_a_span_below_its_callers_and_its_script_run_one_below_it() {
    let (collector, redis) = (Collector::start(), RedisServer::start(Version::Redis70));
    let url = redis.url();
    let served = served(&collector.url, &["--store", &url, "--store-timeout", "5s"]);
    let caller = served.caller().await;
    for _ in 0..3 {
        check(&caller, &user("alice"), true).await.unwrap();
    }
    let (runs, mut calls) = apart(collector.wait_for(6));
    calls.sort_by_key(|call| call.span.start_time_unix_nano);
    for call in &calls {
        assert_eq!((call.trace_id(), call.parent_id()), (TRACE.into(), CALLER.into()));
        assert_eq!(call.span.name, "tidegate.v1.RateLimitService/CheckRateLimit");
        assert_eq!(call.span.kind(), SpanKind::Server);
        assert_eq!(call.attribute("rpc.method"), "CheckRateLimit");
        assert_eq!(call.attribute("rpc.grpc.status_code"), "0");
        assert_eq!(call.attribute("tidegate.domain"), "edge");
        assert_eq!(call.attribute("tidegate.source"), "store");
        assert_eq!(call.process_attribute("service.name").unwrap(), "tidegate");
        assert!(!call.is_error());
        let run = runs.iter().find(|run| run.parent_id() == call.id()).expect("its script run");
        assert_eq!((run.trace_id(), run.span.kind()), (TRACE.into(), SpanKind::Client));
        assert_eq!(run.attribute("db.operation.batch.size"), "1");
        // Both clocks have microseconds or better; except for that, a run lies within its call.
        assert!(run.span.start_time_unix_nano + 1_000_000 >= call.span.start_time_unix_nano);
        assert!(run.span.end_time_unix_nano <= call.span.end_time_unix_nano);
    }
    let decisions: Vec<_> = calls.iter().map(|call| call.attribute("tidegate.decision")).collect();
    assert_eq!(decisions, ["allowed", "allowed", "rejected"]);
    assert_eq!(calls[2].attribute("tidegate.rejected_by"), "per_user");
    let all = || Some(spans_counted(&served, "exported")).filter(|count| *count == 6);
    assert!(wait_until(DEADLINE, all).is_some());
    // Values of callers are not for the collector.
    assert!(!format!("{:?}{:?}", calls, runs).contains("alice"));
}

#[tokio::test]
async fn requests_that_share_a_script_run_each_have_a_span_of_it() {
    let (collector, redis) = (Collector::start(), RedisServer::start(Version::Redis70));
    let url = redis.url();
    let more = ["--store", &url, "--store-timeout", "20s", "--threads", "1"];
    let served = served(&collector.url, &more);
    let caller = served.caller().await;
    check(&caller, &user("first"), false).await.unwrap();
    redis.pause();
    let calls: Vec<_> = (0..40)
        .map(|at| {
            let caller = caller.clone();
            tokio::spawn(async move { check(&caller, &user(&format!("{at}")), true).await })
        })
        .collect();
    // Behind all of them on the only connection of the only thread, and answered without Redis: so
    // the others have arrived, and wait for the two runs that can be in flight or for the next one.
    tokio::task::yield_now().await;
    check(&caller, &request("elsewhere").about("user", "last"), false).await.unwrap();
    redis.resume();
    for call in calls {
        call.await.unwrap().unwrap();
    }
    let (runs, calls) = apart(collector.wait_for(80));
    assert_eq!((runs.len(), calls.len()), (40, 40));
    let mut above: Vec<_> = runs.iter().map(Span::parent_id).collect();
    let mut ids: Vec<_> = calls.iter().map(Span::id).collect();
    above.sort();
    ids.sort();
    assert_eq!(above, ids);
    let size = |run: &Span| run.attribute("db.operation.batch.size").parse::<u64>().unwrap();
    assert!(runs.iter().any(|run| size(run) > 1), "none was shared");
}

#[tokio::test]
async fn callers_decide_about_sampling_and_the_rate_decides_for_the_others() {
    let collector = Collector::start();
    let mut all = served(&collector.url, &["--otlp-sample", "1"]);
    let mut none = served(&collector.url, &["--otlp-sample", "0"]);
    for served in [&all, &none] {
        let caller = served.caller().await;
        check(&caller, &user("alice"), false).await.unwrap();
        check(&caller, &user("alice"), true).await.unwrap();
        caller.should(&user("bob")).await.unwrap();
    }
    // From `all` the sampled one and the one without a parent, from `none` the sampled one.
    for (served, count) in [(&mut all, 2), (&mut none, 1)] {
        let sent = || Some(()).filter(|()| spans_counted(served, "exported") == count);
        assert!(wait_until(DEADLINE, sent).is_some());
        assert!(served.tidegate.terminate().success());
    }
    let spans = collector.spans();
    assert_eq!(spans.len(), 3, "{spans:?}");
    let (roots, others): (Vec<_>, Vec<_>) =
        spans.into_iter().partition(|span| span.parent_id().is_empty());
    assert_eq!((roots.len(), others.len()), (1, 2));
    assert!(others.iter().all(|span| span.trace_id() == TRACE));
    let name = "envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
    assert!(roots[0].span.name == name && roots[0].trace_id() != TRACE);
}

#[tokio::test]
async fn posted_json_is_traced_too_and_without_an_answer_a_span_is_an_error() {
    let collector = Collector::start();
    let store = format!("redis://127.0.0.1:{}", free_port());
    let served = served(&collector.url, &["--store", &store, "--on-store-failure", "error"]);
    let body = r#"{"domain":"edge","descriptors":[{"entries":[{"key":"user","value":"alice"}]}]}"#;
    let header = format!("traceparent: {}\r\n", traceparent(true));
    assert_eq!(Page::post_with(served.tidegate.http, "/json", &header, body).status, 503);
    let caller = served.caller().await;
    let unavailable = check(&caller, &user("alice"), true).await.unwrap_err();
    assert_eq!(unavailable.code(), Code::Unavailable);
    let wrong = check(&caller, &request("edge"), true).await.unwrap_err();
    assert_eq!(wrong.code(), Code::InvalidArgument);
    let (_, spans) = apart(collector.wait_for(3));
    let of = |name: &str, value: &str| {
        let has = |span: &&Span| {
            span.span.attributes.iter().any(|a| a.key == name) && span.attribute(name) == value
        };
        spans.iter().find(has).unwrap_or_else(|| panic!("{name}={value} in {spans:?}"))
    };
    let posted = of("http.response.status_code", "503");
    assert_eq!((posted.span.name.as_str(), posted.parent_id()), ("POST /json", CALLER.into()));
    assert!(posted.is_error() && of("rpc.grpc.status_code", "14").is_error());
    assert!(!of("rpc.grpc.status_code", "3").is_error(), "it is the caller's fault");
}

#[tokio::test]
async fn queued_spans_are_flushed_at_shutdown() {
    let collector = Collector::start();
    let mut served = served(&collector.url, &[]);
    let caller = served.caller().await;
    for _ in 0..100 {
        check(&caller, &user("alice"), true).await.unwrap();
    }
    drop(caller);
    assert!(served.tidegate.terminate().success());
    assert_eq!(collector.spans().len(), 100);
}

#[tokio::test]
async fn an_unreachable_collector_costs_spans_and_nothing_else() {
    let mut served = served(&format!("http://127.0.0.1:{}", free_port()), &["--log", "info"]);
    let caller = served.caller().await;
    let mut sent = 0;
    while spans_counted(&served, "failed") == 0 {
        check(&caller, &user("alice"), true).await.unwrap();
        sent += 1;
        assert!(sent < 200_000, "{}", served.tidegate.log());
    }
    assert_eq!(spans_counted(&served, "exported"), 0);
    drop(caller);
    assert!(served.tidegate.terminate().success());
    let reported =
        || Some(served.tidegate.log()).filter(|log| log.contains("spans are not exported"));
    let log = wait_until(DEADLINE, reported).expect("a line about it");
    assert_eq!(log.matches("spans are not exported").count(), 1, "{log}");
}

#[tokio::test]
async fn a_hanging_collector_fills_a_bounded_queue_and_delays_no_request() {
    let collector = Collector::that_hangs();
    let mut served = served(&collector.url, &[]);
    let caller = served.caller().await;
    let mut sent = 0;
    while spans_counted(&served, "dropped") == 0 {
        let calls: Vec<_> = (0..500)
            .map(|_| {
                let caller = caller.clone();
                tokio::spawn(async move { check(&caller, &user("alice"), true).await })
            })
            .collect();
        for call in calls {
            call.await.unwrap().unwrap();
        }
        sent += 500;
        assert!(sent < 200_000, "{}", served.tidegate.log());
    }
    drop(caller);
    assert!(served.tidegate.terminate().success());
}

#[tokio::test]
async fn a_collector_may_use_tls_with_the_authorities_of_the_system() {
    let made = Certificates::new();
    let collector = Collector::start_tls(&made);
    let limits = limits_folder(&[EDGE]);
    let limits = limits.path().to_str().unwrap();
    let args = ["--limits", limits, "--otlp-endpoint", &collector.url];
    let known = Tidegate::serve_with_variable("SSL_CERT_FILE", &made.file("ca.pem"), &args);
    check(&Caller::of(known.grpc).await, &user("alice"), true).await.unwrap();
    collector.wait_for(1);

    let stranger = Certificates::new().file("ca.pem");
    let unknown = Tidegate::serve_with_variable("SSL_CERT_FILE", &stranger, &args);
    check(&Caller::of(unknown.grpc).await, &user("alice"), true).await.unwrap();
    unknown.wait_for_log("UnknownIssuer");
    assert_eq!(collector.spans().len(), 1);
}

#[test]
fn an_invalid_endpoint_is_refused() {
    for endpoint in ["127.0.0.1:4317", "grpc://127.0.0.1:4317", "http://host:4317/v1/traces", ""] {
        let args = ["serve", "--limits", "x", "--otlp-endpoint", endpoint];
        let output = Tidegate::run(&args, "");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.contains("http://127.0.0.1:4317"), "{endpoint}: {stderr}");
    }
}
