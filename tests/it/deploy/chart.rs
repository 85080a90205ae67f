//! The chart, rendered by helm and checked by the schemas of Kubernetes, by promtool and by
//! Tidegate.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use clap::{Arg, CommandFactory};
use serde_json::{Value, json};
use tidegate::settings::Cli;

use crate::support::client::limits_folder;
use crate::support::schema::mistakes_of_manifest;
use crate::support::tidegate::Tidegate;
use crate::support::tools::{installed, run, run_checked, text, yaml};

pub(super) const CHART: &str = "deploy/helm/tidegate";
const FULL: &str = "deploy/helm/tidegate/ci/full.yaml";

/// The custom resources of the Prometheus operator, for which Kubernetes has no schema.
const OPERATOR: &str = "monitoring.coreos.com/v1";

fn helm(args: &[&str]) -> String {
    run_checked(installed("helm/helm"), args, "")
}

/// The rendered chart, by kind; `args` set values.
pub(super) fn rendered(args: &[&str]) -> BTreeMap<String, Value> {
    let args = [&["template", "edge", CHART], args].concat();
    let text = helm(&args);
    let documents = text.split("\n---\n").map(|text| yaml(text.trim_start_matches("---\n")));
    let mut kinds = BTreeMap::new();
    for document in documents.filter(|document| !document.is_null()) {
        let is_dashboard = document["data"].get("tidegate.json").is_some();
        let kind = if is_dashboard { "ConfigMap of Grafana" } else { kind(&document) }.to_owned();
        assert!(kinds.insert(kind, document).is_none(), "a kind comes twice:\n{text}");
    }
    kinds
}

fn kind(manifest: &Value) -> &str {
    manifest["kind"].as_str().unwrap()
}

/// The reason why helm refuses to render it.
pub(super) fn refused(args: &[&str]) -> String {
    let args = [&["template", "edge", CHART], args].concat();
    let output = run(&installed("helm/helm"), &args, "");
    assert!(!output.status.success(), "{args:?} is accepted");
    String::from_utf8(output.stderr).unwrap()
}

fn container(kinds: &BTreeMap<String, Value>) -> &Value {
    &kinds["Deployment"]["spec"]["template"]["spec"]["containers"][0]
}

/// The container's variables as flags: `TIDEGATE_STORE=memory` as `--store memory`.
pub(super) fn flags(kinds: &BTreeMap<String, Value>) -> BTreeMap<String, String> {
    let variables = container(kinds)["env"].as_array().unwrap().iter();
    let flag = |variable: &Value| {
        let name = variable["name"].as_str().unwrap().strip_prefix("TIDEGATE_").unwrap();
        let value = variable["value"].as_str().unwrap().to_owned();
        (format!("--{}", name.to_lowercase().replace('_', "-")), value)
    };
    variables.map(flag).collect()
}

#[test]
fn kubernetes_accepts_the_rendered_chart() {
    let all = [
        "ConfigMap",
        "ConfigMap of Grafana",
        "Deployment",
        "HorizontalPodAutoscaler",
        "NetworkPolicy",
        "PodDisruptionBudget",
        "PrometheusRule",
        "Service",
        "ServiceAccount",
        "ServiceMonitor",
    ];
    let few = ["ConfigMap", "Deployment", "PodDisruptionBudget", "Service", "ServiceAccount"];
    for (args, expected) in [(&["--values", FULL][..], &all[..]), (&[], &few)] {
        let kinds = rendered(args);
        assert_eq!(kinds.keys().collect::<Vec<_>>(), expected);
        for (kind, manifest) in kinds {
            if manifest["apiVersion"] != OPERATOR {
                assert_eq!(mistakes_of_manifest(&manifest), "", "{kind} with {args:?}");
            }
        }
    }
}

#[test]
fn the_schemas_of_kubernetes_find_mistakes() {
    let mut manifest = rendered(&[]).remove("Deployment").unwrap();
    manifest["spec"]["template"]["spec"]["containers"][0]["probes"] = json!({});
    manifest["spec"]["replicas"] = json!("three");
    let mistakes = mistakes_of_manifest(&manifest);
    assert!(mistakes.contains("/spec/template/spec/containers/0"), "{mistakes}");
    assert!(mistakes.contains("/spec/replicas"), "{mistakes}");
}

#[test]
fn helm_lint_finds_no_mistakes() {
    helm(&["lint", "--strict", "--quiet", CHART]);
    helm(&["lint", "--strict", "--quiet", CHART, "--values", FULL]);
}

