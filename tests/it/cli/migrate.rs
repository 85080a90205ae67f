//! `tidegate migrate`. Golden cases: each environment of `tests/golden/migrate`, read as
//! `NAME.env`, must give exactly the flags or mistakes of its case.

use std::fs;
use std::process::Command;

use clap::{CommandFactory, Parser};
use tidegate::command::migrate::{Becomes, VARIABLES, Vars, translated};
use tidegate::settings::Cli;

use super::{Printed, printed, run};
use crate::support::cases;
use crate::support::client::{Caller, limits_folder, request};
use crate::support::pages::words;
use crate::support::servers::{RedisServer, Version};
use crate::support::tidegate::Tidegate;

/// The variables of envoyproxy/ratelimit's `src/settings/settings.go`, and the names that it
/// derives from others.
const KNOWN_THERE: &str = "
    PROTO HOST PORT DEBUG_HOST DEBUG_PORT GRPC_UDS GRPC_HOST GRPC_PORT GRPC_MAX_CONNECTION_AGE
    GRPC_MAX_CONNECTION_AGE_GRACE GRPC_MAX_CONCURRENT_STREAMS GRPC_MAX_RECV_MSG_SIZE GRPC_SERVER_USE_TLS
    GRPC_SERVER_TLS_CERT GRPC_SERVER_TLS_KEY GRPC_CLIENT_TLS_CACERT GRPC_CLIENT_TLS_SAN LOG_LEVEL LOG_FORMAT
    CONFIG_TYPE FORCE_START_WITHOUT_INITIAL_CONFIG CONFIG_GRPC_XDS_NODE_ID CONFIG_GRPC_XDS_NODE_METADATA
    CONFIG_GRPC_XDS_SERVER_URL CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL
    CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS CONFIG_GRPC_XDS_SERVER_USE_TLS CONFIG_GRPC_XDS_CLIENT_TLS_CERT
    CONFIG_GRPC_XDS_CLIENT_TLS_KEY CONFIG_GRPC_XDS_SERVER_TLS_CACERT CONFIG_GRPC_XDS_SERVER_TLS_SAN
    XDS_CLIENT_BACKOFF_INITIAL_INTERVAL XDS_CLIENT_BACKOFF_MAX_INTERVAL XDS_CLIENT_BACKOFF_RANDOM_FACTOR
    XDS_CLIENT_BACKOFF_JITTER XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES USE_DOG_STATSD USE_DOG_STATSD_MOGRIFIERS
    DOG_STATSD_MOGRIFIER_TAG_PATTERN USE_STATSD STATSD_HOST STATSD_PORT EXTRA_TAGS STATS_FLUSH_INTERVAL
    DISABLE_STATS USE_PROMETHEUS PROMETHEUS_ADDR PROMETHEUS_PATH PROMETHEUS_MAPPER_YAML RUNTIME_ROOT
    RUNTIME_SUBDIRECTORY RUNTIME_APPDIRECTORY RUNTIME_IGNOREDOTFILES RUNTIME_WATCH_ROOT
    EXPIRATION_JITTER_MAX_SECONDS LOCAL_CACHE_SIZE_IN_BYTES NEAR_LIMIT_RATIO CACHE_KEY_PREFIX BACKEND_TYPE
    STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT LIMIT_RESPONSE_HEADERS_ENABLED LIMIT_LIMIT_HEADER
    LIMIT_REMAINING_HEADER LIMIT_RESET_HEADER LIMIT_REQUEST_HEADERS_ENABLED LIMIT_REQUEST_LIMIT_HEADER
    LIMIT_REQUEST_REMAINING_HEADER LIMIT_REQUEST_RESET_HEADER LIMIT_ALL_DESCRIPTORS_HEADERS_ENABLED
    HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED REDIS_SOCKET_TYPE REDIS_TYPE REDIS_URL REDIS_POOL_SIZE REDIS_AUTH
    REDIS_TLS REDIS_TLS_CLIENT_CERT REDIS_TLS_CLIENT_KEY REDIS_TLS_CACERT REDIS_TLS_SKIP_HOSTNAME_VERIFICATION
    REDIS_SENTINEL_AUTH REDIS_TIMEOUT REDIS_PIPELINE_WINDOW REDIS_PIPELINE_LIMIT REDIS_USE_EXPLICIT_PIPELINE
    REDIS_POOL_ON_EMPTY_BEHAVIOR REDIS_PERSECOND REDIS_PERSECOND_SOCKET_TYPE REDIS_PERSECOND_TYPE
    REDIS_PERSECOND_URL REDIS_PERSECOND_POOL_SIZE REDIS_PERSECOND_AUTH REDIS_PERSECOND_TLS
    REDIS_PERSECOND_SENTINEL_AUTH REDIS_PERSECOND_PIPELINE_WINDOW REDIS_PERSECOND_PIPELINE_LIMIT
    REDIS_PERSECOND_USE_EXPLICIT_PIPELINE REDIS_PERSECOND_TIMEOUT REDIS_PERSECOND_POOL_ON_EMPTY_BEHAVIOR
    REDIS_HEALTH_CHECK_ACTIVE_CONNECTION MEMCACHE_HOST_PORT MEMCACHE_MAX_IDLE_CONNS MEMCACHE_SRV
    MEMCACHE_SRV_REFRESH MEMCACHE_TLS MEMCACHE_TLS_CLIENT_CERT MEMCACHE_TLS_CLIENT_KEY MEMCACHE_TLS_CACERT
    MEMCACHE_TLS_SKIP_HOSTNAME_VERIFICATION SHADOW_MODE QUOTA_MODE MERGE_DOMAIN_CONFIG
    RESPONSE_DYNAMIC_METADATA USE_CALENDAR_MONTH_RATE_LIMIT TRACING_ENABLED TRACING_SERVICE_NAME
    TRACING_SERVICE_NAMESPACE TRACING_SERVICE_INSTANCE_ID TRACING_EXPORTER_PROTOCOL TRACING_SAMPLING_RATE
    OTEL_EXPORTER_OTLP_ENDPOINT DESCRIPTOR_KEY_CONFIG";

