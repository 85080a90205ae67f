//! The memory limits of the chart, the compose file and the systemd unit: one figure, which is more
//! than everything that docs/operating.md says a replica can be made to hold.

use tidegate::settings::{Cli, Command};

use clap::Parser;

use crate::support::tools::{text, yaml};

const PAGE: &str = "docs/operating.md";
const INSTALL: &str = "docs/install.md";

/// Mebibytes written as `1536Mi`, `1536m` or `1536M`, or with a comma in a sentence.
fn mebibytes(text: &str) -> u64 {
    let digits: String = text
        .chars()
        .take_while(|c| c.is_ascii_digit() || *c == ',')
        .filter(|c| *c != ',')
        .collect();
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit() || c == ',').trim_start();
    assert!(["Mi", "m", "M", "MiB"].contains(&unit), "{text}: write mebibytes");
    digits.parse().unwrap()
}

fn limit_of_the_unit() -> u64 {
    let unit = text("deploy/systemd/tidegate.service");
    mebibytes(unit.lines().find_map(|line| line.strip_prefix("MemoryMax=")).unwrap())
}

fn limit_of_compose() -> u64 {
    let file = yaml(&text("deploy/compose.yaml"));
    mebibytes(file["services"]["tidegate"]["mem_limit"].as_str().unwrap())
}

fn limit_of_the_chart() -> u64 {
    let values = yaml(&text("deploy/helm/tidegate/values.yaml"));
    mebibytes(values["resources"]["limits"]["memory"].as_str().unwrap())
}

/// The number of `unit` before a phrase of the page: `before(PAGE, " each while idle", "KiB")`.
fn before(page: &str, phrase: &str, unit: &str) -> u64 {
    let text = text(page);
    let phrase = format!(" {unit}{phrase}");
    let (start, _) = text.split_once(&phrase).unwrap_or_else(|| panic!("{page} lacks {phrase:?}"));
    let number = start.rsplit(|c: char| !c.is_ascii_digit() && c != ',').next().unwrap();
    number.replace(',', "").parse().unwrap()
}

#[test]
fn the_chart_compose_the_unit_and_the_page_name_one_memory_limit() {
    let limits = [limit_of_the_unit(), limit_of_compose(), limit_of_the_chart()];
    assert_eq!(limits, [before(INSTALL, " of memory", "MiB"); 3]);
}

#[test]
fn the_memory_limit_has_room_for_everything_that_callers_can_make_a_replica_hold() {
    let cli = Cli::try_parse_from(["tidegate", "serve", "--limits", "limits"]).unwrap();
    let Command::Serve(serve) = cli.command else { panic!("not serve") };
    let connection_kib = before(PAGE, " each while idle", "KiB")
        + before(PAGE, " more with TLS", "KiB")
        + before(PAGE, " more while its answers", "KiB");
    let connections = serve.connections.max_connections as u64 * connection_kib / 1_024;
    let pages = 1_024 * before(PAGE, " of headers each", "KiB") / 1_024;
    let shared =
        before(PAGE, ", with 4 KiB per call", "MiB") + 2 * before(PAGE, " together", "MiB");
    let callers = connections + pages + shared;
    assert_eq!(before(PAGE, " in total", "MiB"), callers);
    let counters = (serve.memory_max_keys as u64 * before(PAGE, " per counter", "bytes")) >> 20;
    let program = before(PAGE, " for the program", "MiB");
    assert_eq!(before(PAGE, " for the counters", "MiB"), counters);
    let limit = limit_of_the_chart();
    assert!(callers + counters + program < limit, "{callers} + {counters} + {program} >= {limit}");
}
