//! The pages of reference: the settings of `serve` and the metrics, compared with the program.
//! `GOLDEN=write` writes them.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::{env, fs};

use clap::{Arg, CommandFactory};
use tidegate::settings::Cli;

use crate::support::client::{Served, request};
use crate::support::tools::{root, text};

const SETTINGS: &str = "docs/settings.md";
const METRICS: &str = "docs/metrics.md";
const FROM: &str = "<!-- generated from the flags: from here -->\n";
const TO: &str = "<!-- to here -->\n";

/// A paragraph of help as a cell: one line, without what would end the cell.
fn cell(text: &str) -> String {
    let sentences = text.replace("\n\n", ". ").replace("..", ".");
    sentences.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}

fn code(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("`{text}`") }
}

fn row(arg: &Arg) -> Option<String> {
    let flag = format!("--{}", arg.get_long()?);
    let variable = arg.get_env()?.to_string_lossy().into_owned();
    let takes_value = arg.get_action().takes_values();
    let values = arg.get_value_names().filter(|_| takes_value).unwrap_or_default();
    let values: Vec<_> = values.iter().map(|name| name.as_str()).collect();
    let form = [flag, values.join(" ")].join(" ");
    let default = arg.get_default_values().iter().map(|value| value.to_string_lossy());
    let default: Vec<_> = default.filter(|_| takes_value).collect();
    let help = cell(&arg.get_long_help().or(arg.get_help())?.to_string());
    let cells = [code(&cell(form.trim())), code(&variable), code(&default.join(" ")), help];
    Some(format!("| {} |\n", cells.join(" | ")))
}

fn settings() -> String {
    let cli = Cli::command();
    let serve = cli.find_subcommand("serve").unwrap();
    let mut table =
        "| flag | variable | default | meaning |\n| --- | --- | --- | --- |\n".to_owned();
    let mut heading = None;
    for arg in serve.get_arguments() {
        let Some(row) = row(arg) else { continue };
        let own = arg.get_help_heading().map(str::to_owned);
        if own != heading {
            let _ = writeln!(table, "| **{}** | | | |", own.as_deref().unwrap_or("Other"));
            heading = own;
        }
        table += &row;
    }
    table
}

#[test]
fn the_page_of_settings_lists_the_flags_of_serve() {
    let page = text(SETTINGS);
    let (before, rest) = page.split_once(FROM).unwrap();
    let (_, after) = rest.split_once(TO).unwrap();
    let expected = format!("{before}{FROM}\n{}\n{TO}{after}", settings());
    if env::var_os("GOLDEN").is_some_and(|value| value == "write") {
        fs::write(root().join(SETTINGS), &expected).unwrap();
    }
    assert!(
        text(SETTINGS) == expected,
        "{SETTINGS} differs from the flags: GOLDEN=write cargo test --test it docs"
    );
}

/// The metrics that a page of Prometheus declares.
fn declared(page: &str) -> BTreeSet<String> {
    let types = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    types.map(|line| line.split(' ').next().unwrap().to_owned()).collect()
}

/// The metrics in the first column of the page's table.
fn listed() -> BTreeSet<String> {
    let page = text(METRICS);
    let cells = page.lines().filter_map(|line| line.strip_prefix("| `")?.split(" |").next());
    let names = cells.flat_map(|cell| cell.split(['`', ',', ' ']).filter(|word| !word.is_empty()));
    names
        .map(|name| name.split('{').next().unwrap().to_owned())
        .filter(|name| name.contains('_'))
        .collect()
}

#[tokio::test]
async fn the_page_of_metrics_lists_the_metrics_that_a_service_has() {
    let served = Served::with_limits(&text("deploy/example/limits.yaml"));
    served.caller().await.check(&request("edge").about("user_id", "42")).await.unwrap();
    let declared = declared(&served.page("/metrics").body);
    let listed = listed();
    // Series that begin with their first event are on the page, and perhaps not declared yet.
    let is_of_process = |name: &&String| name.starts_with("process_");
    let unlisted: Vec<_> =
        declared.difference(&listed).filter(|name| !is_of_process(name)).collect();
    assert!(unlisted.is_empty(), "{METRICS} lacks {unlisted:?}");
    let sources = fs::read_to_string(root().join("src/metrics/declared.rs")).unwrap();
    for name in listed.iter().filter(|name| !is_of_process(name)) {
        assert!(
            sources.contains(&format!("\"{name}\"")),
            "{METRICS} lists {name}, which src/metrics/declared.rs has not"
        );
    }
    let names = sources
        .lines()
        .filter_map(|line| line.trim().strip_prefix("name: \"")?.strip_suffix("\","));
    for name in names {
        assert!(listed.contains(name), "{METRICS} lacks {name}");
    }
}
