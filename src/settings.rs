//! Every setting, in one table: flags and environment variables, with their help.
#![allow(rustdoc::broken_intra_doc_links, reason = "help texts such as HOST[:PORT] are not links")]

mod bench;
mod client;
mod complete;
mod connections;
mod heading;
mod log;
mod migrate;
mod ports;
mod store;
mod switches;
mod top;
mod traces;
mod values;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::Styles;
use clap::builder::styling::AnsiColor;
use clap::{ArgAction, Args, CommandFactory, FromArgMatches, Parser, Subcommand};

pub use self::bench::Bench;
pub use self::client::Client;
pub use self::complete::{Completions, Man};
pub use self::connections::Connections;
pub use self::log::{Log, LogFormat};
pub use self::migrate::{Migrate, Origin};
pub use self::ports::{Address, Ports, Secured};
pub use self::store::{Store, StoreUrl};
pub use self::switches::Switches;
pub use self::top::Top;
pub use self::traces::Traces;
pub use self::values::Entries;
use self::values::{
    batch_max, bytes, count, deny_max, descriptors_max, duration, entries, headers, keys_max,
    on_or_off, policy, replicas, series_max, threads_max,
};
use crate::envoy::{Headers, Style};
use crate::key::{KeyFormat, KeySecret};
use crate::on_store_failure::OnStoreFailure;
use crate::request::Bounds;
use crate::secret_file;
use crate::store::deny_cache;

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default());

/// A rate-limit service: checks all limits of a request at once, and takes from all of them or from
/// none.
#[derive(Debug, Parser)]
#[command(name = "tidegate", version, styles = STYLES, propagate_version = true)]
pub struct Cli {
    /// The command to run.
    #[command(subcommand)]
    pub command: Command,
}

impl Cli {
    /// Reads the command line. Ends the process to show help or a mistake.
    pub fn read() -> Self {
        let read = Self::from_arg_matches(&Self::described().get_matches());
        read.unwrap_or_else(|error| error.exit())
    }

    /// The command line, whose help shows no value of the environment: it could be a secret.
    pub fn described() -> clap::Command {
        let hide = |command: clap::Command| command.mut_args(|arg| arg.hide_env_values(true));
        hide(Self::command()).mut_subcommands(hide)
    }
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the service
    ///
    /// Serves gRPC (CheckRateLimit, GetQuota, RefundHits, Envoy's ShouldRateLimit, health, reflection) and
    /// HTTP (/healthz, /readyz, /metrics, /limits, /top, and /json for requests).
    #[command(after_help = "Example:\n  tidegate serve --limits deploy/example/limits.yaml\n  \
        tidegate serve --limits /etc/tidegate --store redis://127.0.0.1:6379\n  \
        tidegate serve --limits /etc/tidegate --store rediss-cluster://a:6379,b:6379 --store-user tidegate \\\n    \
        --store-password-file /run/secrets/redis")]
    Serve(Box<Serve>),
    /// Check limits files
    ///
    /// Shows each mistake in its line and exits with 1, or prints a table of the limits and exits
    /// with 0. Each path is read as `serve --limits` reads it.
    #[command(after_help = "Example:\n  tidegate check deploy/example/limits.yaml\n  \
        tidegate check --strict staging/ production/\n  \
        helm template . --show-only templates/limits.yaml | tidegate check -")]
    Check(Check),
    /// Send one request to a running service
    ///
    /// Exits with 0 if the request is allowed, 1 if it is rejected, 2 on an error.
    #[command(after_help = "Example:\n  \
        tidegate query --domain edge user_id=42 ip=203.0.113.9 everyone=\n  \
        tidegate query --domain edge tenant=acme,path=/login --hits 2")]
    Query(Query),
    /// Reset counters of a running service
    ///
    /// Resets every counter that these descriptors match. The service must run with --admin-addr.
    #[command(after_help = "Example:\n  tidegate reset --domain edge user_id=42")]
    Reset(Reset),
    /// Show the values that a running service rejects most
    ///
    /// Lists, by rule, the values rejected most in the last 10 to 20 seconds. The true count is
    /// between REJECTIONS and UP TO.
    #[command(after_help = "Example:\n  tidegate top --rule user_id")]
    Top(Top),
    /// Replay recorded requests on their own clock
    ///
    /// Tries limits on yesterday's traffic: reads one JSON line per request and prints one JSON
    /// line per decision. With Redis it uses keys of its own and removes them at the end.
    #[command(after_help = "A request:\n  {\"at_ms\":1700000000000,\"domain\":\"edge\",\
        \"descriptors\":[{\"entries\":[[\"user_id\",\"42\"]],\"hits\":2}],\"hits\":1,\
        \"peek\":false,\"refund\":false}\nhits, peek and refund may be left out; a descriptor's \
        hits win over the request's.\n\nThe service records such traffic with --decision-log-sample 1 and a \
        --decision-log-rate\nabove the traffic. Other lines of a JSON log are skipped:\n  \
        tidegate simulate --limits new.yaml --trace tidegate.log --summary")]
    Simulate(Simulate),
    /// Generate load for a running service and report latencies
    ///
    /// Calls Envoy's ShouldRateLimit, so it also works with other rate limit services. Exits with 2
    /// if no request is answered.
    #[command(after_help = bench::PATTERNS)]
    Bench(Box<Bench>),
    /// Translate the settings of another service into flags of `serve`
    ///
    /// Prints a shell command, and as comments every variable that is set and has no equivalent
    /// flag. Passwords are never printed.
    #[command(after_help = "Example:\n  tidegate migrate --from envoyproxy-env ratelimit.env\n  \
        kubectl set env deployment/ratelimit --list --resolve | tidegate migrate --from envoyproxy-env -")]
    Migrate(Migrate),
    /// Print a completion script for a shell
    #[command(after_help = "Examples:\n  \
        tidegate completions bash > /usr/share/bash-completion/completions/tidegate\n  \
        tidegate completions zsh > \"${fpath[1]}/_tidegate\"\n  \
        tidegate completions fish > ~/.config/fish/completions/tidegate.fish")]
    Completions(Completions),
    /// Print the manual page, or write one page per command
    #[command(
        after_help = "Examples:\n  tidegate man | man -l -\n  tidegate man --out /usr/share/man/man1"
    )]
    Man(Man),
}

