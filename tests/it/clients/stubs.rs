//! Generates code from `proto/` for other languages. The generators must print nothing: not even a
//! warning.

use std::fs;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use super::program::checked;
use crate::support::tools::{installed, root};

/// The options that each language's generator needs, and the kind of file that it writes.
const LANGUAGES: [(&str, &[&str], &str); 5] = [
    ("go", &["--go_out", "--go-grpc_out"], "go"),
    ("java", &["--java_out"], "java"),
    ("csharp", &["--csharp_out", "--csharp_opt=base_namespace="], "cs"),
    ("python", &["--python_out", "--pyi_out"], "py"),
    ("node", &["--es_out", "--es_opt=target=js"], "js"),
];

/// A folder with Python's code for all of `proto/tidegate`.
pub(super) fn python(packages: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().display();
    let mut command = Command::new("python3");
    command.args(["-m", "grpc_tools.protoc", "--proto_path=proto"]);
    command.args([format!("--python_out={out}"), format!("--grpc_python_out={out}")]);
    command.arg("tidegate/v1/tidegate.proto").current_dir(root()).env("PYTHONPATH", packages);
    assert_eq!(checked(command), "", "the generator warns");
    folder
}

/// Writes Go's code for the program into its folder.
pub(super) fn go(folder: &Path) {
    let package = "Mtidegate/v1/tidegate.proto=./tidegatev1";
    let mut command = protoc();
    command.args(["--proto_path=proto", "tidegate/v1/tidegate.proto"]);
    for plugin in ["go", "go-grpc"] {
        command.arg(format!("--{plugin}_out={}", folder.display()));
        command.arg(format!("--{plugin}_opt={package}"));
    }
    assert_eq!(checked(command), "", "the generator warns");
}

/// The compiler, which finds the plugins.
fn protoc() -> Command {
    let plugins = [
        installed("go-client/protoc-gen-go"),
        installed("node-client/node_modules/.bin/protoc-gen-es"),
    ];
    let folders = plugins.iter().map(|plugin| plugin.parent().expect("a folder").to_owned());
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(folders.chain(std::env::split_paths(&path))).unwrap();
    let mut command = Command::new(installed("protoc/protoc"));
    command.current_dir(root()).env("PATH", path);
    command
}

/// The files of `proto/`, as protoc names them.
fn protos() -> Vec<String> {
    let mut found = vec![];
    let mut folders = vec![root().join("proto")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "proto") {
                let name = path.strip_prefix(root().join("proto")).unwrap();
                found.push(name.display().to_string());
            }
        }
    }
    found
}

#[test]
#[ignore = "make test-clients runs it: it needs protoc and its plugins"]
fn protoc_generates_code_for_five_languages_without_a_warning() {
    let protos = protos();
    assert!(protos.len() >= 6, "{protos:?}");
    for (language, options, extension) in LANGUAGES {
        let folder = tempfile::tempdir().unwrap();
        let mut command = protoc();
        command.arg("--proto_path=proto").args(&protos);
        for option in options {
            let is_out = option.ends_with("_out");
            let folder = format!("{option}={}", folder.path().display());
            command.arg(if is_out { folder.as_str() } else { option });
        }
        assert_eq!(checked(command), "", "{language}: the generator warns");
        assert!(count(folder.path(), extension) >= protos.len(), "{language}: files are missing");
    }
}

/// The number of files of this kind below a folder.
fn count(folder: &Path, extension: &str) -> usize {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let of = |path: std::path::PathBuf| match path.extension() {
        _ if path.is_dir() => count(&path, extension),
        Some(found) if found == extension => 1,
        Some(_) | None => 0,
    };
    entries.map(of).sum()
}
