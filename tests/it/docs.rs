//! Checks README and the book (`docs/`): limits files load, links resolve, commands run and print
//! the shown output, plots equal the results of `simulate`.

mod book;
mod fields;
mod machine;
mod plots;
mod reference;
mod shape;

use std::fs;

use clap::Parser;
use prost_reflect::{DescriptorPool, DeserializeOptions, DynamicMessage};
use serde_json::de::Deserializer;
use tidegate::proto::DESCRIPTORS;
use tidegate::rules::Switches;
use tidegate::rules::parse::parse;
use tidegate::settings::Cli;

use crate::support::pages::{Block, blocks, every_markdown, pages, words};
use crate::support::tools::{installed, root, run_checked, text, yaml};
use machine::Machine;
use shape::Compared;

/// Patterns of commands that no test runs, with the reason.
const NOT_RUN: [(&str, &str); 23] = [
    ("make ", "builds, tests or measures: people and CI type it"),
    ("docker ", "needs an engine, and images from elsewhere"),
    ("127.0.0.1:10000", "asks what docker has started"),
    ("helm install", "needs a cluster; tests/it/deploy renders the chart"),
    ("kubectl ", "needs a cluster"),
    ("apt install", "installs a package that make release builds"),
    ("install -", "writes to /usr and /etc"),
    ("systemctl ", "needs systemd as process 1; tests/it/deploy has the unit verified"),
    ("grpcurl ", "no package manager has it; its JSON is read by another test here"),
    ("redis-sentinel://", "tests/it/outages.rs runs on sentinels; it is parsed here"),
    ("rediss-cluster://", "tests/it/cluster.rs runs on a cluster; it is parsed here"),
    ("limits-b:6379", "tests/it/scatter.rs runs on several servers; it is parsed here"),
    ("ratelimit.env", "tests/it/cli/migrate.rs runs it on files of variables; it is parsed here"),
    ("pip install ", CLIENTS),
    ("grpc_tools.protoc ", CLIENTS),
    ("npm install ", CLIENTS),
    ("limiter.", CLIENTS),
    ("go install ", CLIENTS),
    ("protoc -I ", CLIENTS),
    ("go run ", CLIENTS),
    ("mvn ", CLIENTS),
    ("java -cp ", CLIENTS),
    ("http://127.0.0.1:9901", "asks an Envoy; tests/it/envoy has real ones"),
];

const CLIENTS: &str = "tests/it/clients.rs runs these programs, with pinned packages";

fn all_blocks() -> impl Iterator<Item = Block> {
    pages().into_iter().flat_map(|page| blocks(&page))
}

/// A command line and its expected output.
struct Command {
    text: String,
    below: String,
    /// The line of the page after it.
    end: usize,
}

fn commands(block: &Block) -> Vec<Command> {
    let mut commands: Vec<Command> = Vec::new();
    let mut lines = (block.line + 1..).zip(block.text.lines());
    while let Some((mut end, line)) = lines.next() {
        let typed = match block.language.as_str() {
            "console" => line.strip_prefix("$ "),
            "sh" => {
                Some(line.trim_start()).filter(|line| !line.is_empty() && !line.starts_with('#'))
            }
            _ => break,
        };
        if let Some(line) = typed {
            let mut text = line.to_owned();
            while let Some(start) = text.strip_suffix('\\') {
                let (at, more) = lines.next().expect("a line that goes on");
                (end, text) = (at, format!("{} {}", start.trim_end(), more.trim_start()));
            }
            commands.push(Command { text, below: String::new(), end });
        } else if block.language == "console" {
            let last = commands.last_mut().expect("a command stands above its output");
            last.below += &format!("{line}\n");
        }
    }
    commands
}

fn reason_not_to_run(command: &str) -> Option<&'static str> {
    NOT_RUN.iter().find(|(part, _)| command.contains(part)).map(|(_, reason)| *reason)
}

/// Whether the output of a command is the same in every run.
fn says_the_same_always(command: &str) -> bool {
    let ours = command.strip_prefix("target/quick/").unwrap_or(command);
    ours.starts_with("tidegate check ") || ours.starts_with("tidegate simulate ")
}