/// Settings of `serve`.
#[derive(Args, Clone, Debug)]
pub struct Serve {
    /// The limits: a YAML file, or a directory of them
    #[arg(help_heading = heading::LIMITS, long, env = "TIDEGATE_LIMITS", value_name = "FILE|DIR")]
    pub limits: PathBuf,
    /// How limits files are read
    #[command(flatten, next_help_heading = heading::LIMITS)]
    pub switches: Switches,
    /// The store
    #[command(flatten, next_help_heading = heading::STORE)]
    pub store: Store,
    /// The ports
    #[command(flatten, next_help_heading = heading::PORTS)]
    pub ports: Ports,
    /// Address of the admin port (ResetQuota), a loopback address; unset: disabled
    #[arg(help_heading = heading::PORTS, long, env = "TIDEGATE_ADMIN_ADDR", value_name = "ADDR")]
    pub admin_addr: Option<SocketAddr>,
    /// How long a decision may wait for the store. Envoy waits 20ms for the answer
    #[arg(help_heading = heading::STORE, long, env = "TIDEGATE_STORE_TIMEOUT", default_value = "15ms", value_parser = duration, value_name = "DURATION")]
    pub store_timeout: Duration,
    /// The answer while the store cannot decide, unless the domain sets its own
    #[arg(help_heading = heading::FAILURE, long, env = "TIDEGATE_ON_STORE_FAILURE", default_value = "local", value_parser = policy, value_name = "local|allow|deny|error")]
    pub on_store_failure: OnStoreFailure,
    /// Replicas that share the store. While the store cannot decide, `local` enforces each limit
    /// divided by this number
    #[arg(help_heading = heading::FAILURE, long, env = "TIDEGATE_REPLICAS", default_value_t = 1, value_parser = replicas, value_name = "N")]
    pub replicas: u32,
    /// Requests per script run in Redis, at most
    #[arg(help_heading = heading::STORE, long, env = "TIDEGATE_STORE_BATCH_MAX", default_value_t = 64, value_parser = batch_max, value_name = "N")]
    pub store_batch_max: usize,
    /// How long a limit that Redis reported as full is rejected without asking again, at most
    #[arg(help_heading = heading::STORE, long, env = "TIDEGATE_DENY_CACHE_TTL", default_value = "1s", value_parser = duration, value_name = "DURATION")]
    pub deny_cache_ttl: Duration,
    /// Entries of the deny cache, at most; 0 disables it
    #[arg(help_heading = heading::STORE, long, env = "TIDEGATE_DENY_CACHE_MAX_KEYS", default_value_t = 100_000, value_parser = deny_max, value_name = "N")]
    pub deny_cache_max_keys: usize,
    /// A file with a secret of at least 16 bytes. Values of requests are hashed with it before they
    /// are put in keys. All replicas need the same secret; a new secret resets all counters
    #[arg(help_heading = heading::STORE, long, env = "TIDEGATE_KEY_SECRET_FILE", value_name = "FILE")]
    pub key_secret_file: Option<PathBuf>,
    /// Counters that the memory store holds; at the bound, the limit with most of them evicts those
    /// least recently used
    #[arg(help_heading = heading::STORE, long, env = "TIDEGATE_MEMORY_MAX_KEYS", default_value_t = 1_000_000, value_parser = keys_max, value_name = "N")]
    pub memory_max_keys: usize,
    /// Threads that serve; unset: one per core
    #[arg(help_heading = heading::CONNECTIONS, long, env = "TIDEGATE_THREADS", value_parser = threads_max, value_name = "N")]
    pub threads: Option<usize>,
    /// Memory that the process may use, such as 256MiB; 0: no bound. Unset: the limit of its cgroup, if
    /// it has one. Connections, counters and buffers are bounded so that they stay below it
    #[arg(long, env = "TIDEGATE_MEMORY_LIMIT", value_parser = bytes, value_name = "SIZE")]
    pub memory_limit: Option<u64>,
    /// Calls decided at a time; further calls are answered RESOURCE_EXHAUSTED
    #[arg(help_heading = heading::CONNECTIONS, long, env = "TIDEGATE_MAX_IN_FLIGHT", default_value_t = 10_000, value_parser = count, value_name = "N")]
    pub max_in_flight: usize,
    /// How connections are kept and closed
    #[command(flatten, next_help_heading = heading::CONNECTIONS)]
    pub connections: Connections,
    /// Descriptors per request, at most
    #[arg(help_heading = heading::REQUESTS, long, env = "TIDEGATE_MAX_DESCRIPTORS", default_value_t = 256, value_parser = descriptors_max, value_name = "N")]
    pub max_descriptors: usize,
    /// Entries per descriptor, at most
    #[arg(help_heading = heading::REQUESTS, long, env = "TIDEGATE_MAX_ENTRIES", default_value_t = 32, value_parser = count, value_name = "N")]
    pub max_entries: usize,
    /// Bytes per domain, key or value, at most
    #[arg(help_heading = heading::REQUESTS, long, env = "TIDEGATE_MAX_TEXT_BYTES", default_value_t = 4_096, value_parser = count, value_name = "N")]
    pub max_text_bytes: usize,
    /// Rate limit headers in answers to Envoy
    #[arg(help_heading = heading::ENVOY, long, env = "TIDEGATE_HEADERS", default_value = "off", value_parser = headers, value_name = "off|x-ratelimit|draft")]
    pub headers: Headers,
    /// Whether answers to Envoy carry the matched rules, the rejecting ones and their metadata
    #[arg(help_heading = heading::ENVOY, long, env = "TIDEGATE_DYNAMIC_METADATA", default_value = "on", action = ArgAction::Set, value_parser = on_or_off, value_name = "on|off")]
    pub dynamic_metadata: bool,
    /// Metric series with values of requests in their labels, four per value, as detailed_metric
    /// and value_to_metric create them. Beyond this number the oldest are counted as `other`
    #[arg(help_heading = heading::TELEMETRY, long, env = "TIDEGATE_METRIC_MAX_SERIES", default_value_t = 10_000, value_parser = series_max, value_name = "N")]
    pub metric_max_series: usize,
    /// The log
    #[command(flatten, next_help_heading = heading::TELEMETRY)]
    pub log: Log,
    /// Traces
    #[command(flatten, next_help_heading = heading::TELEMETRY)]
    pub traces: Traces,
}

