//! The plots of `docs/algorithms.md`: how many requests each algorithm admits of the page's
//! traffic, computed by `tidegate simulate`. `make plots` writes them.

use std::env;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use plotters::prelude::*;
use serde_json::Value;
use tempfile::TempDir;

use crate::support::canvas::{COLOURS, Canvas, PALE, label};
use crate::support::pages::blocks;
use crate::support::tidegate::Tidegate;
use crate::support::tools::{root, run_checked, text};

const PAGE: &str = "docs/algorithms.md";
const PLOT: &str = "docs/algorithms.svg";
const START: &str = "<!-- make plots writes from here -->\n";
const END: &str = "<!-- to here -->\n";

/// The page's limit.
const LIMIT: usize = 10;
const PERIOD_MS: u64 = 1_000;

/// The drawn part of the trace, in milliseconds, and the width of a bar.
const SHOWN_MS: u64 = 4_000;
const BAR_MS: u64 = 50;

/// The size of one algorithm's panel, in pixels.
const PANEL: (u32, u32) = (480, 190);

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
    let folder = TempDir::new().unwrap();
    let plot = folder.path().join("plot.svg");
    draw(&outcomes, &plot);
    let plot = fs::read_to_string(plot).unwrap();
    let page = with_table(&text(PAGE), &table(&outcomes));
    if env::var_os("TIDEGATE_DRAW_PLOTS").is_some() {
        fs::write(root().join(PLOT), &plot).unwrap();
        fs::write(root().join(PAGE), &page).unwrap();
    }
    // Not assert_eq, which would print both completely.
    assert!(text(PLOT) == plot, "{PLOT} shows something else: run make plots");
    assert!(text(PAGE) == page, "the table of {PAGE} says something else: run make plots");
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
        moments.iter().filter(|&&ms| ms <= at_ms && at_ms - ms < PERIOD_MS).count()
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

fn draw(outcomes: &[Outcome], path: &Path) {
    let rows = u32::try_from(outcomes.len().div_ceil(2)).unwrap();
    let root = SVGBackend::new(path, (2 * PANEL.0, rows * PANEL.1)).into_drawing_area();
    root.fill(&WHITE).unwrap();
    for (canvas, one) in root.split_evenly((rows as usize, 2)).iter().zip(outcomes) {
        draw_panel(canvas, one);
    }
    root.present().unwrap();
}

/// Draws requests at the time of arrival (pale) and at the time they went on, and how many went on
/// in the second before each moment.
fn draw_panel(canvas: &Canvas<'_>, one: &Outcome) {
    label(canvas, &one.algorithm, (40, 6), 14);
    let mut chart = ChartBuilder::on(canvas)
        .margin_top(26)
        .margin_right(16)
        .x_label_area_size(22)
        .y_label_area_size(34)
        .build_cartesian_2d(0..SHOWN_MS, 0..2 * LIMIT + 2)
        .unwrap();
    let seconds = |ms: &u64| format!("{} s", ms / 1_000);
    let mut mesh = chart.configure_mesh();
    let mesh = mesh.disable_mesh().x_labels(5).x_label_formatter(&seconds).y_labels(4);
    mesh.label_style(("sans-serif", 11)).axis_style(PALE).draw().unwrap();
    for (moments, colour) in [(&one.asked, PALE), (&one.went_on, COLOURS[0])] {
        let starts = (0..SHOWN_MS / BAR_MS).map(|at| at * BAR_MS);
        let bars = starts.filter_map(|start| bar(moments, start, colour));
        chart.draw_series(bars).unwrap();
    }
    let limit = [(0, LIMIT), (SHOWN_MS, LIMIT)];
    chart.draw_series(LineSeries::new(limit, COLOURS[7].stroke_width(1))).unwrap();
    let sums =
        (0..=SHOWN_MS).step_by(10).map(|end| (end, Outcome::in_last_period(&one.went_on, end)));
    chart.draw_series(LineSeries::new(sums, COLOURS[1].stroke_width(2))).unwrap();
}

fn bar(moments: &[u64], start: u64, colour: RGBColor) -> Option<Rectangle<(u64, usize)>> {
    let within = start..start + BAR_MS;
    let count = moments.iter().filter(|ms| within.contains(ms)).count();
    let corners = [(start, 0), (within.end - BAR_MS / 10, count)];
    (count > 0).then(|| Rectangle::new(corners, colour.filled()))
}
