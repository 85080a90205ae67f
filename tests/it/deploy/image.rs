//! The container file. `make lint` checks it with hadolint; no engine builds it here.

use std::collections::BTreeSet;

use crate::support::client::limits_folder;
use crate::support::tidegate::Tidegate;
use crate::support::tools::{root, text};

const IMAGE: &str = "deploy/Containerfile";

/// The files that the build copies from the checkout.
fn copied() -> BTreeSet<String> {
    let image = text(IMAGE);
    let lines = image.lines().filter_map(|line| line.strip_prefix("COPY "));
    let sources = lines.filter(|line| !line.starts_with("--from")).flat_map(|line| {
        let words: Vec<_> = line.split(' ').map(str::to_owned).collect();
        words[..words.len() - 1].to_vec()
    });
    sources.collect()
}

#[test]
fn the_build_context_has_the_copied_files_and_no_others() {
    let ignored = text(".dockerignore");
    assert!(ignored.contains("\n*\n"), "all that is not named is left out");
    let named = ignored.lines().filter_map(|line| line.strip_prefix('!'));
    let named: BTreeSet<_> = named.map(str::to_owned).collect();
    assert_eq!(named, copied());
    for source in named {
        assert!(root().join(&source).exists(), "{IMAGE} copies {source}");
    }
}

#[test]
fn the_build_context_has_every_file_that_cargo_needs() {
    let paths = [asked_for(""), asked_for("tests/fuzz/")].concat();
    for expected in ["tests/it/main.rs", "tests/fuzz/fuzz_targets/limits.rs"] {
        assert!(paths.iter().any(|path| path == expected), "{paths:?}");
    }
    let image = text(IMAGE);
    for path in paths {
        let (folder, _) = path.split_once('/').unwrap();
        let there = copied().contains(folder) || image.contains(&path);
        assert!(there, "{IMAGE} neither copies nor makes {path}");
    }
}

/// The targets in the `Cargo.toml` of a folder.
fn asked_for(folder: &str) -> Vec<String> {
    let cargo = text(&format!("{folder}Cargo.toml"));
    let paths = cargo.lines().filter_map(|line| line.strip_prefix("path = \""));
    paths.map(|path| format!("{folder}{}", path.trim_end_matches('"'))).collect()
}

#[test]
fn tidegate_accepts_the_variables_of_the_image() {
    let image = text("deploy/Containerfile");
    let variables = image.lines().filter_map(|line| line.split_once("TIDEGATE_"));
    let variables: Vec<_> = variables.filter_map(|(_, rest)| rest.split_once('=')).collect();
    assert_eq!(variables.len(), 3, "{variables:?}");
    let limits = limits_folder(&[&text("deploy/example/limits.yaml")]);
    let mut args = Vec::new();
    for (name, value) in variables {
        let flag = format!("--{}", name.to_lowercase().replace('_', "-"));
        let value = value.trim_end_matches(" \\");
        // Any local port and another folder will do.
        match flag.as_str() {
            "--limits" => args.extend([flag, limits.path().to_str().unwrap().to_owned()]),
            _ => assert!(value.starts_with("0.0.0.0:80") && flag.ends_with("-addr"), "{flag}"),
        }
    }
    let args: Vec<_> = args.iter().map(String::as_str).collect();
    Tidegate::serve(&args);
}
