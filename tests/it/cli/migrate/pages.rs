//! What pages show is so: every limits file in them loads, every command of ours parses.

use std::fs;
use std::path::Path;

use clap::Parser;
use tidegate::rules::Switches;
use tidegate::rules::parse::parse;
use tidegate::settings::Cli;

use super::words;

/// Pages with examples.
const PAGES: [&str; 4] =
    ["README.md", "docs/from-envoyproxy-ratelimit.md", "docs/from-limitador.md", "docs/redis.md"];

/// The blocks of one language, each with the page and line where it begins.
fn blocks(language: &str) -> Vec<(String, String)> {
    let mut blocks: Vec<(String, String)> = vec![];
    for page in PAGES {
        let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(page)).unwrap();
        let mut fence = None;
        for (number, line) in (1..).zip(text.lines()) {
            match (fence, line.trim_start().strip_prefix("```")) {
                (None, Some(language)) => {
                    fence = Some(language);
                    blocks.push((format!("{page}:{number} {language}"), String::new()));
                }
                (Some(_), Some(_)) => fence = None,
                (Some(_), None) => blocks.last_mut().unwrap().1 += &format!("{line}\n"),
                (None, None) => {}
            }
        }
        assert_eq!(fence, None, "{page}: a block does not end");
    }
    let wanted = format!(" {language}");
    blocks.into_iter().filter(|(place, _)| place.ends_with(&wanted)).collect()
}

#[test]
fn every_limits_file_on_a_page_loads() {
    let is_ours = |text: &str| text.lines().any(|line| line.starts_with("domain:"));
    let blocks: Vec<_> = blocks("yaml").into_iter().filter(|(_, text)| is_ours(text)).collect();
    assert!(blocks.len() >= 6, "{} limits files", blocks.len());
    for (place, text) in blocks {
        let rules = parse(&[(place.clone().into(), text)], Switches::default());
        let rules = rules.unwrap_or_else(|errors| panic!("{errors}"));
        assert_eq!(rules.warnings().count(), 0, "{place} gives warnings");
    }
}

#[test]
fn every_command_on_a_page_parses() {
    let mut parsed = 0;
    for (place, text) in blocks("sh") {
        let text = text.replace("\\\n", " ");
        let commands = text.lines().flat_map(|line| line.split('|')).map(str::trim);
        for command in commands.filter(|command| command.starts_with("tidegate ")) {
            let words = words(command);
            let words = words.iter().take_while(|word| !["#", ">", "&"].contains(&word.as_str()));
            if let Err(error) = Cli::try_parse_from(words) {
                panic!("{place}: {command}\n{error}");
            }
            parsed += 1;
        }
    }
    assert!(parsed >= 10, "{parsed} commands");
}
