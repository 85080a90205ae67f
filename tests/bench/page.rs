//! The tables: on the terminal, and between two marks in docs/performance.md.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use crate::goals::{self, Extra, Goal};
use crate::machine;
use crate::measure::{Figures, Results};
use crate::{Effort, legs};

const FROM: &str = "<!-- make bench writes from here -->\n";
const TO: &str = "<!-- to here -->\n";

/// Prints the tables, and writes them to docs/.
pub fn write(results: &Results, extra: &Extra, effort: Effort) {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let goals = goals::all(results, extra);
    let tables = tables(results, extra, &goals);
    println!("{tables}");
    let path = docs.join("performance.md");
    let page = fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(FROM).expect("docs/performance.md has the first mark");
    let (_, after) = rest.split_once(TO).expect("docs/performance.md has the second mark");
    let note = format!(
        "Medians of {} rounds of {} s a leg:\n\n{}\n",
        effort.rounds,
        effort.seconds,
        machine::describe()
    );
    fs::write(&path, format!("{before}{FROM}\n{note}{tables}\n{TO}{after}")).unwrap();
    println!("written to docs/performance.md");
}

fn tables(results: &Results, extra: &Extra, goals: &[Goal]) -> String {
    let mut text = aligned(&ratio_rows(goals));
    text.push('\n');
    text += &aligned(&leg_rows(results));
    let _ = write!(
        text,
        "\nOpen loop: {} requests a second. One PING to Redis: {:.0} us (p50).\n",
        extra.open_rate, extra.ping_us
    );
    text
}

fn ratio_rows(goals: &[Goal]) -> Vec<Vec<String>> {
    let header = ["what", "measured", "goal", ""].map(String::from).to_vec();
    let row = |goal: &Goal| {
        let met = if goal.met() { "met" } else { "missed" };
        let figure = |number: f64| match goal.unit {
            "x" => format!("{number:.2} x"),
            unit => format!("{number:.1} {unit}"),
        };
        vec![
            goal.name.clone(),
            figure(goal.measured),
            format!("<= {}", figure(goal.at_most)),
            met.into(),
        ]
    };
    [header].into_iter().chain(goals.iter().map(row)).collect()
}

fn leg_rows(results: &Results) -> Vec<Vec<String>> {
    let header = [
        "leg",
        "server CPU us",
        "to floor",
        "Redis CPU us",
        "requests/s",
        "p50 us",
        "p99 us",
        "p99.9 us",
        "over limit",
        "errors",
        "generator CPU us",
    ];
    let header = header.map(String::from).to_vec();
    let row = |(name, figures): (&str, Figures)| {
        let share = |share: f64| format!("{:.2} %", share * 100.0);
        let server = figures.server_us;
        let floor = results.median(legs::floor_of(name)).and_then(|floor| floor.server_us);
        let to_floor = server.zip(floor).map(|(server, floor)| server / floor);
        let known = |number: Option<f64>| number.map_or("-".to_owned(), |us| format!("{us:.2}"));
        let redis = if figures.redis_us < 0.05 { None } else { Some(figures.redis_us) };
        vec![
            name.to_owned(),
            known(server),
            known(to_floor),
            known(redis),
            format!("{:.0}", figures.per_second),
            format!("{:.0}", figures.p50_us),
            format!("{:.0}", figures.p99_us),
            format!("{:.0}", figures.p999_us),
            share(figures.over),
            share(figures.errors),
            format!("{:.2}", figures.own_us),
        ]
    };
    [header].into_iter().chain(results.medians().map(row)).collect()
}

/// A Markdown table whose columns are also aligned on a terminal: the first to the left.
fn aligned(rows: &[Vec<String>]) -> String {
    let width =
        |at: usize| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0).max(3);
    let widths: Vec<_> = (0..rows[0].len()).map(width).collect();
    let line = |row: &Vec<String>| {
        let cell = |(at, cell): (usize, &String)| {
            let width = widths[at];
            if at == 0 { format!(" {cell:<width$} |") } else { format!(" {cell:>width$} |") }
        };
        format!("|{}\n", row.iter().enumerate().map(cell).collect::<String>())
    };
    let dashes = |(at, width): (usize, &usize)| {
        let dashes = "-".repeat(width + 1);
        if at == 0 { format!(" {} |", &dashes[1..]) } else { format!(" {}: |", &dashes[2..]) }
    };
    let rule: String = widths.iter().enumerate().map(dashes).collect();
    let mut text = line(&rows[0]) + &format!("|{rule}\n");
    text.extend(rows[1..].iter().map(line));
    text
}
