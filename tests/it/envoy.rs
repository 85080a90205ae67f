//! A real Envoy asks a real Tidegate: what Envoy's callers get.

mod actions;
mod answers;
mod changes;
mod failures;
mod headers;
mod hits;
mod limits;
mod replicas;
mod routes;

use crate::support::client::{Request, Served};
use crate::support::envoy::{Config, Envoy};
use crate::support::servers::{RedisServer, Version};
use crate::support::upstream::Upstream;
use crate::support::web::WebRequest;

const OK: u16 = 200;
const TOO_MANY: u16 = 429;

/// An Envoy with what stands behind it and beside it.
struct Front {
    envoy: Envoy,
    served: Served,
    redis: Option<RedisServer>,
    _upstream: Upstream,
}

impl Front {
    /// Limits in memory, and a configuration that adds to the usual one.
    async fn start(limits: &str, configure: impl FnOnce(Config) -> Config) -> Self {
        Self::over(Served::with_limits(limits), None, configure).await
    }

    /// The same on a Redis server.
    async fn on_redis(limits: &str, configure: impl FnOnce(Config) -> Config) -> Self {
        let redis = RedisServer::start(Version::Redis70);
        let served = Served::with(&[limits], &["--store", &redis.url(), "--store-timeout", "10s"]);
        Self::over(served, Some(redis), configure).await
    }

    async fn over(
        served: Served,
        redis: Option<RedisServer>,
        configure: impl FnOnce(Config) -> Config,
    ) -> Self {
        let upstream = Upstream::start();
        let config = configure(Config::new(served.tidegate.grpc, &upstream));
        Self { envoy: Envoy::start(&config).await, served, redis, _upstream: upstream }
    }

    fn get(&self, path: &str) -> WebRequest {
        self.envoy.get(path)
    }

    /// Hits left of the only limit that a request meets.
    async fn left(&self, request: Request) -> u64 {
        self.served.caller().await.remaining(&request).await
    }
}

/// The rate limits of a route or host: a descriptor for each name, with the header `x-NAME`.
fn apart(names: &[&str]) -> String {
    let limits = names.iter().map(|name| format!("{{ actions: [{}] }}", header(name)));
    format!("{{ rate_limits: [{}] }}", limits.collect::<Vec<_>>().join(", "))
}

/// The same in one descriptor, an entry for each name.
fn together(names: &[&str]) -> String {
    let entries = names.iter().map(|name| header(name)).collect::<Vec<_>>().join(", ");
    format!("{{ rate_limits: [{{ actions: [{entries}] }}] }}")
}

fn header(name: &str) -> String {
    format!("{{ request_headers: {{ header_name: x-{name}, descriptor_key: {name} }} }}")
}
