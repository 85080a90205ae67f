//! The examples of `deploy/example`, run with their real files on ports of their own.

mod script;

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use tonic::Code;
use tonic::transport::Endpoint;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use crate::support::client::{Caller, Request, request};
use crate::support::envoy::Envoy;
use crate::support::servers::free_port;
use crate::support::tidegate::Tidegate;

/// An example's configuration with free ports, and timeouts that a busy machine keeps.
fn fitted(config: &str, service: SocketAddr, front: u16, admin: u16) -> String {
    let upstream = free_port().to_string();
    let ports = [
        ("8081", service.port().to_string()),
        ("10000", front.to_string()),
        ("9901", admin.to_string()),
        ("10001", upstream),
    ];
    let mut config = config.to_owned();
    for (port, own) in ports {
        let (port, own) = (format!("port_value: {port} }}"), format!("port_value: {own} }}"));
        assert!(config.contains(&port), "the example has no {port}");
        config = config.replace(&port, &own);
    }
    for time in ["timeout: 0.025s", "max_interval: 0.025s", "timeout: 0.5s"] {
        let (name, _) = time.split_once(' ').expect("a name and a time");
        assert!(config.contains(time), "the example has no {time}");
        config = config.replace(time, &format!("{name} 20s"));
    }
    config
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/example").join(name)
}

/// An example that runs.
struct Example {
    envoy: Envoy,
    tidegate: Tidegate,
}

impl Example {
    async fn start(name: &str) -> Self {
        let limits = folder(name).join("limits.yaml");
        let tidegate = Tidegate::serve(&["--limits", limits.to_str().unwrap()]);
        let config = fs::read_to_string(folder(name).join("envoy.yaml")).unwrap();
        let folder = TempDir::new().unwrap();
        let file = folder.path().join("envoy.yaml");
        fs::write(&file, fitted(&config, tidegate.grpc, 0, 0)).unwrap();
        Self { envoy: Envoy::of_file(&file, folder).await, tidegate }
    }

    async fn left(&self, request: Request) -> u64 {
        Caller::of(self.tidegate.grpc).await.remaining(&request).await
    }
}

#[tokio::test]
async fn the_envoy_example_limits_by_address_key_and_route() {
    let example = Example::start("envoy").await;
    let login = example.envoy.get("/login");
    assert_eq!(login.statuses(3).await, [200; 3]);
    let rejected = login.send().await;
    assert_eq!((rejected.status, rejected.body.as_str()), (429, "too many tries; wait a minute\n"));
    assert!((50..=60).contains(&rejected.number("retry-after")), "{rejected:?}");
    assert_eq!(rejected.header("x-ratelimit-limit"), Some("3, 3;w=60;name=\"logins\""));

    let home = example.envoy.get("/").header("x-api-key", "k").send().await;
    let policies = "100, 100;w=60;name=\"per_address\", 1000;w=3600;name=\"per_key\"";
    assert_eq!((home.status, home.header("x-ratelimit-limit")), (200, Some(policies)));
    assert_eq!(example.left(request("edge").about("api_key", "k")).await, 999);
    // The limit of two reports allows two of 20 at once; the login takes none of it.
    assert_eq!(example.envoy.get("/report").send().await.status, 200);
    let statuses = example.envoy.get("/report").statuses(2).await;
    assert!(statuses.contains(&429), "{statuses:?}");
    assert_eq!(example.envoy.get("/healthz").statuses(30).await, [200; 30]);
}

#[tokio::test]
async fn the_envoy_example_rejects_grpc_callers_and_fails_open_without_tidegate() {
    let mut example = Example::start("envoy").await;
    let endpoint = Endpoint::from_shared(format!("http://{}", example.envoy.addr)).unwrap();
    let mut client = HealthClient::new(endpoint.connect().await.unwrap());
    let call = || HealthCheckRequest { service: String::new() };
    for _ in 0..5 {
        client.check(call()).await.unwrap();
    }
    assert_eq!(client.check(call()).await.unwrap_err().code(), Code::ResourceExhausted);
    example.tidegate.kill();
    assert_eq!(example.envoy.get("/login").statuses(9).await, [200; 9]);
}

/// Sends requests that use so many tokens; returns their statuses, and the remaining tokens.
async fn chat(example: &Example, path: &str, key: &str, used: &[u64]) -> (Vec<u16>, u64) {
    const CALLS: &str = "cluster.tidegate.upstream_rq_completed";
    let mut statuses = Vec::new();
    let mut calls = example.envoy.stat(CALLS).await;
    for tokens in used {
        let ask = example.envoy.get(path).header("x-api-key", "a");
        let answer = ask.header("x-demo-tokens", tokens.to_string()).send().await;
        // One call to check, and one to pay for a served request.
        calls += if answer.status == 200 { 2 } else { 1 };
        example.envoy.wait_for_stat(CALLS, calls).await;
        statuses.push(answer.status);
    }
    (statuses, example.left(request("llm").about(key, "a")).await)
}

#[tokio::test]
async fn the_llm_example_charges_used_tokens_and_stops_callers_in_debt() {
    let example = Example::start("llm-tokens").await;
    assert_eq!(example.envoy.get("/v1/chat").send().await.status, 401);
    let (statuses, left) = chat(&example, "/v1/chat", "tokens", &[400, 500]).await;
    assert!(statuses == [200, 200] && (100..=120).contains(&left), "{statuses:?} {left}");
    let (statuses, left) = chat(&example, "/v1/chat", "tokens", &[500, 1, 1]).await;
    assert_eq!((statuses, left), (vec![200, 429, 429], 0), "400 tokens of debt");
    let rejected = example.envoy.get("/v1/chat").header("x-api-key", "a").send().await;
    // 401 tokens take 24 minutes; being rejected costs nothing.
    assert!((1_400..=1_444).contains(&rejected.number("retry-after")), "{rejected:?}");
}

#[tokio::test]
async fn the_llm_example_shows_that_without_overdraft_a_budget_never_ends() {
    let example = Example::start("llm-tokens").await;
    let path = "/without-overdraft/v1/chat";
    let (statuses, left) = chat(&example, path, "tokens_without_overdraft", &[700; 9]).await;
    assert_eq!(statuses, [200; 9], "6,300 tokens of 1,000 were used");
    assert!((300..=320).contains(&left), "{left}");
}