impl Serve {
    /// Number of serving threads.
    pub fn threads(&self) -> usize {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        self.threads.unwrap_or(cores)
    }

    /// The bounds of the deny cache.
    pub const fn deny_cache(&self) -> deny_cache::Bounds {
        deny_cache::Bounds { keys_max: self.deny_cache_max_keys, ttl: self.deny_cache_ttl }
    }

    /// The format of keys. Reads the secret's file.
    ///
    /// # Errors
    /// The file has no usable secret. The message names the flag.
    pub fn spelling(&self) -> Result<KeyFormat, String> {
        let path = self.key_secret_file.as_ref();
        let secret = path.map(|path| {
            let secret = secret_file::read(path)?;
            KeySecret::of(&secret).map_err(|what| format!("{}: {what}", path.display()))
        });
        let secret = secret.transpose().map_err(|error| format!("--key-secret-file {error}"))?;
        Ok(KeyFormat { secret, ..KeyFormat::readable("tg") })
    }

    /// Optional parts of answers to Envoy.
    pub const fn style(&self) -> Style {
        Style { headers: self.headers, dynamic_metadata: self.dynamic_metadata }
    }

    /// Bounds of a request.
    pub const fn bounds(&self) -> Bounds {
        Bounds {
            descriptors_max: self.max_descriptors,
            entries_max: self.max_entries,
            text_bytes_max: self.max_text_bytes,
        }
    }
}

