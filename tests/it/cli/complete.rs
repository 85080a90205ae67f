//! Completions, manual pages and `--help`.

use std::fs;
use std::process::Command;

use clap::CommandFactory;
use tidegate::settings::Cli;

use super::run;

#[test]
fn completions_of_every_shell_offer_every_command_and_flag() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let printed = run(&["completions", shell]);
        assert_eq!((printed.code, printed.err.as_str()), (0, ""), "{shell}");
        for word in ["serve", "migrate", "grpc-addr", "on-store-failure", "strict"] {
            assert!(printed.out.contains(word), "{shell}: {word}");
        }
    }
    assert_eq!(run(&["completions", "cobol"]).code, 2);
}

#[test]
fn the_script_for_bash_completes_a_command() {
    let script = run(&["completions", "bash"]).out;
    let ask = "COMP_WORDS=(tidegate que); COMP_CWORD=1; _tidegate tidegate que tidegate; echo ${COMPREPLY[@]}";
    let output =
        Command::new("bash").args(["--norc", "-c", &(script + "\n" + ask)]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "query", "{output:?}");
}

#[test]
fn every_command_has_a_manual_page() {
    let page = run(&["man"]);
    assert_eq!(page.code, 0);
    assert!(page.out.contains(".TH tidegate 1"), "{}", page.out);
    let folder = tempfile::tempdir().unwrap();
    let printed = run(&["man", "--out", folder.path().to_str().unwrap()]);
    assert_eq!((printed.code, printed.out.as_str(), printed.err.as_str()), (0, "", ""));
    for command in Cli::command().get_subcommands() {
        let page = folder.path().join(format!("tidegate-{}.1", command.get_name()));
        let text = fs::read_to_string(&page).unwrap_or_else(|e| panic!("{}: {e}", page.display()));
        for flag in command.get_arguments().filter_map(|arg| arg.get_long()) {
            let flag = format!("\\-\\-{}", flag.replace('-', "\\-"));
            assert!(text.contains(&flag), "{}: {flag}", page.display());
        }
    }
    let missing = folder.path().join("missing");
    let printed = run(&["man", "--out", missing.to_str().unwrap()]);
    assert_eq!(printed.code, 1);
    assert!(printed.err.starts_with("error: --out "), "{}", printed.err);
}

#[test]
fn help_of_serve_is_under_headings() {
    let help = run(&["serve", "--help"]).out;
    let headings: Vec<_> =
        help.lines().filter(|line| line.ends_with(':') && !line.starts_with(' ')).collect();
    assert_eq!(
        headings,
        [
            "Options:",
            "Limits:",
            "Store:",
            "Ports:",
            "When the store fails:",
            "Threads, connections and shutdown:",
            "Bounds of requests:",
            "Answers to Envoy:",
            "Log, metrics and traces:",
            "Example:",
        ]
    );
    let options = help.split("Options:").nth(1).unwrap().split("Limits:").next().unwrap();
    assert!(!options.contains("TIDEGATE_"), "only --help and --version have no heading: {options}");
}

#[test]
fn only_flags_of_a_group_are_under_its_heading() {
    for command in ["query", "reset", "top", "bench"] {
        let help = run(&[command, "--help"]).out;
        let group = help.split("\nTLS:\n").nth(1).unwrap_or_else(|| panic!("{help}"));
        let flags: Vec<_> = group
            .lines()
            .filter_map(|line| line.trim().strip_prefix("--")?.split(' ').next())
            .collect();
        assert_eq!(flags[..3], ["ca-file", "cert-file", "key-file"], "{command}");
        assert!(!group.contains("\n      --json"), "{command}: {group}");
    }
    for (command, flag) in [("check", "--strict"), ("simulate", "--summary")] {
        let help = run(&[command, "--help"]).out;
        let before = help.split("\nLimits:\n").next().unwrap();
        assert!(before.contains(flag), "{command}: {help}");
    }
}

#[test]
fn no_help_shows_a_value_of_the_environment() {
    for command in Cli::command().get_subcommands() {
        let variables: Vec<_> = command
            .get_arguments()
            .filter_map(|arg| arg.get_env())
            .map(ToOwned::to_owned)
            .collect();
        for flag in ["--help", "-h"] {
            let mut help = Command::new(env!("CARGO_BIN_EXE_tidegate"));
            help.args([command.get_name(), flag]);
            help.envs(variables.iter().map(|name| (name, "hunter2-secret")));
            let text = String::from_utf8(help.output().unwrap().stdout).unwrap();
            assert!(text.contains("Usage: ") && !text.contains("hunter2"), "{text}");
        }
    }
}

#[test]
fn every_mistake_has_the_same_prefix() {
    for args in [
        &["serve", "--no-such-flag"][..],
        &[
            "serve",
            "--limits",
            "/no/such/file",
            "--log-format",
            "text",
            "--grpc-addr",
            "127.0.0.1:0",
        ],
        &["check", "/no/such/file"],
        &["query", "--addr", "127.0.0.1:1", "--domain", "edge", "user=1"],
        &["top", "--addr", "127.0.0.1:1"],
        &["bench", "--addr", "127.0.0.1:1", "--domain", "edge", "user=1"],
        &["simulate", "--limits", "/no/such/file", "--trace", "-"],
        &["migrate", "--from", "envoyproxy-env", "/no/such/file"],
    ] {
        let printed = run(args);
        assert!(printed.code != 0 && printed.out.is_empty(), "{args:?}");
        assert!(printed.err.starts_with("error: "), "{args:?}: {}", printed.err);
    }
}
