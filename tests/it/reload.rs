//! Limits files that change while requests are served: which limits apply, and from when.

mod kinds;
mod refused;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::support::client::{Caller, Page, Request, request};
use crate::support::load::{Load, Samples};
use crate::support::process;
use crate::support::tidegate::Tidegate;

/// The deadline for changed limits to apply. The promise is a second, and alone this takes 0.02 to
/// 0.3; here all other tests use the processors too.
const RELOAD_MAX: Duration = Duration::from_secs(5);

/// A deadline for steps that must not take for ever.
const SOME_TIME: Duration = Duration::from_secs(20);

const RATE_PER_SECOND: u32 = 500;

/// Limits that must be equal in each answer, far from the beginning and the end of the file.
fn limits(limit: u64) -> String {
    let rule = |key: &str| {
        format!("  - {{ key: {key}, rate_limit: {{ period: 36500d, limit: {limit} }} }}\n")
    };
    format!("domain: edge\ndescriptors:\n{}{}", rule("first"), rule("last"))
}

fn asked() -> Request {
    request("edge").about("first", "v").about("last", "v")
}

/// A service with limits in a folder of the test's own, under load.
struct Loaded {
    tidegate: Tidegate,
    load: Load,
    folder: TempDir,
}

impl Loaded {
    /// `prepare` writes limits of 1,000,000 to a folder and returns the path to serve.
    fn with(prepare: impl FnOnce(&Path) -> PathBuf) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let served = prepare(folder.path());
        let tidegate = Tidegate::serve(&["--limits", served.to_str().unwrap()]);
        let load = Load::start(tidegate.grpc, RATE_PER_SECOND, &asked());
        load.wait_for(SOME_TIME, |sample| sample.limits == (1_000_000, 1_000_000));
        Self { tidegate, load, folder }
    }

    fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Waits until answers have this limit, which must not take long.
    fn wait_for_limit(&self, limit: u64) {
        let from = self.load.now();
        let first = self.load.wait_for(SOME_TIME, |sample| sample.limits == (limit, limit));
        let took = first.sent.saturating_sub(from);
        assert!(took <= RELOAD_MAX, "{limit} is in force after {took:?}");
    }

    /// Ends the load and asserts that no request failed, and that none saw a mixture.
    fn finish(self) -> Samples {
        let samples = self.load.stop();
        assert!(samples.all_answered(), "{:?}", samples.errors());
        for sample in &samples.0 {
            assert_eq!(sample.limits.0, sample.limits.1, "a mixture: {sample:?}");
        }
        samples
    }

    fn page(&self, path: &str) -> String {
        Page::get(self.tidegate.http, path).body
    }

    fn wait_for_page(&self, path: &str, wanted: &str) -> String {
        let found = || Some(self.page(path)).filter(|page| page.contains(wanted));
        let in_time = process::wait_until(SOME_TIME, found);
        in_time.unwrap_or_else(|| panic!("no {wanted:?} on {path}: {}", self.page(path)))
    }
}

/// A field of /limits.
fn limits_page(http: std::net::SocketAddr, part: &str) -> Value {
    let page: Value = serde_json::from_str(&Page::get(http, "/limits").body).unwrap();
    page[part].clone()
}

/// Replaces a file by another one, atomically.
fn replace(path: &Path, text: &str) {
    let new = path.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::rename(&new, path).unwrap();
}

fn file_of(limit: u64) -> impl FnOnce(&Path) -> PathBuf {
    move |folder| {
        let path = folder.join("limits.yaml");
        fs::write(&path, limits(limit)).unwrap();
        path
    }
}

