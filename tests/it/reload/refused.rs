//! Invalid limits files: the old limits stay, and the mistakes are reported everywhere.

use std::fs;

use rustix::fs::{CWD, Mode, mkfifoat};
use serde_json::Value;

use super::{Loaded, file_of, limits, replace};
use crate::support::tidegate::Tidegate;

/// The hash of the loaded limits, from `/limits`.
fn hash(loaded: &Loaded) -> String {
    let limits: Value = serde_json::from_str(&loaded.page("/limits")).unwrap();
    limits["hash"].as_str().unwrap().to_owned()
}

#[test]
fn a_refused_file_is_reported_everywhere_until_it_is_fixed() {
    let loaded = Loaded::with(file_of(1_000_000));
    let path = loaded.folder().join("limits.yaml");
    let hash = hash(&loaded);
    replace(&path, &limits(2_000_000).replacen("period: 36500d", "period: 7x", 1));
    let place = format!("{}:3:41: ", path.display());
    loaded.wait_for_page("/readyz", &place);
    let ready = loaded.page("/readyz");
    assert!(ready.starts_with("ready\n"), "{ready}");
    assert!(ready.contains("version 1 stays"), "{ready}");
    let limits_page = loaded.page("/limits");
    assert!(limits_page.contains(&place) && limits_page.contains("\"version\":1"), "{limits_page}");
    loaded.tidegate.wait_for_log(&place);
    for series in [
        "rate_limit_config_reload_total{result=\"failure\"} 1\n",
        "rate_limit_config_reload_total{result=\"success\"} 1\n",
        "rate_limit_config_last_reload_successful 0\n",
        &format!("rate_limit_config_info{{hash=\"{hash}\"}} 1\n"),
    ] {
        let metrics = loaded.page("/metrics");
        assert!(metrics.contains(series), "{series}{metrics}");
    }
    replace(&path, &limits(2_000_000));
    loaded.wait_for_limit(2_000_000);
    assert_eq!(loaded.page("/readyz"), "ready\n");
    assert!(loaded.page("/limits").contains("\"refused\":null"));
    let metrics = loaded.page("/metrics");
    assert!(metrics.contains("rate_limit_config_last_reload_successful 1\n"));
    let info: Vec<_> =
        metrics.lines().filter(|l| l.starts_with("rate_limit_config_info{")).collect();
    let (new, old) = (self::hash(&loaded), hash);
    assert!(new != old, "other limits have another hash");
    assert_eq!(info, [format!("rate_limit_config_info{{hash=\"{new}\"}} 1")]);
    let samples = loaded.finish();
    let kept = |limit| [1_000_000, 2_000_000].contains(&limit);
    assert!(samples.0.iter().all(|sample| kept(sample.limits.0)), "no other limits were told");
}

#[test]
fn restored_files_are_loaded_again() {
    let loaded = Loaded::with(file_of(1_000_000));
    let path = loaded.folder().join("limits.yaml");
    replace(&path, "{domain: edge, descriptors: 5}");
    loaded.wait_for_page("/readyz", "descriptors must be a list");
    replace(&path, &limits(1_000_000));
    loaded.wait_for_page("/limits", "\"refused\":null");
    assert_eq!(loaded.page("/readyz"), "ready\n");
    loaded.finish();
}

#[test]
fn an_empty_or_missing_file_keeps_the_old_limits() {
    let loaded = Loaded::with(file_of(1_000_000));
    let path = loaded.folder().join("limits.yaml");
    fs::write(&path, "").unwrap();
    loaded.wait_for_page("/readyz", "the file is empty");
    fs::remove_file(&path).unwrap();
    loaded.wait_for_page("/readyz", "cannot be read: no such file or directory");
    // A pipe: opening it would wait for a writer.
    mkfifoat(CWD, &path, Mode::RWXU).unwrap();
    loaded.wait_for_page("/readyz", "cannot be read: is not a file");
    fs::remove_file(&path).unwrap();
    fs::write(&path, limits(2_000_000)).unwrap();
    loaded.wait_for_limit(2_000_000);
    loaded.finish();
}

#[test]
fn a_folder_without_limits_keeps_the_old_ones() {
    let loaded = Loaded::with(|folder| {
        file_of(1_000_000)(folder);
        folder.to_owned()
    });
    fs::rename(loaded.folder().join("limits.yaml"), loaded.folder().join("limits.off")).unwrap();
    loaded.wait_for_page("/readyz", "no *.yaml or *.yml in this folder");
    loaded.finish();
}

#[test]
fn the_service_does_not_start_with_an_empty_file_or_folder() {
    let folder = tempfile::tempdir().unwrap();
    let serve = |path: &std::path::Path| {
        let path = path.to_str().unwrap();
        let ports = ["--grpc-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0"];
        let run = Tidegate::run(&[&["serve", "--limits", path], &ports[..]].concat(), "");
        assert_eq!(run.status.code(), Some(1));
        String::from_utf8(run.stderr).unwrap()
    };
    let printed = serve(folder.path());
    assert!(printed.contains("no *.yaml or *.yml in this folder"), "{printed}");
    let file = folder.path().join("limits.yaml");
    fs::write(&file, "").unwrap();
    let printed = serve(&file);
    assert!(printed.contains("limits.yaml:1:1: the file is empty"), "{printed}");
}
