//! The kinds of changes of limits files, each under load.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use super::{Loaded, file_of, limits, replace};

/// Longer than files must be unchanged before they are read.
const A_WHILE: Duration = Duration::from_millis(700);

/// The files of a ConfigMap as Kubernetes mounts them: names that lead through `..data` to a
/// folder.
fn mount(folder: &Path, version: &str, limit: u64) {
    let data = folder.join(version);
    fs::create_dir(&data).unwrap();
    fs::write(data.join("limits.yaml"), limits(limit)).unwrap();
    symlink(version, folder.join("..data_tmp")).unwrap();
    fs::rename(folder.join("..data_tmp"), folder.join("..data")).unwrap();
    let file = folder.join("limits.yaml");
    if !file.is_symlink() {
        symlink("..data/limits.yaml", file).unwrap();
    }
}

#[test]
fn a_file_written_in_place_is_loaded_and_no_request_fails() {
    let loaded = Loaded::with(file_of(1_000_000));
    let path = loaded.folder().join("limits.yaml");
    for limit in [2_000_000, 3_000_000] {
        fs::write(&path, limits(limit)).unwrap();
        loaded.wait_for_limit(limit);
    }
    loaded.finish();
}

#[test]
fn a_file_moved_into_place_is_loaded_and_no_request_fails() {
    let loaded = Loaded::with(file_of(1_000_000));
    let path = loaded.folder().join("limits.yaml");
    for limit in [2_000_000, 3_000_000] {
        replace(&path, &limits(limit));
        loaded.wait_for_limit(limit);
    }
    loaded.finish();
}

#[test]
fn a_file_of_a_folder_is_loaded_with_the_others() {
    let loaded = Loaded::with(|folder| {
        file_of(1_000_000)(folder);
        fs::write(folder.join("other.yaml"), "{domain: other, descriptors: [{key: k}]}").unwrap();
        folder.to_owned()
    });
    replace(&loaded.folder().join("limits.yaml"), &limits(2_000_000));
    loaded.wait_for_limit(2_000_000);
    fs::write(loaded.folder().join("new.yaml"), "{domain: new, descriptors: [{key: k}]}").unwrap();
    loaded.wait_for_page("/limits", "\"domain\":\"new\"");
    let of_other = "domain=\"other\"";
    assert!(loaded.page("/metrics").contains(of_other));
    fs::remove_file(loaded.folder().join("other.yaml")).unwrap();
    loaded.wait_for_page("/limits", "\"version\":4");
    assert!(!loaded.page("/limits").contains("\"domain\":\"other\""));
    let metrics = loaded.page("/metrics");
    assert!(!metrics.contains(of_other) && metrics.contains("domain=\"edge\""), "{metrics}");
    loaded.finish();
}

#[test]
fn a_swapped_config_map_is_loaded_each_time_as_folder_and_as_file() {
    for whole in [true, false] {
        let loaded = Loaded::with(|folder| {
            mount(folder, "..2026_01", 1_000_000);
            if whole { folder.to_owned() } else { folder.join("limits.yaml") }
        });
        for (version, limit) in [("..2026_02", 2_000_000), ("..2026_03", 3_000_000)] {
            let old = fs::read_link(loaded.folder().join("..data")).unwrap();
            mount(loaded.folder(), version, limit);
            fs::remove_dir_all(loaded.folder().join(old)).unwrap();
            loaded.wait_for_limit(limit);
        }
        loaded.finish();
    }
}

#[test]
fn a_file_behind_a_symlink_is_loaded_when_it_is_written() {
    let loaded = Loaded::with(|folder| {
        fs::create_dir(folder.join("real")).unwrap();
        file_of(1_000_000)(&folder.join("real"));
        symlink(folder.join("real/limits.yaml"), folder.join("link.yaml")).unwrap();
        folder.join("link.yaml")
    });
    fs::write(loaded.folder().join("real/limits.yaml"), limits(2_000_000)).unwrap();
    loaded.wait_for_limit(2_000_000);
    loaded.finish();
}

#[test]
fn a_folder_that_is_removed_and_created_again_is_followed() {
    let loaded = Loaded::with(|folder| {
        fs::create_dir(folder.join("limits")).unwrap();
        file_of(1_000_000)(&folder.join("limits"));
        folder.join("limits")
    });
    let limits_folder = loaded.folder().join("limits");
    for limit in [2_000_000, 3_000_000] {
        fs::remove_dir_all(&limits_folder).unwrap();
        loaded.wait_for_page("/readyz", "cannot be read: no such file or directory");
        fs::create_dir(&limits_folder).unwrap();
        fs::write(limits_folder.join("limits.yaml"), limits(limit)).unwrap();
        loaded.wait_for_limit(limit);
        fs::write(limits_folder.join("limits.yaml"), limits(limit + 1)).unwrap();
        loaded.wait_for_limit(limit + 1);
    }
    loaded.finish();
}