/// Pages whose numbers are the same in every run, because their limits do not refill meanwhile.
fn compared(page: &str) -> Compared {
    let is_exact = ["README.md", "docs/recipes.md"].contains(&page);
    if is_exact { Compared::WordsAndNumbers } else { Compared::Words }
}

/// Runs a page from start to end on one machine. Returns the differences from the shown output.
fn mistakes(page: &str) -> Vec<(Block, Command, String)> {
    let mut machine = None;
    let mut mistakes = Vec::new();
    for block in blocks(page) {
        let is_file = block.language == "yaml" && block.text.starts_with("# ");
        if is_file {
            machine.get_or_insert_with(Machine::start).write(&block.text);
        }
        for command in commands(&block) {
            if reason_not_to_run(&command.text).is_some() {
                continue;
            }
            let output = machine.get_or_insert_with(Machine::start).run(&command.text);
            let is_so = match block.language.as_str() {
                "console" if says_the_same_always(&command.text) => command.below == output.text,
                "console" => shape::agree(&command.below, &output.text, compared(page)),
                _ => output.code == 0,
            };
            if !is_so {
                mistakes.push((block.clone(), command, output.text));
            }
        }
    }
    mistakes
}

/// Replaces shown output by the printed one.
fn update_page(page: &str, mistakes: &[(Block, Command, String)]) {
    let old = text(page);
    let mut lines: Vec<_> = old.lines().map(str::to_owned).collect();
    for (block, command, printed) in mistakes.iter().rev() {
        let (start, count) = (command.end, command.below.lines().count());
        if block.language == "console" {
            let printed = printed.lines().map(|line| format!("{}{line}", block.indent));
            lines.splice(start..start + count, printed);
        }
    }
    fs::write(root().join(page), lines.join("\n") + "\n").unwrap();
}

#[test]
fn every_command_on_a_page_runs_and_prints_the_shown_output() {
    let write = std::env::var_os("GOLDEN").is_some_and(|value| value == "write");
    let mut wrong = String::new();
    for page in pages() {
        let mistakes = mistakes(&page);
        for (block, Command { text, below, .. }, printed) in &mistakes {
            let place = block.place();
            wrong += &format!("{place}: $ {text}\nthe page shows\n{below}it printed\n{printed}\n");
        }
        if write && !mistakes.is_empty() {
            update_page(&page, &mistakes);
        }
    }
    assert!(wrong.is_empty(), "{wrong}GOLDEN=write shows on the pages what was printed");
}

#[test]
fn every_block_is_of_a_language_that_is_checked_or_plain_text() {
    // tests/it/clients.rs compares the programs with those that it runs.
    let kinds = ["console", "sh", "yaml", "json", "text", "python", "js", "go", "java"];
    for block in all_blocks() {
        let (place, language) = (block.place(), &block.language);
        assert!(kinds.contains(&language.as_str()), "{place}: {language:?} is not of {kinds:?}");
        let is_json = || serde_json::from_str::<serde_json::Value>(&block.text).is_ok();
        assert!(language != "json" || is_json(), "{place}: no JSON");
        if language == "yaml" {
            yaml(&block.text);
        }
    }
}

#[test]
fn most_commands_are_run_and_every_exception_is_on_a_page() {
    let all: Vec<_> = all_blocks().flat_map(|block| commands(&block)).collect();
    let run = all.iter().filter(|command| reason_not_to_run(&command.text).is_none()).count();
    assert!(run >= 60, "only {run} commands are run");
    for (part, reason) in NOT_RUN {
        let stands = all.iter().any(|command| command.text.contains(part));
        assert!(stands, "{part:?} ({reason}) stands on no page: take it from the list");
    }
}

#[test]
fn every_command_of_ours_on_a_page_parses() {
    let mut parsed = 0;
    for block in all_blocks() {
        for Command { text, .. } in commands(&block) {
            let command = text.replace("target/quick/tidegate", "tidegate");
            let parts = command.split('|').map(str::trim);
            for command in parts.filter(|command| command.starts_with("tidegate ")) {
                let words = words(command);
                let ours = words.iter().take_while(|w| !["#", ">", "&"].contains(&w.as_str()));
                if let Err(error) = Cli::try_parse_from(ours) {
                    panic!("{}: {command}\n{error}", block.place());
                }
                parsed += 1;
            }
        }
    }
    assert!(parsed >= 20, "{parsed} commands");
}

