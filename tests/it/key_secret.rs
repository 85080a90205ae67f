//! Values of requests under a secret: Redis never sees them.

use std::fs;
use std::path::Path;

use crate::support::client::{Served, limits_folder, request};
use crate::support::servers::{RedisServer, Version};
use crate::support::tidegate::Tidegate;

const EDGE: &str = "
domain: edge
slot_by: [tenant]
descriptors:
  - key: user
    rate_limit: { limit: 3, period: 36500d }
  - key: tenant
    descriptors:
      - key: user
        value: alice
        rate_limit: { limit: 9, period: 36500d, algorithm: sliding_window_log }
";

fn secret(folder: &Path, text: &str) -> String {
    let path = folder.join(text);
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

fn served(redis: &RedisServer, more: &[&str]) -> Served {
    let url = redis.url();
    Served::with(&[EDGE], &[&["--store", &url, "--store-timeout", "10s"], more].concat())
}

#[tokio::test]
async fn redis_stores_no_value_and_replicas_with_one_secret_share_counters() {
    let (redis, folder) = (RedisServer::start(Version::Redis70), tempfile::tempdir().unwrap());
    let secrets = ["sixteen bytes, or more", "another one that is as long"];
    let paths = secrets.map(|text| secret(folder.path(), text));
    let replica = |path: &str| served(&redis, &["--key-secret-file", path]);
    let user_request =
        request("edge").about("user", "alice").about("tenant", "acme").and("user", "alice");
    let (one, other) = (replica(&paths[0]), replica(&paths[0]));
    for served in [&one, &other, &one] {
        assert!(served.caller().await.allows(&user_request).await);
    }
    assert!(!other.caller().await.allows(&user_request).await, "they count together");
    assert!(
        replica(&paths[1]).caller().await.allows(&user_request).await,
        "another secret, other counters"
    );
    let keys = redis.command(&["KEYS", "*"]).into_array();
    assert_eq!(keys.len(), 4);
    for key in keys {
        let key = key.into_text();
        assert!(key.contains("user=#"), "{key}");
        assert!(!key.contains("alice") && !key.contains("acme"), "{key}");
    }
}

#[test]
fn a_file_without_a_secret_ends_serve_at_once_with_the_flag() {
    let (folder, limits) = (tempfile::tempdir().unwrap(), limits_folder(&[EDGE]));
    let path = secret(folder.path(), "too short");
    let limits = limits.path().to_str().unwrap();
    let addrs = ["--grpc-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0"];
    let serve = ["serve", "--limits", limits, "--key-secret-file", &path];
    let output = Tidegate::run(&[&serve[..], &addrs].concat(), "");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(stderr.contains("--key-secret-file ") && stderr.contains("holds 9 bytes"), "{stderr}");
}