/// Settings of `check`.
#[derive(Args, Debug)]
pub struct Check {
    /// Limits files, or directories of them; `-` is standard input
    #[arg(required = true, value_name = "FILE|DIR|-")]
    pub paths: Vec<PathBuf>,
    /// Exit with 1 for warnings too
    #[arg(long)]
    pub strict: bool,
    /// Print mistakes, warnings and limits as JSON
    #[arg(long)]
    pub json: bool,
    /// How limits files are read
    #[command(flatten, next_help_heading = heading::LIMITS)]
    pub switches: Switches,
}

/// Settings of `query`.
#[derive(Args, Debug)]
pub struct Query {
    /// The service: HOST[:PORT], https://HOST[:PORT] or unix:PATH; the port is 8081 unless given
    #[arg(long, env = "TIDEGATE_ADDR", default_value = "127.0.0.1:8081", value_name = "ADDR")]
    pub addr: String,
    /// The domain of the limits file
    #[arg(long, value_name = "D")]
    pub domain: String,
    /// Descriptors: the entries of each, separated by commas. Write \, for a comma in a value
    #[arg(required = true, value_name = "k=v[,k=v]", value_parser = entries)]
    pub descriptors: Vec<Entries>,
    /// Hits per descriptor
    #[arg(long, value_name = "N")]
    pub hits: Option<u64>,
    /// Only ask; take no hits
    #[arg(long, conflicts_with = "refund")]
    pub peek: bool,
    /// Give the hits back
    #[arg(long)]
    pub refund: bool,
    /// Print the answer as JSON
    #[arg(long)]
    pub json: bool,
    /// TLS
    #[command(flatten, next_help_heading = heading::TLS)]
    pub client: Client,
}

/// Settings of `reset`.
#[derive(Args, Debug)]
pub struct Reset {
    /// The service's --admin-addr: HOST[:PORT], https://HOST[:PORT] or unix:PATH; the port is 8082
    /// unless given
    #[arg(
        long,
        env = "TIDEGATE_ADMIN_ADDR",
        default_value = "127.0.0.1:8082",
        value_name = "ADDR"
    )]
    pub addr: String,
    /// The domain of the limits file
    #[arg(long, value_name = "D")]
    pub domain: String,
    /// Descriptors: the entries of each, separated by commas. Write \, for a comma in a value
    #[arg(required = true, value_name = "k=v[,k=v]", value_parser = entries)]
    pub descriptors: Vec<Entries>,
    /// TLS
    #[command(flatten, next_help_heading = heading::TLS)]
    pub client: Client,
}

/// Settings of `simulate`.
#[derive(Args, Debug)]
pub struct Simulate {
    /// The limits: a YAML file, or a directory of them
    #[arg(long, env = "TIDEGATE_LIMITS", value_name = "FILE|DIR")]
    pub limits: PathBuf,
    /// Requests, one JSON line each, or lines of the decision log; `-` is standard input
    #[arg(long, value_name = "FILE|-")]
    pub trace: PathBuf,
    /// Print a table of allowed and rejected requests by rule instead of decisions
    #[arg(long)]
    pub summary: bool,
    /// How limits files are read
    #[command(flatten, next_help_heading = heading::LIMITS)]
    pub switches: Switches,
    /// The store of the replay
    #[command(flatten, next_help_heading = heading::STORE)]
    pub store: Store,
}