#[test]
fn tidegate_accepts_the_limits_and_settings_of_the_chart() {
    for args in [&[][..], &["--values", FULL, "--set", "replicas=1,autoscaling.enabled=false"]] {
        let kinds = rendered(args);
        let folder = limits_folder(&[]);
        for (name, text) in kinds["ConfigMap"]["data"].as_object().unwrap() {
            fs::write(folder.path().join(name), text.as_str().unwrap()).unwrap();
        }
        let mut flags = flags(&kinds);
        for flag in ["--grpc-addr", "--http-addr"] {
            assert!(flags.remove(flag).unwrap().starts_with("0.0.0.0:"));
        }
        // Secrets and servers are not available here.
        let elsewhere = ["--store-user", "--grpc-allow-client-san"];
        flags.retain(|flag, value| !value.starts_with("/run/") && !elsewhere.contains(&&flag[..]));
        flags.insert("--store".to_owned(), "memory".to_owned());
        let limits = folder.path().to_str().unwrap().to_owned();
        assert_eq!(flags.insert("--limits".to_owned(), limits).unwrap(), "/etc/tidegate/limits");
        let args: Vec<_> = flags.iter().flat_map(|(flag, value)| [&flag[..], value]).collect();
        Tidegate::serve(&args);
    }
}

#[test]
fn pods_are_locked_down_and_have_time_to_drain() {
    for args in [&[][..], &["--values", FULL]] {
        let kinds = rendered(args);
        let pod = &kinds["Deployment"]["spec"]["template"]["spec"];
        assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
        assert_eq!(pod["automountServiceAccountToken"], false);
        assert_eq!(kinds["ServiceAccount"]["automountServiceAccountToken"], false);
        let expected = json!({
            "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true,
            "capabilities": { "drop": ["ALL"] },
        });
        assert_eq!(container(&kinds)["securityContext"], expected);
        let flags = flags(&kinds);
        let seconds = |flag: &str| flags[flag].trim_end_matches('s').parse::<u64>().unwrap();
        let drain = seconds("--drain-delay") + seconds("--drain-timeout");
        assert!(pod["terminationGracePeriodSeconds"].as_u64().unwrap() > drain);
        // A file mounted with subPath would never change.
        let mounts = container(&kinds)["volumeMounts"].as_array().unwrap();
        assert!(mounts.iter().all(|mount| mount.get("subPath").is_none()), "{mounts:?}");
    }
}

#[test]
fn passwords_are_files_and_never_variables() {
    let kinds = rendered(&["--values", FULL]);
    let flags = flags(&kinds);
    assert_eq!(flags["--store-password-file"], "/run/secrets/tidegate/password");
    assert_eq!(flags["--key-secret-file"], "/run/secrets/tidegate/key-secret");
    assert!(!flags.contains_key("--store-password"));
    let secret = refused(&["--set", "store.url=redis://:hunter2@redis"]);
    assert!(secret.contains("/store/url"), "{secret}");
    let secret = refused(&["--set", "settings.store-password=hunter2"]);
    assert!(secret.contains("store-password"), "{secret}");
}

#[test]
fn every_named_secret_is_mounted() {
    let kinds = rendered(&["--values", FULL]);
    let volumes = &kinds["Deployment"]["spec"]["template"]["spec"]["volumes"];
    let sources = volumes[1]["projected"]["sources"].as_array().unwrap().iter();
    let mounted: BTreeSet<_> = sources
        .flat_map(|source| source["secret"]["items"].as_array().unwrap())
        .map(|item| format!("/run/secrets/tidegate/{}", item["path"].as_str().unwrap()))
        .collect();
    let named = flags(&kinds).into_values().filter(|value| value.starts_with("/run/")).collect();
    assert_eq!(mounted, named);
    assert_eq!(mounted.len(), 8);
}

#[test]
fn tls_is_for_grpc_and_checks_callers_only_if_enabled() {
    let kinds = rendered(&["--values", FULL]);
    let flags = flags(&kinds);
    assert_eq!(flags["--grpc-cert-file"], "/run/secrets/tidegate/grpc.crt");
    let sans = "envoy.edge.svc,spiffe://cluster.local/ns/edge/sa/envoy";
    assert_eq!(flags["--grpc-allow-client-san"], sans);
    let port = |kinds: &BTreeMap<_, Value>| kinds["Service"]["spec"]["ports"][0].clone();
    assert_eq!(port(&kinds)["appProtocol"], "https");
    assert_eq!(port(&rendered(&[]))["appProtocol"], "kubernetes.io/h2c");
    let unchecked = refused(&["--set", "tls.clientCaSecret.name=ca"]);
    assert!(unchecked.contains("tls.clientCaSecret needs tls.certSecret"), "{unchecked}");
    let unchecked = refused(&["--set", "tls.certSecret=own,tls.allowClientSans[0]=envoy"]);
    assert!(unchecked.contains("tls.allowClientSans needs tls.clientCaSecret"), "{unchecked}");
}