#[test]
fn every_limits_file_on_a_page_loads() {
    let is_ours = |block: &Block| {
        block.language == "yaml" && block.text.lines().any(|line| line.starts_with("domain:"))
    };
    let files: Vec<_> = all_blocks().filter(is_ours).collect();
    assert!(files.len() >= 10, "{} limits files", files.len());
    for block in files {
        let rules = parse(&[(block.place().into(), block.text.clone())], Switches::default());
        // A page may show a file with mistakes to explain their messages.
        let is_bad = block.text.starts_with("# bad.yaml");
        match rules {
            Ok(rules) => {
                assert!(!is_bad && rules.warnings().count() == 0, "{}", block.place());
            }
            Err(errors) => assert!(is_bad, "{errors}"),
        }
    }
}

#[test]
fn envoy_accepts_the_configuration_of_its_page() {
    let page = blocks("docs/envoy.md");
    let config = page.iter().find(|block| block.text.starts_with("# envoy.yaml")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("envoy.yaml");
    fs::write(&file, &config.text).unwrap();
    let args = ["--mode", "validate", "--config-path", file.to_str().unwrap()];
    run_checked(installed("envoy/envoy"), &args, "");
}

#[test]
fn the_first_page_is_short() {
    let lines = text("README.md").lines().count();
    assert!(lines <= 200, "{lines} lines");
}

#[test]
fn every_grpcurl_call_on_a_page_is_a_message_of_its_method() {
    let pool = DescriptorPool::decode(DESCRIPTORS).unwrap();
    let is_call = |command: &String| command.starts_with("grpcurl") && command.contains(" -d ");
    let all = all_blocks().flat_map(|block| commands(&block)).map(|command| command.text);
    let calls: Vec<_> = all.filter(is_call).collect();
    assert!(calls.len() >= 4, "{} calls", calls.len());
    for call in calls {
        let words = words(&call);
        let data = words.iter().position(|word| word == "-d").map(|at| &words[at + 1]).unwrap();
        let (service, method) = words.last().unwrap().split_once('/').unwrap();
        let service = pool.get_service_by_name(service).expect(&call);
        let method = service.methods().find(|found| found.name() == method).expect(&call);
        let options = DeserializeOptions::new().deny_unknown_fields(true);
        let mut json = Deserializer::from_str(data);
        let read = DynamicMessage::deserialize_with_options(method.input(), &mut json, &options);
        assert!(read.is_ok(), "{call}\n{read:?}");
    }
}

#[test]
fn every_link_between_pages_resolves() {
    for page in every_markdown() {
        let folder = root().join(&page).parent().unwrap().to_owned();
        for link in text(&page).split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            if file.contains("://") {
                continue;
            }
            let path = if file.is_empty() { root().join(&page) } else { folder.join(file) };
            assert!(path.exists(), "{page}: {link} leads nowhere");
            if !heading.is_empty() {
                let target = std::fs::read_to_string(&path).unwrap();
                assert!(anchors(&target).any(|own| own == heading), "{page}: no heading {link}");
            }
        }
    }
}

/// Headings as GitHub converts them to anchors.
fn anchors(page: &str) -> impl Iterator<Item = String> {
    let headings = page.lines().filter(|line| line.starts_with('#'));
    headings.map(|heading| {
        let text = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = |c: &char| c.is_alphanumeric() || [' ', '-', '_'].contains(c);
        text.chars().filter(kept).map(|c| if c == ' ' { '-' } else { c }).collect()
    })
}

#[test]
fn the_book_is_short_and_names_all_its_pages() {
    let contents = text("docs/README.md");
    for page in pages().iter().filter(|page| page.starts_with("docs/")) {
        let name = page.trim_start_matches("docs/");
        let is_named = name == "README.md" || contents.contains(&format!("({name})"));
        assert!(is_named, "docs/README.md does not name {page}");
        let lines = text(page).lines().count();
        assert!(lines <= 400, "{page}: {lines} lines are too many to read");
    }
}