fn migrated(name: &str, text: &str) -> Result<String, String> {
    translated(&Vars::parse(&format!("{name}.env"), text)?)
}

#[test]
fn every_environment_gives_its_golden_text() {
    assert!(cases::of_folder("migrate").len() >= 22, "golden cases are missing");
    cases::check("migrate", |case| {
        let (name, printed) = (&case.name, migrated(&case.name, &case.given));
        assert_eq!(printed.is_err(), name.starts_with("wrong-"), "{name}: {printed:?}");
        let printed = printed.unwrap_or_else(|error| error + "\n");
        assert!(!printed.contains("hunter"), "{name} tells a password: {printed}");
        printed
    });
}

#[test]
fn every_printed_command_parses() {
    let mut parsed = 0;
    for cases::Case { name, given, .. } in cases::of_folder("migrate") {
        let Ok(printed) = migrated(&name, &given) else { continue };
        if let Err(error) = Cli::try_parse_from(words(&printed)) {
            panic!("{name}: {error}\n{printed}");
        }
        let below = printed.split_once("\n\n").unwrap().1.lines();
        assert!(below.clone().all(|line| line.is_empty() || line.starts_with('#')), "{printed}");
        parsed += 1;
    }
    assert!(parsed >= 8, "{parsed} commands");
}

#[test]
fn every_variable_of_envoyproxy_ratelimit_is_in_the_table() {
    for name in KNOWN_THERE.split_whitespace() {
        let rows = VARIABLES.iter().filter(|variable| {
            variable.name.strip_suffix('*').map_or(variable.name == name, |p| name.starts_with(p))
        });
        assert_eq!(rows.count(), 1, "{name}");
    }
}

#[test]
fn every_flag_of_the_table_is_a_flag_of_serve() {
    let cli = Cli::command();
    let serve = cli.find_subcommand("serve").unwrap();
    let flags: Vec<_> = serve.get_arguments().filter_map(|arg| arg.get_long()).collect();
    for variable in VARIABLES {
        if let Becomes::Flag(flag) = variable.becomes {
            assert!(flags.contains(&flag.trim_start_matches("--")), "{}: {flag}", variable.name);
        }
    }
}

