//! The programs of docs/clients.md run against the service, with stubs generated from `proto/`.
//!
//! Python and Node run in `make test`. The tests that need Go, Java or protoc are ignored there, and
//! `make test-clients` runs them.

mod program;
mod stubs;

use std::net::TcpListener;

use program::Program;

use crate::support::client::Served;
use crate::support::servers::free_port;
use crate::support::tools::text;

const EDGE: &str =
    "{domain: edge, descriptors: [{key: user_id, rate_limit: {limit: 2, period: 36500d}}]}";

/// Calls need more time than in production while many tests run.
const PATIENT_MS: &str = "20000";

/// The program decides, and says what to do without a decision.
fn assert_works(program: &Program) {
    let served = Served::with_limits(EDGE);
    let addr = served.tidegate.grpc.to_string();
    let output = program.run(PATIENT_MS, &[&addr, "42", "42", "42", "-42", "42"]);
    let lines: Vec<_> = output.out.lines().collect();
    let [first, second, third, refunded] = lines[..] else { panic!("{output:?}") };
    assert_eq!([first, second], ["42: allowed, 1 left", "42: allowed, 0 left"], "{output:?}");
    let wait = third.strip_prefix("42: rejected, retry after ").and_then(|w| w.strip_suffix(" s"));
    let wait: Option<u64> = wait.and_then(|wait| wait.parse().ok());
    assert!(wait.is_some_and(|seconds| seconds > 0), "{output:?}");
    assert_eq!(refunded, "42: allowed, 0 left", "{output:?}");

    let long = "x".repeat(5_000);
    let refused = program.run(PATIENT_MS, &[&addr, &long]);
    assert!(!refused.succeeds, "an invalid request is a mistake: {refused:?}");
    assert!(refused.err.contains("descriptors[0].entries[0].value: 5000 bytes"), "{refused:?}");

    let nobody = format!("127.0.0.1:{}", free_port());
    let undecided = program.run(PATIENT_MS, &[&nobody, "42"]);
    let expected = "42: allowed, because Tidegate did not decide: UNAVAILABLE";
    assert_eq!(undecided.out.trim_end().to_uppercase(), expected.to_uppercase(), "{undecided:?}");

    // Accepts connections and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let undecided = program.run("100", &[&silent.local_addr().unwrap().to_string(), "42"]);
    let expected = "42: allowed, because Tidegate did not decide: ";
    assert!(undecided.out.starts_with(expected), "{undecided:?}");
}

#[test]
fn the_python_program_decides_and_passes_requests_without_an_answer() {
    assert_works(&Program::python());
}

#[test]
fn the_node_program_decides_and_passes_requests_without_an_answer() {
    assert_works(&Program::node());
}

#[test]
#[ignore = "make test-clients runs it: it needs Go"]
fn the_go_program_decides_and_passes_requests_without_an_answer() {
    assert_works(&Program::go());
}

#[test]
#[ignore = "make test-clients runs it: it needs Java"]
fn the_java_program_decides_and_passes_requests_without_an_answer() {
    assert_works(&Program::java());
}

#[test]
fn python_lists_the_services_by_reflection() {
    let served = Served::with_limits(EDGE);
    let output = Program::python_reflection().run("", &[&served.tidegate.grpc.to_string()]);
    let services = [
        "envoy.service.ratelimit.v3.RateLimitService",
        "grpc.health.v1.Health",
        "grpc.reflection.v1.ServerReflection",
        "grpc.reflection.v1alpha.ServerReflection",
        "tidegate.v1.RateLimitService",
    ];
    assert_eq!(output.out.lines().collect::<Vec<_>>(), services, "{output:?}");
}

#[test]
fn the_page_shows_the_programs_that_run_here() {
    let page = text("docs/clients.md");
    for (path, language) in [
        ("tests/clients/python/limiter.py", "python"),
        ("tests/clients/node/limiter.js", "js"),
        ("tests/clients/go/limiter.go", "go"),
        ("tests/clients/java/src/main/java/Limiter.java", "java"),
    ] {
        let block = format!("```{language}\n{}```\n", text(path));
        assert!(page.contains(&block), "docs/clients.md does not show {path} as it is");
    }
}