#[test]
fn references_between_resources_resolve() {
    let kinds = rendered(&["--values", FULL]);
    let labels = &kinds["Deployment"]["spec"]["template"]["metadata"]["labels"];
    let service = &kinds["Service"];
    let selectors = [
        (&service["spec"]["selector"], labels),
        (&kinds["Deployment"]["spec"]["selector"]["matchLabels"], labels),
        (&kinds["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"], labels),
        (&kinds["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"], labels),
        (
            &kinds["ServiceMonitor"]["spec"]["selector"]["matchLabels"],
            &service["metadata"]["labels"],
        ),
    ];
    for (selector, labels) in selectors {
        for (name, value) in selector.as_object().unwrap() {
            assert_eq!(&labels[name], value, "{selector}");
        }
    }
    let names = |list: &Value| -> Vec<Value> {
        list.as_array().unwrap().iter().map(|port| port["name"].clone()).collect()
    };
    assert_eq!(names(&service["spec"]["ports"]), names(&container(&kinds)["ports"]));
    let scraped = &kinds["ServiceMonitor"]["spec"]["endpoints"][0];
    assert!(names(&service["spec"]["ports"]).contains(&scraped["port"]), "{scraped}");
    // The job's name is the value of this label, by which the alerts select Tidegate.
    let job_label = kinds["ServiceMonitor"]["spec"]["jobLabel"].as_str().unwrap();
    assert_eq!(service["metadata"]["labels"][job_label], "tidegate");
}

#[test]
fn promtool_accepts_the_alerts_of_the_chart() {
    let kinds = rendered(&["--values", FULL]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rules.yml");
    let spec = kinds["PrometheusRule"]["spec"].to_string();
    fs::write(&path, &spec).unwrap();
    // Every alert links to the chart's own address of the pages.
    let links =
        spec.matches("\"runbook_url\":\"https://docs.example/tidegate/operating.html#").count();
    assert_eq!(links, text("deploy/prometheus/rules.yml").matches("- alert: ").count());
    let printed = run_checked(
        installed("prometheus/promtool"),
        &["check", "rules", "--lint-fatal", Path::new(&path).to_str().unwrap()],
        "",
    );
    let rules = text("deploy/prometheus/rules.yml");
    let count = rules.matches("- alert: ").count() + rules.matches("- record: ").count();
    assert!(printed.contains(&format!("{count} rules found")), "{printed}");
}

#[test]
fn invalid_values_are_refused_with_a_reason() {
    for (value, reason) in [
        ("replicas=2", "each replica would count by itself"),
        ("autoscaling.enabled=true", "each replica would count by itself"),
        ("replicas=three", "/replicas"),
        ("replica=3", "replica"),
        ("store.url=mysql://redis", "/store/url"),
        ("terminationGracePeriodSeconds=15", "must be more than drainDelaySeconds"),
        ("limits.files=null", "limits.files is empty"),
        ("limits.files.edge=x", "invalid propertyName 'edge'"),
        ("settings.limits=/tmp", "'limits' not allowed"),
        ("settings.on-store-failur=deny", "'on-store-failur' not allowed"),
        ("settings.http-cert-file=/tls.crt", "'http-cert-file' not allowed"),
        ("settings.on-store-failure=denny", "/settings/on-store-failure"),
        ("settings.max-in-flight=lots", "/settings/max-in-flight"),
        ("runbookUrl=docs/operating.md", "/runbookUrl"),
        ("podDisruptionBudget.maxUnavailable=0", "maxUnavailable"),
    ] {
        let printed = refused(&["--set", value]);
        assert!(printed.contains(reason), "{value}: {printed}");
    }
}

#[test]
fn every_flag_is_a_setting_or_has_a_value_of_its_own() {
    // Probes and Prometheus use the HTTP port without TLS.
    let elsewhere = "limits store store-user store-password-file store-ca-file store-cert-file \
        store-key-file key-secret-file grpc-addr grpc-cert-file grpc-key-file grpc-client-ca-file \
        grpc-allow-client-san http-addr http-cert-file http-key-file http-client-ca-file \
        http-allow-client-san drain-delay drain-timeout help version";
    let cli = Cli::command();
    let serve = cli.find_subcommand("serve").unwrap();
    let flags: BTreeSet<_> = serve.get_arguments().filter_map(Arg::get_long).collect();
    let schema: Value =
        serde_json::from_str(&text(&format!("{CHART}/values.schema.json"))).unwrap();
    let types = schema["properties"]["settings"]["properties"].as_object().unwrap();
    let settings = types.keys().map(String::as_str);
    let chart: BTreeSet<_> = settings.chain(elsewhere.split_whitespace()).collect();
    let differing: Vec<_> = flags.symmetric_difference(&chart).collect();
    assert!(differing.iter().all(|flag| ["help", "version"].contains(flag)), "{differing:?}");
}