#[test]
fn a_name_or_value_cannot_break_out_of_its_shell_quotes() {
    let text = "MEMCACHE_TLS\nreboot=1\0REDIS_URL=redis:6379\0RUNTIME_ROOT=/a'; reboot #\0";
    let printed = migrated("hostile", text).unwrap();
    let lines: Vec<_> = printed.lines().collect();
    assert_eq!(lines[1], r"  --limits '/a'\''; reboot #/config' \", "{printed}");
    assert!(lines.iter().all(|line| !line.starts_with("reboot")), "{printed}");
    let error = migrated("hostile", "RUNTIME_ROOT=/a\u{1b}[2J\0").unwrap_err();
    assert!(error.contains(r#""/a\u{1b}[2J"; allowed is a text without"#), "{error}");
}

fn migrate(file: &str, stdin: &str) -> Printed {
    printed(Tidegate::run(&["migrate", "--from", "envoyproxy-env", file], stdin))
}

#[test]
fn a_file_standard_input_and_the_environment_give_the_same() {
    let cases::Case { given: text, expected: wanted, .. } = cases::find("migrate", "sentinel");
    let folder = limits_folder(&[]);
    let file = folder.path().join("sentinel.env");
    fs::write(&file, &text).unwrap();
    let from_file = migrate(file.to_str().unwrap(), "");
    assert_eq!((from_file.code, from_file.out, from_file.err.as_str()), (0, wanted.clone(), ""));
    assert_eq!(migrate("-", &text).out, wanted);
    let mut own = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    own.env_clear().envs(text.lines().map(|line| line.split_once('=').unwrap()));
    let own = printed(own.args(["migrate", "--from", "envoyproxy-env"]).output().unwrap());
    assert_eq!((own.code, own.out), (0, wanted));
}

#[test]
fn mistakes_are_reported_with_their_line_and_exit_with_1() {
    let printed = migrate("-", "PORT=x\nREDIS_TYPE=FOO\n");
    assert_eq!((printed.code, printed.out.as_str()), (1, ""));
    let wanted = "error: standard input:1: PORT is \"x\"; allowed is a port from 1 to 65535\n\
        standard input:2: REDIS_TYPE is \"FOO\"; allowed is one of SINGLE, SENTINEL, CLUSTER\n";
    assert_eq!(printed.err, wanted);
    let missing = migrate("/no/such/file", "");
    assert_eq!((missing.code, missing.out.as_str()), (1, ""));
    assert!(missing.err.contains("/no/such/file: cannot be read"), "{}", missing.err);
    let other = run(&["migrate", "--from", "limitador"]);
    assert!(other.code != 0 && other.err.contains("--from"), "{}", other.err);
}

#[tokio::test]
async fn the_printed_flags_serve_what_the_environment_served() {
    let redis = RedisServer::start(Version::Redis70);
    let yaml = "domain: edge\ndescriptors:\n  - key: user\n    rate_limit: { unit: year, requests_per_unit: 1 }\n";
    let folder = limits_folder(&[]);
    fs::create_dir(folder.path().join("config")).unwrap();
    fs::write(folder.path().join("config/edge.yaml"), yaml).unwrap();
    let root = folder.path().display();
    let text = format!(
        "REDIS_SOCKET_TYPE=tcp\nREDIS_URL=127.0.0.1:{}\nRUNTIME_ROOT={root}\n",
        redis.port()
    );
    let words = words(&migrated("single", &text).unwrap());
    assert_eq!(words[..2], ["tidegate", "serve"]);
    // Its own ports, so that tests running at the same time do not collide.
    let pairs: Vec<_> = words[2..].chunks(2).filter(|pair| !pair[0].ends_with("-addr")).collect();
    let args: Vec<&str> = pairs.iter().flat_map(|pair| pair.iter().map(String::as_str)).collect();
    let args = [&args[..], &["--store-timeout", "10s"]].concat();
    let tidegate = Tidegate::serve(&args);
    let caller = Caller::of(tidegate.grpc).await;
    let user = request("edge").about("user", "42");
    assert!(caller.allows(&user).await);
    assert!(!caller.allows(&user).await, "the limit is not in force");
    let keys = redis.keys();
    assert_eq!(keys.len(), 1, "{keys:?}");
}
