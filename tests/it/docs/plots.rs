//! The plots of `docs/algorithms.md`, computed by `tidegate simulate` from the page's own traffic,
//! and those of `docs/performance.md`, drawn from the page's own tables. `make plots` writes them.

mod algorithms;
mod performance;

use std::env;
use std::fmt::Write;
use std::fs;

use serde_json::Value;
use tempfile::TempDir;

use crate::support::pages::blocks;
use crate::support::tidegate::Tidegate;
use crate::support::tools::{root, run_checked, text};

const PAGE: &str = "docs/algorithms.md";
const PLOT: &str = "docs/algorithms.svg";
const PERFORMANCE: &str = "docs/performance.md";
const START: &str = "<!-- make plots writes from here -->\n";
const END: &str = "<!-- to here -->\n";

/// The outcomes of the requests to one algorithm, in milliseconds of the trace.
#[derive(Default)]
struct Outcome {
    algorithm: String,
    asked: Vec<u64>,
    /// When admitted requests went on: at once, or after the reported delay.
    went_on: Vec<u64>,
    admitted: usize,
    delay_max_ms: u64,
}

#[test]
fn the_plots_equal_the_results_of_simulate() {
    let outcomes = outcomes();
    compare(PLOT, &algorithms::draw(&outcomes));
    compare(PAGE, &with_table(&text(PAGE), &table(&outcomes)));
}

#[test]
fn the_plots_of_the_performance_page_equal_its_tables() {
    let page = text(PERFORMANCE);
    compare("docs/performance.svg", &performance::measured(&page));
    compare("docs/compared.svg", &performance::compared(&page));
}

/// Compares a file with what it should be, or writes it.
fn compare(path: &str, expected: &str) {
    if env::var_os("TIDEGATE_DRAW_PLOTS").is_some() {
        fs::write(root().join(path), expected).unwrap();
    }
    // Not assert_eq, which would print both completely.
    assert!(text(path) == expected, "{path} differs: run make plots");
}

/// Runs the page's own traffic through the page's own limits.
fn outcomes() -> Vec<Outcome> {
    let blocks = blocks(PAGE);
    let limits = blocks.iter().find(|block| block.text.starts_with("# six.yaml")).unwrap();
    let awk = blocks.iter().find(|block| block.text.starts_with("awk ")).unwrap();
    let (awk, _) = awk.text.split_once(" > ").expect("it writes a file");
    let trace = run_checked("sh", &["-c", awk], "");
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("six.yaml");
    fs::write(&path, &limits.text).unwrap();
    let args = ["simulate", "--limits", path.to_str().unwrap(), "--trace", "-"];
    let output = Tidegate::run(&args, &trace);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let decisions = String::from_utf8(output.stdout).unwrap();
    assert_eq!(trace.lines().count(), decisions.lines().count());
    let mut outcomes: Vec<Outcome> = Vec::new();
    for (request, decision) in trace.lines().zip(decisions.lines()) {
        let json = |line| serde_json::from_str::<Value>(line).unwrap();
        of_same(&mut outcomes, &json(request)).add(&json(request), &json(decision));
    }
    // In the order of the page's limits and of its table.
    outcomes.sort_by_key(|one| limits.text.find(&format!("value: {},", one.algorithm)).unwrap());
    outcomes
}

fn of_same<'o>(outcomes: &'o mut Vec<Outcome>, request: &Value) -> &'o mut Outcome {
    let algorithm = request["descriptors"][0]["entries"][0][1].as_str().unwrap();
    let at = outcomes.iter().position(|one| one.algorithm == algorithm).unwrap_or_else(|| {
        outcomes.push(Outcome { algorithm: algorithm.to_owned(), ..Outcome::default() });
        outcomes.len() - 1
    });
    &mut outcomes[at]
}

impl Outcome {
    fn add(&mut self, request: &Value, decision: &Value) {
        let (at_ms, delay_ms) = (&request["at_ms"], &decision["delay_ms"]);
        let (at_ms, delay_ms) = (at_ms.as_u64().unwrap(), delay_ms.as_u64().unwrap());
        self.asked.push(at_ms);
        if decision["allowed"] == true {
            self.admitted += 1;
            self.went_on.push(at_ms + delay_ms);
            self.delay_max_ms = self.delay_max_ms.max(delay_ms);
        }
    }

    /// The requests of `moments` in the period that ends at `at_ms`.
    fn in_last_period(moments: &[u64], at_ms: u64) -> usize {
        moments.iter().filter(|&&ms| ms <= at_ms && at_ms - ms < algorithms::PERIOD_MS).count()
    }

    fn most_in_a_period(&self) -> usize {
        let ends = self.went_on.iter();
        ends.map(|&end| Self::in_last_period(&self.went_on, end)).max().unwrap_or(0)
    }
}

fn table(outcomes: &[Outcome]) -> String {
    let mut table = "| algorithm | admitted | most in any second | longest wait |\n".to_owned();
    table += "| --- | --- | --- | --- |\n";
    for one in outcomes {
        let (asked, admitted, most) = (one.asked.len(), one.admitted, one.most_in_a_period());
        let wait = match one.delay_max_ms {
            0 => "-".to_owned(),
            ms => format!("{ms} ms"),
        };
        writeln!(table, "| `{}` | {admitted} of {asked} | {most} | {wait} |", one.algorithm)
            .unwrap();
    }
    table
}

fn with_table(page: &str, table: &str) -> String {
    let (before, rest) = page.split_once(START).expect("where the table begins");
    let (_, after) = rest.split_once(END).expect("where the table ends");
    format!("{before}{START}\n{table}\n{END}{after}")
}
