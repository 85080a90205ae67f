//! The service with a Redis that requires TLS, a client certificate and a user with the fewest
//! permissions.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use tidegate::proto::tidegate::v1::DecisionSource::{Fallback, Store};
use tokio::time::timeout;

use crate::support::acl::User;
use crate::support::client::{Caller, Served, request};
use crate::support::servers::{RedisServer, Version};
use crate::support::tls::{Certificates, ClientCertificates};

const LIMITS: &str =
    "{domain: edge, descriptors: [{key: user, rate_limit: {limit: 100000, period: 1h}}]}";

/// The permissions that README and docs/redis.md list as sufficient.
const LEAST: &str = "~tg:* +evalsha +script|load +ping +get +mget +set +getrange +setrange \
                     +pexpire +pexpireat +del +time +info +client|id";

async fn source(caller: &Caller) -> tidegate::proto::tidegate::v1::DecisionSource {
    caller.check(&request("edge").about("user", "a")).await.unwrap().source()
}

#[tokio::test]
async fn a_tls_connection_with_a_client_certificate_decides() {
    let made = Certificates::new();
    let server = RedisServer::start_tls(&made, ClientCertificates::Required);
    let path = |path: std::path::PathBuf| path.to_str().unwrap().to_owned();
    let (ca, cert, key) = (path(made.ca()), path(made.client()), path(made.client_key()));
    let url = server.tls_url();
    let store = ["--store", &url, "--store-timeout", "10s", "--store-ca-file", &ca];
    let shown = ["--store-cert-file", &cert, "--store-key-file", &key];
    let known = Served::with(&[LIMITS], &[&store[..], &shown[..]].concat());
    assert_eq!(source(&known.caller().await).await, Store);
    let unknown = ["--store", &url, "--store-timeout", "500ms", "--store-ca-file", &ca];
    let unknown = Served::with(&[LIMITS], &unknown);
    assert_eq!(source(&unknown.caller().await).await, Fallback, "no certificate is shown");
}

#[tokio::test]
async fn the_fewest_permissions_suffice_and_a_rotated_password_is_read_again() {
    let server = RedisServer::start(Version::Redis70);
    let mut user = User { name: "tidegate".to_owned(), password: "first".to_owned() };
    server.add_user(&user, LEAST);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("password");
    fs::write(&file, "first\n").unwrap();
    let (url, file_name) = (server.url(), file.to_str().unwrap());
    let args = ["--store", &url, "--store-timeout", "5s", "--store-user", "tidegate"];
    let served =
        Served::with(&[LIMITS], &[&args[..], &["--store-password-file", file_name]].concat());
    let caller = served.caller().await;
    assert_eq!(source(&caller).await, Store);
    server.change_password(&mut user, "second");
    fs::write(&file, "second\n").unwrap();
    server.end_connections_of(&user);
    let back = async { while source(&caller).await != Store {} };
    timeout(Duration::from_secs(20), back).await.expect("the new password is read");
    let denied = server.command(&["ACL", "LOG"]);
    assert_eq!(format!("{denied:?}"), "Array([])", "nothing that the user may not do was tried");
}

#[test]
fn the_fewest_permissions_include_each_command_of_the_script() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("lua");
    let mut commands = BTreeSet::new();
    for file in fs::read_dir(folder).unwrap() {
        let text = fs::read_to_string(file.unwrap().path()).unwrap();
        let is_word =
            |text: &&str| text.len() > 1 && text.bytes().all(|letter| letter.is_ascii_uppercase());
        commands.extend(text.split('\'').skip(1).filter(is_word).map(str::to_owned));
    }
    // Options of SET.
    for option in ["PX", "PXAT", "KEEPTTL"] {
        assert!(commands.remove(option), "{option} is gone");
    }
    for page in ["README.md", "docs/redis.md"] {
        let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(page)).unwrap();
        assert!(page.contains(LEAST), "another set of permissions stands there");
    }
    for command in commands {
        let permission = format!("+{}", command.to_lowercase());
        assert!(LEAST.split(' ').any(|own| own == permission), "{LEAST} lacks {permission}");
    }
}

#[tokio::test]
async fn the_fewest_permissions_suffice_for_every_algorithm_over_time() {
    let algorithms = "fixed_window sliding_window_log sliding_window_counter token_bucket gcra";
    let rule = |algorithm: &str| {
        format!(
            "{{key: {algorithm}, rate_limit: {{limit: 1000000, period: 100ms, \
             algorithm: {algorithm}}}}}"
        )
    };
    let rules: Vec<_> = algorithms.split(' ').map(rule).collect();
    let limits = format!("{{domain: edge, descriptors: [{}]}}", rules.join(", "));
    for version in [Version::Redis70, Version::Redis62, Version::Valkey91] {
        let server = RedisServer::start(version);
        let user = User { name: "tidegate".to_owned(), password: "secret".to_owned() };
        let least = match version {
            Version::Redis62 => LEAST.replace("+client|id", "+client"),
            Version::Redis70 | Version::Valkey91 => LEAST.to_owned(),
        };
        server.add_user(&user, &least);
        let url = server.url().replace("redis://", "redis://tidegate:secret@");
        let served = Served::with(&[&limits], &["--store", &url, "--store-timeout", "10s"]);
        let caller = served.caller().await;
        let all = algorithms.split(' ').fold(request("edge"), |all, key| all.about(key, "v"));
        let windows = async {
            let (mut windows, mut before) = (0, 0);
            while windows < 5 {
                let answer = caller.check(&all).await.unwrap();
                assert_eq!(answer.source(), Store, "{version:?}");
                let remaining = answer.statuses[0].remaining();
                windows += usize::from(remaining >= before);
                before = remaining;
            }
        };
        timeout(Duration::from_secs(60), windows).await.expect("windows end");
        let denied = server.command(&["ACL", "LOG"]);
        assert_eq!(format!("{denied:?}"), "Array([])", "{version:?}");
    }
}
