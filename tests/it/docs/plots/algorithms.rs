//! The drawing of what each algorithm admits: a panel each, with its finding as the title.

use std::fmt::Write;

use super::Outcome;
use crate::support::svg::{Area, Drawing, number};

/// The page's limit.
pub(super) const LIMIT: usize = 10;
pub(super) const PERIOD_MS: u64 = 1_000;

/// The drawn part of the trace.
const SHOWN_MS: u64 = 4_000;

const WIDTH: f64 = 500.0;

/// Room for the names of lanes.
const LEFT: f64 = 66.0;
const HEIGHT: f64 = 240.0;
const HEAD: f64 = 34.0;

pub(super) fn draw(outcomes: &[Outcome]) -> String {
    let rows = outcomes.len().div_ceil(2);
    let size = (2.0 * WIDTH, HEAD + rows as f64 * HEIGHT);
    let mut drawing = Drawing::new(size, "What each of six algorithms admits of the same traffic");
    head(&mut drawing);
    for (at, one) in outcomes.iter().enumerate() {
        let (column, row) = (at % 2, at / 2);
        let corner = (column as f64 * WIDTH, HEAD + row as f64 * HEIGHT);
        panel(&mut drawing, corner, one, &finding(one, outcomes));
    }
    drawing.finish()
}

fn head(drawing: &mut Drawing) {
    let y = 21.0;
    drawing.line("sum", (56.0, y - 4.0), (80.0, y - 4.0));
    drawing.text("small", (86.0, y), "requests that passed in the second before");
    drawing.fill("over", Area { x: 340.0, y: y - 10.0, width: 24.0, height: 12.0 });
    drawing.text("small", (370.0, y), "more than the limit");
    for x in 0..6 {
        let x = 500.0 + 5.0 * f64::from(x);
        drawing.line("offered", (x, y - 10.0), (x, y + 2.0));
    }
    drawing.text("small", (534.0, y), "a request");
    for x in 0..6 {
        let x = 606.0 + 5.0 * f64::from(x);
        drawing.line("admitted", (x, y - 10.0), (x, y + 2.0));
    }
    drawing.text("small", (640.0, y), "an admitted request, at the time when it may proceed");
}

/// What the panel shows, in one sentence.
fn finding(one: &Outcome, all: &[Outcome]) -> String {
    let most = one.most_in_a_period();
    let times = match most as f64 / LIMIT as f64 {
        2.0 => "twice".to_owned(),
        times => format!("{} times", number(times)),
    };
    let exact = all.iter().find(|one| one.algorithm == "sliding_window_log");
    let fewer = exact.map_or(0, |log| log.admitted.saturating_sub(one.admitted));
    match one.algorithm.as_str() {
        _ if most > LIMIT => format!("{most} in one second, {times} the limit"),
        "leaky_bucket" => {
            format!("{most} in any second, waits of {} ms at most", one.delay_max_ms)
        }
        "gcra" => format!("evenly spaced, {most} in one second at most"),
        "sliding_window_counter" => {
            format!("{most} in any second, {fewer} fewer pass")
        }
        _ => format!("never more than {most} in any second"),
    }
}

fn panel(drawing: &mut Drawing, corner: (f64, f64), one: &Outcome, finding: &str) {
    let title = format!("{}: {finding}", one.algorithm);
    drawing.open(&title);
    drawing.text("strong", (corner.0 + LEFT, corner.1 + 20.0), &title);
    let plot =
        Area { x: corner.0 + LEFT, y: corner.1 + 34.0, width: WIDTH - LEFT - 24.0, height: 118.0 };
    axes(drawing, plot);
    sums(drawing, plot, &one.went_on);
    let lanes = [("asked", "offered", &one.asked), ("passed", "admitted", &one.went_on)];
    for ((name, class, moments), top) in lanes.into_iter().zip([8.0, 30.0]) {
        let top = plot.y + plot.height + top;
        drawing.text("small end", (plot.x - 6.0, top + 12.0), name);
        ticks(drawing, class, plot, top, moments);
    }
    drawing.close();
}

fn x(plot: Area, ms: u64) -> f64 {
    plot.x + ms.min(SHOWN_MS) as f64 / SHOWN_MS as f64 * plot.width
}

/// From 0 to a little over twice the limit.
fn y(plot: Area, count: usize) -> f64 {
    plot.y + plot.height - count as f64 / (2 * LIMIT + 2) as f64 * plot.height
}

fn axes(drawing: &mut Drawing, plot: Area) {
    for count in [0, LIMIT, 2 * LIMIT] {
        let y = y(plot, count);
        let class = if count == LIMIT { "limit" } else { "rule" };
        drawing.line(class, (plot.x, y), (plot.x + plot.width, y));
        let name = if count == LIMIT { format!("limit {count}") } else { count.to_string() };
        drawing.text("small end", (plot.x - 6.0, y + 4.0), &name);
    }
    for second in 0..=SHOWN_MS / 1_000 {
        let x = x(plot, second * 1_000);
        let bottom = plot.y + plot.height + 48.0;
        drawing.line("rule", (x, plot.y + plot.height), (x, bottom + 4.0));
        drawing.text("small middle", (x, bottom + 18.0), &format!("{second} s"));
    }
}

/// Draws how many of `moments` lie in the period before each moment, as steps, and fills what is
/// above the limit.
fn sums(drawing: &mut Drawing, plot: Area, moments: &[u64]) {
    let mut line = format!("M{} {}", number(x(plot, 0)), number(y(plot, 0)));
    let mut over = Vec::new();
    let (mut from, mut count) = (0, 0);
    for (at, next) in steps(moments) {
        if count > LIMIT {
            over.push((from, at, count));
        }
        let _ = write!(line, "H{}V{}", number(x(plot, at)), number(y(plot, next)));
        (from, count) = (at, next);
    }
    let end = number(x(plot, SHOWN_MS));
    let _ = write!(line, "H{end}");
    drawing.path("under", &format!("{line}V{}H{}Z", number(y(plot, 0)), number(plot.x)));
    for (from, to, count) in over {
        let (left, top) = (x(plot, from), y(plot, count));
        let (width, height) = (x(plot, to) - left, y(plot, LIMIT) - top);
        drawing.fill("over", Area { x: left, y: top, width, height });
    }
    drawing.path("sum", &line);
}

/// The moments at which the sum changes, with the new sum, within the drawn part.
fn steps(moments: &[u64]) -> Vec<(u64, usize)> {
    let mut changes: Vec<_> = moments.iter().flat_map(|&ms| [ms, ms + PERIOD_MS]).collect();
    changes.retain(|ms| *ms <= SHOWN_MS);
    changes.sort_unstable();
    changes.dedup();
    changes.into_iter().map(|at| (at, Outcome::in_last_period(moments, at))).collect()
}

fn ticks(drawing: &mut Drawing, class: &str, plot: Area, top: f64, moments: &[u64]) {
    let mut marks = String::new();
    for ms in moments.iter().filter(|ms| **ms <= SHOWN_MS) {
        let _ = write!(marks, "M{} {}v16", number(x(plot, *ms)), number(top));
    }
    drawing.path(class, &marks);
}
