//! An Envoy's configuration: `front.yaml`, and the fields that a test merges into it in Envoy's
//! syntax.

use std::fmt;
use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::support::upstream::Upstream;

const LISTENER: &str = "/static_resources/listeners/0";
const HTTP: &str = "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config";
const HOST: &str = "/route_config/virtual_hosts/0";

/// A configuration under construction. Mappings are merged field by field, all other values are
/// replaced.
#[derive(Clone, Debug)]
pub struct Config(Value);

impl Config {
    /// Routes everything to `upstream` if the service at `service` allows it; no limits yet. The
    /// domain is `edge`.
    pub fn new(service: SocketAddr, upstream: &Upstream) -> Self {
        let mut config = Self(yaml(include_str!("front.yaml")));
        let clusters = [("tidegate", service), ("echo", upstream.http), ("grpc", upstream.grpc)];
        for (at, (name, addr)) in clusters.into_iter().enumerate() {
            let cluster = config.at(&format!("/static_resources/clusters/{at}"));
            assert_eq!(cluster["name"], name);
            let endpoint = "/load_assignment/endpoints/0/lb_endpoints/0/endpoint";
            let endpoint = cluster.pointer_mut(endpoint).expect("an endpoint");
            endpoint["address"]["socket_address"]["port_value"] = json!(addr.port());
        }
        config
    }

    /// Adds a replica of the service.
    pub fn replica(mut self, service: SocketAddr) -> Self {
        let endpoints = self.at("/static_resources/clusters/0/load_assignment/endpoints/0");
        let endpoints = endpoints["lb_endpoints"].as_array_mut().expect("endpoints");
        let mut endpoint = endpoints[0].clone();
        endpoint["endpoint"]["address"]["socket_address"]["port_value"] = json!(service.port());
        endpoints.push(endpoint);
        self
    }

    /// Merges fields into the service's cluster.
    pub fn service(mut self, fields: &str) -> Self {
        merge(self.at("/static_resources/clusters/0"), yaml(fields));
        self
    }

    /// Merges fields into the rate limit filter.
    pub fn filter(mut self, fields: &str) -> Self {
        let filters = self.at(HTTP)["http_filters"].as_array_mut().expect("filters");
        let at = filters.len() - 2;
        merge(&mut filters[at]["typed_config"], yaml(fields));
        self
    }

    /// Adds a filter right before the rate limit filter.
    pub fn before(mut self, filter: &str) -> Self {
        let filters = self.at(HTTP)["http_filters"].as_array_mut().expect("filters");
        filters.insert(filters.len() - 2, yaml(filter));
        self
    }

    /// Adds a rate limit filter with fields of its own, before the others.
    pub fn another_filter(mut self, name: &str, fields: &str) -> Self {
        let filters = self.at(HTTP)["http_filters"].as_array_mut().expect("filters");
        let mut filter = filters[filters.len() - 2].clone();
        filter["name"] = json!(name);
        merge(&mut filter["typed_config"], yaml(fields));
        filters.insert(0, filter);
        self
    }

    /// Merges fields into the connection manager.
    pub fn http(mut self, fields: &str) -> Self {
        merge(self.at(HTTP), yaml(fields));
        self
    }

    /// Merges fields into the only virtual host.
    pub fn host(mut self, fields: &str) -> Self {
        let host = self.at(HTTP).pointer_mut(HOST).expect("a virtual host");
        merge(host, yaml(fields));
        self
    }

    /// Adds a route before the others; without `match` it matches every path.
    pub fn route(mut self, fields: &str) -> Self {
        let mut route = json!({ "match": { "prefix": "/" }, "route": { "cluster": "echo" } });
        merge(&mut route, yaml(fields));
        let host = self.at(HTTP).pointer_mut(HOST).expect("a virtual host");
        host["routes"].as_array_mut().expect("routes").insert(0, route);
        self
    }

    /// Adds a network filter before the HTTP filter.
    pub fn network(mut self, filter: &str) -> Self {
        let chain = &mut self.at(LISTENER)["filter_chains"][0]["filters"];
        chain.as_array_mut().expect("filters").insert(0, yaml(filter));
        self
    }

    fn at(&mut self, pointer: &str) -> &mut Value {
        self.0.pointer_mut(pointer).unwrap_or_else(|| panic!("front.yaml has no {pointer}"))
    }
}

impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Parses YAML.
///
/// # Panics
/// When it is invalid.
fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}
