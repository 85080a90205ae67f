//! `redis://` to a node of a cluster: the store reports it and is not ready, for any slots of the
//! node.

use tonic::Code;

use super::DEADLINE;
use crate::support::client::{Served, limits_folder, request};
use crate::support::cluster::Cluster;
use crate::support::process::wait_until;
use crate::support::servers::{Launch, RedisServer, Version};
use crate::support::tidegate::Tidegate;

const SAYS: &str = "is a node of a Redis Cluster: use redis-cluster://";

/// Domains whose slots are distributed over the nodes.
const DOMAINS: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];

fn limits() -> Vec<String> {
    let rule = "[{key: user, rate_limit: {limit: 100, period: 1h}}]";
    DOMAINS.map(|domain| format!("{{domain: {domain}, descriptors: {rule}}}")).into()
}

fn served(url: &str, policy: &str) -> Served {
    let limits = limits();
    let limits: Vec<_> = limits.iter().map(String::as_str).collect();
    let args = ["--store", url, "--store-timeout", "10s", "--on-store-failure", policy];
    Served::with(&limits, &args)
}

#[tokio::test]
async fn a_cluster_node_used_alone_decides_nothing_and_reports_why() {
    let cluster = Cluster::without_replicas(Version::Redis70);
    let [first, second, ..] = cluster.addresses()[..] else { panic!("three nodes") };
    for url in [format!("redis://{first}"), format!("redis://{first},redis://{second}")] {
        let served = served(&url, "error");
        let caller = served.caller().await;
        for _ in 0..3 {
            for domain in DOMAINS {
                let printed = caller.check(&request(domain).about("user", "a")).await.unwrap_err();
                assert_eq!(printed.code(), Code::Unavailable, "{domain}");
            }
            let ready = served.page("/readyz");
            assert_eq!(ready.status, 503, "{}", ready.body);
            assert!(ready.body.contains(SAYS), "{}", ready.body);
            assert!(served.page("/metrics").body.contains("\nrate_limit_store_up 0\n"));
        }
        served.tidegate.wait_for_log(SAYS);
    }
    let keys = (0..3).map(|node| cluster.server(node).keys().len()).sum::<usize>();
    assert_eq!(keys, 0, "no counter is on the wrong node");
}

#[tokio::test]
async fn the_fallback_decides_for_all_domains_while_a_cluster_node_is_used_alone() {
    let cluster = Cluster::without_replicas(Version::Redis70);
    let served = served(&format!("redis://{}", cluster.addresses()[0]), "local");
    let caller = served.caller().await;
    for domain in DOMAINS {
        let answer = caller.check(&request(domain).about("user", "a")).await.unwrap();
        assert_eq!(answer.source().as_str_name(), "DECISION_SOURCE_FALLBACK", "{domain}");
    }
    let ready = served.page("/readyz");
    assert!(ready.body.starts_with("ready, by --on-store-failure: "), "{}", ready.body);
    assert!(ready.body.contains(SAYS), "{}", ready.body);
}

#[test]
fn a_replay_on_a_cluster_node_fails_with_the_reason() {
    for version in Version::ALL {
        // Alone it has no slots yet, but it knows from its start that it is a cluster node.
        let ports: &[_] = if version == Version::Redis62 { &[] } else { &["--cluster-port"] };
        let launch = Launch { args: &["--cluster-enabled", "yes"], ports, sentinel: false };
        let server = RedisServer::launch(version, &launch);
        let folder = limits_folder(&[&limits()[0]]);
        let limits = folder.path().to_str().unwrap();
        let args = ["simulate", "--limits", limits, "--trace", "-", "--store", &server.url()];
        let line =
            r#"{"at_ms":1700000000000,"domain":"a","descriptors":[{"entries":[["user","1"]]}]}"#;
        let output = Tidegate::run(&args, line);
        let printed = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{version:?}: {printed}");
        assert!(printed.contains(SAYS), "{version:?}: {printed}");
        assert!(output.stdout.is_empty(), "{version:?}");
    }
}

#[tokio::test]
async fn a_server_that_replaces_a_cluster_node_decides() {
    let args = ["--cluster-enabled", "yes"];
    let launch = Launch { args: &args, ports: &["--cluster-port"], sentinel: false };
    let node = RedisServer::launch(Version::Redis70, &launch);
    let served = served(&node.url(), "error");
    served.tidegate.wait_for_log(SAYS);
    let _server = node.replaced_by(&[]);
    let ready = || Some(()).filter(|()| served.page("/readyz").status == 200);
    wait_until(DEADLINE, ready).expect("it is a server of its own");
    let caller = served.caller().await;
    assert!(caller.allows(&request("a").about("user", "a")).await);
}
