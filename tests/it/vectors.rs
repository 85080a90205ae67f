//! Runs every trace of `tests/vectors` through `tidegate simulate`: each decision must equal the
//! vector's, in memory and in Redis, where no key of the replay remains.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::servers::{RedisServer, Reply, Version};
use crate::support::tidegate::Tidegate;

/// Fewer mean an incomplete checkout.
const VECTORS_MIN: usize = 50;

#[test]
fn memory_decides_every_vector_as_written() {
    for vector in vectors() {
        replay(&vector, "memory");
    }
}

#[test]
fn redis_decides_every_vector_as_written_and_is_empty_afterwards() {
    let redis = RedisServer::start(Version::Redis70);
    for vector in vectors() {
        replay(&vector, &redis.url());
        assert_eq!(redis.command(&["DBSIZE"]), Reply::Int(0), "left by {}", vector.display());
    }
    assert!(redis.evalsha_calls() > 0, "the script never ran");
}

/// The paths of all vectors, without their extension.
fn vectors() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors");
    let files = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let traces = files.filter(|file| file.extension().is_some_and(|name| name == "jsonl"));
    let mut vectors: Vec<_> = traces.map(|file| file.with_extension("")).collect();
    vectors.sort();
    assert!(vectors.len() >= VECTORS_MIN, "{} vectors in {}", vectors.len(), folder.display());
    vectors
}

fn replay(vector: &Path, store: &str) {
    let steps: Vec<Value> = fs::read_to_string(vector.with_extension("jsonl"))
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert!(!steps.is_empty(), "{} is empty", vector.display());
    let mut trace = String::new();
    for step in &steps {
        writeln!(trace, "{}", step["request"]).unwrap();
    }
    let limits = vector.with_extension("yaml");
    let limits = limits.to_str().unwrap();
    let output =
        Tidegate::run(&["simulate", "--limits", limits, "--trace", "-", "--store", store], &trace);
    let printed = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{limits} on {store}: {errors}");
    let decisions: Vec<Value> =
        printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for (at, (step, decision)) in steps.iter().zip(&decisions).enumerate() {
        let (request, line) = (&step["request"], at + 1);
        assert_eq!(decision, &step["decision"], "{limits} on {store}, line {line}: {request}");
    }
    assert_eq!(decisions.len(), steps.len(), "{limits} on {store}");
}