#[test]
fn a_swapped_symlink_in_the_middle_of_a_path_is_followed() {
    let loaded = Loaded::with(|folder| {
        for (version, limit) in [("v1", 1_000_000), ("v2", 2_000_000), ("v3", 3_000_000)] {
            fs::create_dir_all(folder.join(version).join("config")).unwrap();
            file_of(limit)(&folder.join(version).join("config"));
        }
        symlink("v1", folder.join("current")).unwrap();
        folder.join("current/config")
    });
    for (version, limit) in [("v2", 2_000_000), ("v3", 3_000_000)] {
        symlink(version, loaded.folder().join("new")).unwrap();
        fs::rename(loaded.folder().join("new"), loaded.folder().join("current")).unwrap();
        loaded.wait_for_limit(limit);
    }
    loaded.finish();
}

#[test]
fn files_in_more_folders_than_are_watched_are_loaded() {
    const FOLDERS: usize = 300;
    let other = |number: usize| format!("{{domain: other-{number}, descriptors: [{{key: k}}]}}");
    let loaded = Loaded::with(|folder| {
        let limits = folder.join("limits");
        fs::create_dir(&limits).unwrap();
        file_of(1_000_000)(&limits);
        for number in 0..FOLDERS {
            let real = folder.join(format!("{number}"));
            fs::create_dir(&real).unwrap();
            fs::write(real.join("a.yaml"), other(number)).unwrap();
            symlink(real.join("a.yaml"), limits.join(format!("{number}.yaml"))).unwrap();
        }
        limits
    });
    for number in [0, FOLDERS / 2, FOLDERS - 1] {
        let file = loaded.folder().join(format!("{number}/a.yaml"));
        fs::write(file, other(FOLDERS + number)).unwrap();
        loaded.wait_for_page("/limits", &format!("\"domain\":\"other-{}\"", FOLDERS + number));
    }
    replace(&loaded.folder().join("limits/limits.yaml"), &limits(2_000_000));
    loaded.wait_for_limit(2_000_000);
    loaded.finish();
}

#[test]
fn a_file_whose_folders_are_removed_and_created_again_is_followed() {
    let loaded = Loaded::with(|folder| {
        fs::create_dir_all(folder.join("some/where")).unwrap();
        file_of(1_000_000)(&folder.join("some/where"))
    });
    let folder = loaded.folder().join("some/where");
    for limit in [2_000_000, 3_000_000] {
        fs::remove_dir_all(loaded.folder().join("some")).unwrap();
        loaded.wait_for_page("/readyz", "cannot be read: no such file or directory");
        loaded.load.go_on_for(A_WHILE);
        fs::create_dir_all(&folder).unwrap();
        file_of(limit)(&folder);
        loaded.wait_for_limit(limit);
    }
    loaded.finish();
}

#[test]
fn half_a_file_is_not_loaded_even_if_it_is_valid_and_its_writer_pauses() {
    let loaded = Loaded::with(file_of(1_000_000));
    let whole = limits(2_000_000);
    let head = whole.find("  - { key: last").unwrap();
    let mut file = File::create(loaded.folder().join("limits.yaml")).unwrap();
    file.write_all(&whole.as_bytes()[..head]).unwrap();
    file.sync_all().unwrap();
    // One rule alone would show a mixture: the request would have one limit, with the new number.
    loaded.load.go_on_for(A_WHILE);
    let page = loaded.page("/limits");
    assert!(page.contains("\"version\":1") && page.contains("\"refused\":null"), "{page}");
    file.write_all(&whole.as_bytes()[head..]).unwrap();
    drop(file);
    loaded.wait_for_limit(2_000_000);
    assert!(loaded.page("/limits").contains("\"version\":2"));
    loaded.finish();
}

#[test]
fn a_change_without_an_event_applies_as_soon_as_any_other() {
    let loaded = Loaded::with(file_of(1_000_000));
    // Linux reports a write for the folder through which the file was opened.
    let elsewhere = tempfile::tempdir().unwrap();
    let link = elsewhere.path().join("limits.yaml");
    fs::hard_link(loaded.folder().join("limits.yaml"), &link).unwrap();
    loaded.load.go_on_for(A_WHILE);
    fs::write(&link, limits(2_000_000)).unwrap();
    loaded.wait_for_limit(2_000_000);
    loaded.finish();
}

#[test]
fn a_new_file_that_is_being_written_is_not_loaded() {
    let loaded = Loaded::with(|folder| {
        file_of(1_000_000)(folder);
        folder.to_owned()
    });
    let mut file = File::create(loaded.folder().join("new.yaml")).unwrap();
    file.write_all(b"{domain: new, descriptors: [{key: k}]}").unwrap();
    loaded.load.go_on_for(A_WHILE);
    let page = loaded.page("/limits");
    assert!(page.contains("\"version\":1") && page.contains("\"refused\":null"), "{page}");
    drop(file);
    loaded.wait_for_page("/limits", "\"domain\":\"new\"");
    loaded.finish();
}
