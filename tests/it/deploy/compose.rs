//! The compose file and its mounts, checked by the schema of Compose and by each program.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::support::schema::mistakes_of_compose;
use crate::support::tools::{installed, root, run_checked, text, yaml};

fn compose() -> Value {
    yaml(&text("deploy/compose.yaml"))
}

fn services() -> BTreeSet<String> {
    compose()["services"].as_object().unwrap().keys().cloned().collect()
}

/// Host names in a text that precede these ports; addresses do not count.
fn hosts(text: &str, ports: &[&str]) -> BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || "-:.".contains(c)));
    let host = |word: &str| {
        let (host, port) = word.split_once(':')?;
        (ports.contains(&port) && !host.contains('.')).then(|| host.to_owned())
    };
    words.filter_map(host).collect()
}

#[test]
fn compose_accepts_the_file() {
    let mut file = compose();
    assert_eq!(mistakes_of_compose(&file), "");
    file["services"]["redis"]["comand"] = json!("x");
    assert!(mistakes_of_compose(&file).contains("/services/redis"));
}

#[test]
fn mounted_and_built_paths_exist() {
    let file = compose();
    for (name, service) in file["services"].as_object().unwrap() {
        for mount in service["volumes"].as_array().into_iter().flatten() {
            let (source, rest) = mount.as_str().unwrap().split_once(':').unwrap();
            assert!(root().join("deploy").join(source).exists(), "{name} mounts {source}");
            assert!(rest.ends_with(":ro"), "{name} may write to {source}");
        }
        // A tag that moves would be another program tomorrow.
        let image = service["image"].as_str().unwrap();
        let tag = image.rsplit_once(':').map(|(_, tag)| tag);
        assert!(tag.is_some_and(|tag| tag != "latest"), "{name}: {image}");
    }
    assert!(root().join("deploy/Containerfile").exists());
}

#[test]
fn published_ports_are_local_only() {
    for (name, service) in compose()["services"].as_object().unwrap() {
        for port in service["ports"].as_array().into_iter().flatten() {
            assert!(port.as_str().unwrap().starts_with("127.0.0.1:"), "{name}: {port}");
        }
    }
}

#[test]
fn services_name_each_other_as_compose_does() {
    let files = [
        ("deploy/compose.yaml", &["6379"][..]),
        ("deploy/prometheus/prometheus.yml", &["8080", "9121"]),
        ("deploy/grafana/provisioning/datasources/prometheus.yaml", &["9090"]),
    ];
    let services = services();
    for (path, ports) in files {
        let text = text(path).replace("redis://", "").replace("http://", "");
        let hosts = hosts(&text, ports);
        assert!(!hosts.is_empty() && hosts.is_subset(&services), "{path} names {hosts:?}");
    }
    let envoy = text("deploy/envoy/envoy.yaml");
    assert!(envoy.contains("{ address: tidegate, port_value: 8081 }"));
}

#[test]
fn envoy_accepts_its_configuration() {
    let args = ["--mode", "validate", "--config-path", "deploy/envoy/envoy.yaml"];
    run_checked(installed("envoy/envoy"), &args, "");
}

#[test]
fn grafana_finds_the_dashboard_and_prometheus() {
    let grafana = &compose()["services"]["grafana"];
    let provider = yaml(&text("deploy/grafana/provisioning/dashboards/tidegate.yaml"));
    let folder = provider["providers"][0]["options"]["path"].as_str().unwrap();
    let dashboard = format!("{folder}/tidegate.json");
    let mounts = grafana["volumes"].to_string();
    assert!(mounts.contains(&format!("./grafana/tidegate.json:{dashboard}:ro")), "{mounts}");
    let home = &grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"];
    assert_eq!(home, &dashboard);
    let source = yaml(&text("deploy/grafana/provisioning/datasources/prometheus.yaml"));
    assert_eq!(source["datasources"][0]["type"], "prometheus");
}

#[test]
fn redis_never_evicts_counters() {
    let command = compose()["services"]["redis"]["command"].to_string();
    for setting in [r#""--maxmemory-policy","noeviction""#, r#""--appendonly","no""#] {
        assert!(command.contains(setting), "{command}");
    }
}
