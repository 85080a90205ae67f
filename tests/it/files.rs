//! Rules about the files of the repository, which a reviewer would otherwise have to check.

use std::fs;
use std::path::{Path, PathBuf};

const LINES_MAX: usize = 450;

/// The only loops that may sleep. In the tests: the loop that polls for changes that send no event,
/// and the proxy that delays replies. In the program: the ends of messages and streams that arrive
/// too slowly and of connections whose streams go on, the delay before shutdown, the acceptor when the machine has no descriptor left, the
/// timer for deadlines, the probe of a server that is down and the map of a cluster.
const MAY_WAIT: [&str; 9] = [
    "tests/it/support/process.rs",
    "tests/it/support/proxy.rs",
    "src/body.rs",
    "src/server.rs",
    "src/server/connection.rs",
    "src/server/listen.rs",
    "src/server/stream.rs",
    "src/store/redis/cluster.rs",
    "src/store/redis/node.rs",
];

#[test]
fn no_source_file_is_too_long() {
    for (path, text) in files(&["src", "lua", "tests/it", "tests/bench"]) {
        let lines = text.lines().count();
        assert!(lines <= LINES_MAX, "{path}: {lines} lines are over the maximum, {LINES_MAX}");
    }
}

#[test]
fn no_file_has_a_todo() {
    // Concatenated here, so that this file keeps its own rule.
    let marks = ["TO", "FIX"].into_iter().zip(["DO", "ME"]);
    let marks: Vec<_> = marks.map(|(start, end)| format!("{start}{end}")).collect();
    for (path, text) in files(&["src", "lua", "tests/it", "tests/bench", "tests/tools", "proto"]) {
        for (line, text) in (1..).zip(text.lines()) {
            let found = marks.iter().find(|mark| text.contains(mark.as_str()));
            assert!(found.is_none(), "{path}:{line}: {found:?}: do it, or open an issue");
        }
    }
}

#[test]
fn no_test_sleeps() {
    let calls = ["sleep", "sleep_until"].map(|name| format!("{name}("));
    for (path, text) in files(&["src", "tests/it", "tests/bench"]) {
        if MAY_WAIT.contains(&path.as_str()) {
            continue;
        }
        for (line, text) in (1..).zip(text.lines()) {
            let sleeps = calls.iter().any(|call| text.contains(call.as_str()));
            assert!(!sleeps, "{path}:{line}: turn a clock, or wait for an event with a deadline");
        }
    }
}

#[test]
fn every_test_of_the_tree_is_run() {
    let ignores = ["#[ign", "ore"].concat();
    // These require Go and Java, and have a target of their own.
    let makefile = fs::read_to_string(root().join("Makefile")).unwrap();
    assert!(makefile.contains("cargo test --test it clients:: -- --ignored"));
    for (path, text) in files(&["src", "tests/it", "tests/bench"]) {
        let is_run = path.starts_with("tests/it/clients") || !text.contains(&ignores);
        assert!(is_run, "{path}: a test that is not run tests nothing");
    }
}

#[test]
fn every_file_of_the_script_is_in_the_build() {
    let build = fs::read_to_string(root().join("build.rs")).unwrap();
    let parts = files(&["lua"]);
    assert!(!parts.is_empty(), "no part of the script");
    for (path, _) in parts {
        let name = path.strip_prefix("lua/").unwrap();
        assert!(build.contains(&format!("{name:?}")), "{path} is not among LUA_PARTS");
    }
}

#[test]
fn no_module_file_is_called_mod() {
    for (path, _) in files(&["src", "tests/it", "tests/bench"]) {
        assert!(!path.ends_with("/mod.rs"), "{path}: name it after its module");
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// All files below the folders: their paths from the root, and their text.
fn files(folders: &[&str]) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for folder in folders {
        let before = found.len();
        collect(&root().join(folder), &mut found);
        assert!(found.len() > before, "{folder} holds no file");
    }
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
        (path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned(), text)
    };
    found.into_iter().map(read).collect()
}

fn collect(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, found);
        } else {
            found.push(path);
        }
    }
}

/// The comparison of `make counts`, whose unit tests run here: as a bench it has no test harness.
#[allow(dead_code, reason = "the bench uses the rest of it")]
#[path = "../bench/counts/baseline.rs"]
mod counts_baseline;
