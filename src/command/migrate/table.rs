//! All variables that envoyproxy/ratelimit reads, and their counterparts.
//!
//! They come from its `src/settings/settings.go`, old and new versions together. [`super::flags`]
//! and [`super::store`] build the flags.

use Becomes::{Flag, Missing, Needless};
use Kind::{Choice, Count, Duration, Host, Port, Ratio, Secret, Switch, Text};

/// One variable.
#[derive(Debug)]
pub struct Variable {
    /// The name; a trailing `*` matches any suffix.
    pub name: &'static str,
    /// The allowed values.
    pub kind: Kind,
    /// The counterpart in Tidegate.
    pub becomes: Becomes,
}

/// The type of a value, as envoyproxy/ratelimit parses it.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// Any text.
    Text,
    /// Text that is never printed.
    Secret,
    /// `true` or `false`, in Go's spellings.
    Switch,
    /// An address to listen on.
    Host,
    /// From 1 to 65535.
    Port,
    /// A whole number.
    Count,
    /// A number from 0 to 1.
    Ratio,
    /// A duration in Go's syntax, such as `1h30m` or `150us`.
    Duration,
    /// One of these words, in upper or lower case.
    Choice(&'static [&'static str]),
}

/// The counterpart of a variable. A switch that is off gets no remark.
#[derive(Clone, Copy, Debug)]
pub enum Becomes {
    /// It becomes this flag of `serve`.
    Flag(&'static str),
    /// It has no counterpart; this remark names the closest feature.
    Missing(&'static str),
    /// It is replaced by this feature, or not needed.
    Needless(&'static str),
}

/// Prefixes of variables of envoyproxy/ratelimit that may be newer than this table.
pub(super) const PREFIXES: [&str; 11] = [
    "CONFIG_GRPC_",
    "GRPC_",
    "LIMIT_",
    "MEMCACHE_",
    "OTEL_EXPORTER_OTLP_",
    "PROMETHEUS_",
    "REDIS_",
    "RUNTIME_",
    "STATSD_",
    "TRACING_",
    "XDS_",
];

const ADDRESS: Becomes = Needless("an address is enough");
const BATCHES: Becomes = Needless(
    "requests that wait travel together by themselves, at most --store-batch-max in a script run",
);
const CONNECTIONS: Becomes = Needless(
    "each serving thread (--threads) has one connection to each server, and never waits for a free one",
);
const DEBUG: Becomes = Needless(
    "there is no debug port: /limits on the HTTP port shows the limits in force, /metrics the counts",
);
const FETCH: Becomes = Needless(
    "metrics are always at /metrics on the HTTP port: let Prometheus fetch them there, domain and \
        rule are labels",
);
const HEADER_NAMES: Becomes = Needless(
    "header names are fixed: --headers x-ratelimit has X-RateLimit-Limit, -Remaining and -Reset, \
        --headers draft the IETF's",
);
const MEMCACHE: Becomes =
    Missing("memcache is not supported as a store: counters live in Redis, or in this process");
const PERSECOND: Becomes = Needless(
    "all limits of a request are decided together, so one store holds them all; to spread load, \
        name several servers in --store, or a cluster (docs/redis.md)",
);
const STATSD: Becomes = Missing(
    "there is no statsd: let Prometheus fetch /metrics on the HTTP port \
        (docs/from-envoyproxy-ratelimit.md has the names)",
);
const TIMEOUT: Becomes = Needless(
    "--store-timeout (15ms) bounds a decision; keep it below the timeout of Envoy's rate limit \
        filter (20ms unless set)",
);
const TRACED_AS: Becomes = Needless(
    "OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES name the service in its environment, \
        as in service.namespace=edge,service.instance.id=a",
);
const UPSTREAM_HEADERS: Becomes =
    Missing("headers go to the caller only; the service behind Envoy gets none");
const XDS: Becomes =
    Missing("limits come from files: let your xDS server write them, for example to a ConfigMap");

/// All variables.
pub const VARIABLES: &[Variable] = &[
    // Addresses to listen on.
    of("PROTO", Text, ADDRESS),
    of("HOST", Host, Flag("--http-addr")),
    of("PORT", Port, Flag("--http-addr")),
    of("DEBUG_HOST", Text, DEBUG),
    of("DEBUG_PORT", Port, DEBUG),
    of("GRPC_UDS", Text, Flag("--grpc-addr")),
    of("GRPC_HOST", Host, Flag("--grpc-addr")),
    of("GRPC_PORT", Port, Flag("--grpc-addr")),
    of("MAX_CONCURRENT_REQUESTS", Count, Flag("--max-in-flight")),
    of("REQUEST_TIMEOUT", Duration, TIMEOUT),
    of("GRPC_MAX_CONNECTION_AGE", Duration, Flag("--max-connection-age")),
    of(
        "GRPC_MAX_CONNECTION_AGE_GRACE",
        Duration,
        Needless("an old connection gets GOAWAY and finishes its calls"),
    ),
    of(
        "GRPC_MAX_CONCURRENT_STREAMS",
        Count,
        Needless(
            "a connection has 256 calls open at most, and --max-in-flight bounds those decided at \
                once",
        ),
    ),
    of(
        "GRPC_MAX_RECV_MSG_SIZE",
        Count,
        Needless(
            "a message has 4 MiB at most, and --max-descriptors, --max-entries and --max-text-bytes \
                bound what is in it",
        ),
    ),
    of("GRPC_SERVER_USE_TLS", Switch, Flag("--grpc-cert-file")),
    of("GRPC_SERVER_TLS_CERT", Text, Flag("--grpc-cert-file")),
    of("GRPC_SERVER_TLS_KEY", Text, Flag("--grpc-key-file")),
    of("GRPC_CLIENT_TLS_CACERT", Text, Flag("--grpc-client-ca-file")),
    of("GRPC_CLIENT_TLS_SAN", Text, Flag("--grpc-allow-client-san")),
    // The log.
    of(
        "LOG_LEVEL",
        Choice(&["panic", "fatal", "error", "warn", "warning", "info", "debug", "trace"]),
        Flag("--log"),
    ),
    of("LOG_FORMAT", Choice(&["text", "json"]), Flag("--log-format")),
    // The location of limits files.
    of("CONFIG_TYPE", Choice(&["FILE", "GRPC_XDS_SOTW"]), Flag("--limits")),
    of(
        "FORCE_START_WITHOUT_INITIAL_CONFIG",
        Switch,
        Missing("it only starts with valid limits, and reports the mistakes in others"),
    ),
    of("CONFIG_GRPC_XDS_NODE_ID", Text, XDS),
    of("CONFIG_GRPC_XDS_NODE_METADATA", Text, XDS),
    of("CONFIG_GRPC_XDS_SERVER_URL", Text, XDS),
    of("CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL", Duration, XDS),
    of("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", Secret, XDS),
    of("CONFIG_GRPC_XDS_SERVER_USE_TLS", Switch, XDS),
    of("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", Text, XDS),
    of("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", Text, XDS),
    of("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", Text, XDS),
    of("CONFIG_GRPC_XDS_SERVER_TLS_SAN", Text, XDS),
    of("XDS_CLIENT_BACKOFF_*", Text, XDS),
    of("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", Count, XDS),
    of("RUNTIME_ROOT", Text, Flag("--limits")),
    of("RUNTIME_SUBDIRECTORY", Text, Flag("--limits")),
    of("RUNTIME_APPDIRECTORY", Text, Flag("--limits")),
    of(
        "RUNTIME_IGNOREDOTFILES",
        Switch,
        Needless("files whose names begin with a dot are never read"),
    ),
    of(
        "RUNTIME_WATCH_ROOT",
        Switch,
        Needless("every change is found: written or moved files, and swapped symlinks"),
    ),
    of("MERGE_DOMAIN_CONFIG", Switch, Flag("--merge-domains")),
    of(
        "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED",
        Switch,
        Needless(
            "it never runs without limits: it starts with good ones, and keeps them where new ones \
                are bad",
        ),
    ),
    // Statistics.
    of("USE_DOG_STATSD", Switch, STATSD),
    of("USE_DOG_STATSD_MOGRIFIERS", Text, STATSD),
    of("DOG_STATSD_MOGRIFIER_*", Text, STATSD),
    of("USE_STATSD", Switch, STATSD),
    of("STATSD_HOST", Text, STATSD),
    of("STATSD_PORT", Port, STATSD),
    of("STATS_FLUSH_INTERVAL", Duration, STATSD),
    of(
        "EXTRA_TAGS",
        Text,
        Needless(
            "add labels where Prometheus fetches: labels of static_configs, or relabel_configs",
        ),
    ),
    of(
        "SANITIZE_DESCRIPTOR_METRIC_DOTS",
        Switch,
        Needless("rules and values are labels, in which a dot is not a separator"),
    ),
    of("DISABLE_STATS", Switch, Needless("metrics are always available, and need not be scraped")),
    of("USE_PROMETHEUS", Switch, FETCH),
    of("PROMETHEUS_ADDR", Text, FETCH),
    of("PROMETHEUS_PATH", Text, FETCH),
    of("PROMETHEUS_MAPPER_YAML", Text, FETCH),
    of(
        "NEAR_LIMIT_RATIO",
        Ratio,
        Needless(
            "fixed at 0.8: rate_limit_near_limit_total counts checks that leave a fifth of the limit \
                or less",
        ),
    ),
    // Counting.
    of("BACKEND_TYPE", Choice(&["redis", "memcache"]), Flag("--store")),
    of("EXPIRATION_JITTER_MAX_SECONDS", Count, Needless("keys expire as soon as they are idle")),
    of(
        "LOCAL_CACHE_SIZE_IN_BYTES",
        Count,
        Needless("the deny cache does this; it is on unless --deny-cache-max-keys is 0"),
    ),
    of(
        "CACHE_KEY_PREFIX",
        Text,
        Missing(
            "keys begin with tg: and do not meet those of envoyproxy/ratelimit; to keep two \
                deployments apart on one Redis, give their domains other names, or each a database \
                (redis://HOST:PORT/1)",
        ),
    ),
    of("STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", Switch, Flag("--count-rejected")),
    of("SHADOW_MODE", Switch, Flag("--shadow-mode")),
    of("QUOTA_MODE", Switch, Flag("--quota-mode")),
    of(
        "USE_CALENDAR_MONTH_RATE_LIMIT",
        Switch,
        Missing("a month is 30 days and a year 365, from the epoch on"),
    ),
    // Response headers.
    of("RESPONSE_DYNAMIC_METADATA", Switch, Flag("--dynamic-metadata")),
    of("LIMIT_RESPONSE_HEADERS_ENABLED", Switch, Flag("--headers")),
    of("LIMIT_LIMIT_HEADER", Text, HEADER_NAMES),
    of("LIMIT_REMAINING_HEADER", Text, HEADER_NAMES),
    of("LIMIT_RESET_HEADER", Text, HEADER_NAMES),
    of("LIMIT_REQUEST_HEADERS_ENABLED", Switch, UPSTREAM_HEADERS),
    of("LIMIT_REQUEST_LIMIT_HEADER", Text, UPSTREAM_HEADERS),
    of("LIMIT_REQUEST_REMAINING_HEADER", Text, UPSTREAM_HEADERS),
    of("LIMIT_REQUEST_RESET_HEADER", Text, UPSTREAM_HEADERS),
    of(
        "LIMIT_ALL_DESCRIPTORS_HEADERS_ENABLED",
        Switch,
        Needless("--headers draft lists every limit, x-ratelimit the tightest one"),
    ),
    // Redis.
    of("REDIS_SOCKET_TYPE", Choice(&["unix", "tcp", "tls"]), Flag("--store")),
    of("REDIS_TYPE", Choice(&["SINGLE", "SENTINEL", "CLUSTER"]), Flag("--store")),
    of("REDIS_URL", Secret, Flag("--store")),
    of("REDIS_AUTH", Secret, Flag("--store-password-file")),
    of("REDIS_SENTINEL_AUTH", Secret, Flag("--store")),
    of("REDIS_TLS", Switch, Flag("--store")),
    of("REDIS_TLS_CLIENT_CERT", Text, Flag("--store-cert-file")),
    of("REDIS_TLS_CLIENT_KEY", Text, Flag("--store-key-file")),
    of("REDIS_TLS_CACERT", Text, Flag("--store-ca-file")),
    of(
        "REDIS_TLS_SKIP_HOSTNAME_VERIFICATION",
        Switch,
        Missing(
            "Redis's certificate must name the host that --store has; that cannot be turned off",
        ),
    ),
    of("REDIS_POOL_SIZE", Count, CONNECTIONS),
    of("REDIS_POOL_ON_EMPTY_BEHAVIOR", Text, CONNECTIONS),
    of("REDIS_PIPELINE_WINDOW", Duration, BATCHES),
    of("REDIS_PIPELINE_LIMIT", Count, BATCHES),
    of("REDIS_USE_EXPLICIT_PIPELINE", Switch, BATCHES),
    of("REDIS_TIMEOUT", Duration, TIMEOUT),
    of(
        "REDIS_HEALTH_CHECK_ACTIVE_CONNECTION",
        Switch,
        Needless(
            "with --on-store-failure error, /readyz and health follow Redis; else a replica decides \
                by itself meanwhile, and stays ready",
        ),
    ),
    of("REDIS_PERSECOND", Switch, PERSECOND),
    of("REDIS_PERSECOND_SOCKET_TYPE", Choice(&["unix", "tcp", "tls"]), PERSECOND),
    of("REDIS_PERSECOND_TYPE", Choice(&["SINGLE", "SENTINEL", "CLUSTER"]), PERSECOND),
    of("REDIS_PERSECOND_URL", Secret, PERSECOND),
    of("REDIS_PERSECOND_AUTH", Secret, PERSECOND),
    of("REDIS_PERSECOND_SENTINEL_AUTH", Secret, PERSECOND),
    of("REDIS_PERSECOND_TLS", Switch, PERSECOND),
    of("REDIS_PERSECOND_POOL_SIZE", Count, PERSECOND),
    of("REDIS_PERSECOND_POOL_ON_EMPTY_BEHAVIOR", Text, PERSECOND),
    of("REDIS_PERSECOND_PIPELINE_WINDOW", Duration, PERSECOND),
    of("REDIS_PERSECOND_PIPELINE_LIMIT", Count, PERSECOND),
    of("REDIS_PERSECOND_USE_EXPLICIT_PIPELINE", Switch, PERSECOND),
    of("REDIS_PERSECOND_TIMEOUT", Duration, PERSECOND),
    // Memcache.
    of("MEMCACHE_HOST_PORT", Text, MEMCACHE),
    of("MEMCACHE_MAX_IDLE_CONNS", Count, MEMCACHE),
    of("MEMCACHE_SRV", Text, MEMCACHE),
    of("MEMCACHE_SRV_REFRESH", Duration, MEMCACHE),
    of("MEMCACHE_TLS*", Text, MEMCACHE),
    of(
        "DESCRIPTOR_KEY_CONFIG",
        Text,
        Needless(
            "limits that requests bring count under the dimension override, without any value, so \
                that nothing needs to be left out",
        ),
    ),
    // Traces.
    of("TRACING_ENABLED", Switch, Flag("--otlp-endpoint")),
    of("TRACING_SERVICE_NAME", Text, TRACED_AS),
    of("TRACING_SERVICE_NAMESPACE", Text, TRACED_AS),
    of("TRACING_SERVICE_INSTANCE_ID", Text, TRACED_AS),
    of("TRACING_EXPORTER_PROTOCOL", Choice(&["http", "grpc"]), Flag("--otlp-endpoint")),
    of("TRACING_SAMPLING_RATE", Ratio, Flag("--otlp-sample")),
    of("OTEL_EXPORTER_OTLP_ENDPOINT", Secret, Flag("--otlp-endpoint")),
    of("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", Secret, Flag("--otlp-endpoint")),
    of("OTEL_EXPORTER_OTLP_HEADERS", Secret, Needless("serve reads it too: leave it as it is")),
];

/// The row of a variable.
pub(super) fn find(name: &str) -> Option<&'static Variable> {
    VARIABLES.iter().find(|variable| match variable.name.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => variable.name == name,
    })
}

const fn of(name: &'static str, kind: Kind, becomes: Becomes) -> Variable {
    Variable { name, kind, becomes }
}