#[test]
fn limits_are_reported_with_version_hash_files_and_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = file_of(5)(folder.path());
    let tidegate = Tidegate::serve(&["--limits", path.to_str().unwrap()]);
    let part = |part| limits_page(tidegate.http, part);
    assert_eq!(part("version"), 1);
    assert_eq!(part("files"), serde_json::json!([path]));
    assert_eq!(part("refused"), Value::Null);
    let (hash, at) = (part("hash"), part("loaded_at"));
    let at = at.as_str().unwrap();
    assert!(at.starts_with("20") && at.contains('T') && at.ends_with('Z'), "{at}");
    replace(&path, &limits(6));
    process::wait_until(SOME_TIME, || Some(()).filter(|()| part("version") == 2)).unwrap();
    assert_ne!(part("hash"), hash);
    replace(&path, &limits(5));
    process::wait_until(SOME_TIME, || Some(()).filter(|()| part("version") == 3)).unwrap();
    assert_eq!(part("hash"), hash, "the same contents");
}

#[test]
fn sighup_reads_limits_again_even_if_nothing_changed() {
    let folder = tempfile::tempdir().unwrap();
    let path = file_of(5)(folder.path());
    let tidegate = Tidegate::serve(&["--limits", path.to_str().unwrap()]);
    tidegate.ask_to_reload();
    let again = || Some(()).filter(|()| limits_page(tidegate.http, "version") == 2);
    process::wait_until(SOME_TIME, again).unwrap();
    let metrics = Page::get(tidegate.http, "/metrics").body;
    assert!(metrics.contains("rate_limit_config_reload_total{result=\"success\"} 2"), "{metrics}");
}

#[tokio::test]
async fn changed_numbers_and_unchanged_limits_keep_their_counters() {
    let folder = tempfile::tempdir().unwrap();
    let path = file_of(5)(folder.path());
    let tidegate = Tidegate::serve(&["--limits", path.to_str().unwrap()]);
    let caller = Caller::of(tidegate.grpc).await;
    let (changed, stays) =
        (request("edge").about("first", "v"), request("edge").about("last", "v"));
    for _ in 0..3 {
        assert!(caller.allows(&changed).await && caller.allows(&stays).await);
    }
    replace(&path, &limits(5).replacen("limit: 5 ", "limit: 10 ", 1));
    process::wait_until(SOME_TIME, || {
        Some(()).filter(|()| limits_page(tidegate.http, "version") == 2)
    })
    .unwrap();
    assert_eq!((caller.remaining(&changed).await, caller.remaining(&stays).await), (7, 2));
}

#[test]
fn a_hundred_reloads_per_second_are_debounced_and_leak_no_memory() {
    const RELOADS: u64 = 1_000;
    const PAUSE: Duration = Duration::from_millis(10);
    // The variation of the load's own memory; the old rules together would be four times this.
    const SPREAD_KIB: u64 = 12_000;
    // Megabytes of rules, so that a leak would show.
    let many: String = (0..2_000)
        .map(|n| format!("  - {{ key: key-{n}, rate_limit: {{ limit: {n}, period: 1h }} }}\n"))
        .collect();
    let text = |limit| limits(limit) + &many;
    let loaded = Loaded::with(|folder| {
        let path = folder.join("limits.yaml");
        fs::write(&path, text(1_000_000)).unwrap();
        path
    });
    let path = loaded.folder().join("limits.yaml");
    let (start, mut resident) = (loaded.load.now(), vec![]);
    for reload in 1..=RELOADS {
        replace(&path, &text(1_000_000 + reload));
        let next = start + PAUSE * u32::try_from(reload).unwrap();
        process::wait_until(PAUSE, || Some(()).filter(|()| loaded.load.now() >= next));
        if reload % 100 == 0 {
            resident.push(loaded.tidegate.resident_kib());
        }
    }
    loaded.wait_for_limit(1_000_000 + RELOADS);
    let versions = limits_page(loaded.tidegate.http, "version").as_u64().unwrap();
    assert!((5..RELOADS / 10).contains(&versions), "{versions} of {RELOADS} were read");
    let (settled, last) = (resident[2], resident[9]);
    assert!(last < settled + SPREAD_KIB, "resident KiB, a second after the other: {resident:?}");
    loaded.finish();
}
