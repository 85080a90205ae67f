//! Draws the dashboard: its panels in Grafana's layout, with the results of Prometheus, the
//! dashboard's own colours, words and threshold lines, and the marks of outages.

use std::fmt::Write;

use super::dashboard::Panel;
use crate::support::prometheus::{Prometheus, Series};
use crate::support::svg::{Area, Drawing, number};

/// Pixels of a column and of a row of Grafana's grid.
const CELL: (f64, f64) = (50.0, 30.0);
const COLUMNS: f64 = 24.0;
const SERIES_MAX: usize = 8;

/// Colours of series that the dashboard gives none.
const COLOURS: [&str; 5] = ["blue", "orange", "green", "purple", "red"];

/// Seconds without a value that are drawn as a gap rather than a line.
const GAP: f64 = 3.0;

/// A series, its legend and its colour.
struct Line {
    name: String,
    colour: String,
    points: Vec<(f64, f64)>,
}

/// A part of the drawn time, in seconds since the epoch.
type Span = (f64, f64);

/// The drawn time, and the outages in it.
struct Times {
    shown: Span,
    outages: Vec<Span>,
}

/// The drawing of the results of `prometheus` for the last `seconds`. `outage` is the query that
/// marks outages.
pub(super) fn draw(
    panels: &[Panel],
    prometheus: &Prometheus,
    seconds: f64,
    outage: &str,
) -> String {
    let rows = panels.iter().map(|panel| panel.place[1] + panel.place[3]).max().unwrap();
    let size = (COLUMNS * CELL.0, f64::from(rows) * CELL.1);
    let mut drawing =
        Drawing::new(size, "The dashboard of Tidegate, while Redis is stopped for a while");
    let results: Vec<_> = panels.iter().map(|panel| answers(panel, prometheus, seconds)).collect();
    let moments =
        || results.iter().flatten().flat_map(|line| line.points.iter().map(|point| point.0));
    let last = moments().fold(0.0, f64::max);
    let marked = prometheus.query_range(outage, seconds, 1.0);
    let outages = marked.iter().flat_map(|series| spans(&series.points)).collect();
    let times = Times { shown: (last - seconds, last), outages };
    for (panel, lines) in panels.iter().zip(&results) {
        draw_panel(&mut drawing, panel, lines, &times);
    }
    drawing.finish()
}

fn spans(points: &[(f64, f64)]) -> Vec<Span> {
    let runs = points.chunk_by(|(at, _), (next, _)| next - at < GAP);
    runs.map(|run| (run[0].0, run[run.len() - 1].0)).collect()
}

fn answers(panel: &Panel, prometheus: &Prometheus, seconds: f64) -> Vec<Line> {
    let mut lines = Vec::new();
    for target in &panel.targets {
        let series = if panel.kind == "timeseries" {
            prometheus.query_range(&target.expr, seconds, 1.0)
        } else {
            prometheus.query(&target.expr)
        };
        for series in series {
            let colour = COLOURS[lines.len() % COLOURS.len()];
            lines.push(Line::of(series, &target.legend, panel, colour));
        }
    }
    lines.truncate(SERIES_MAX);
    lines
}

impl Line {
    fn of(series: Series, legend: &str, panel: &Panel, colour: &str) -> Self {
        let mut name = legend.to_owned();
        for (label, value) in series.labels.as_object().into_iter().flatten() {
            name = name.replace(&format!("{{{{{label}}}}}"), value.as_str().unwrap());
        }
        let points = series.points.into_iter().filter(|(_, value)| value.is_finite()).collect();
        let own = panel.colours.iter().find(|(pattern, _)| matches(pattern, &name));
        let colour = own.map_or(colour, |(_, colour)| colour).to_owned();
        Self { name, colour, points }
    }

    fn last(&self) -> f64 {
        self.points.last().map_or(0.0, |(_, value)| *value)
    }
}

/// Whether a name matches one of the dashboard's patterns, such as `/ allowed$/`.
fn matches(pattern: &str, name: &str) -> bool {
    let pattern = pattern.trim_matches('/');
    match (pattern.strip_prefix('^'), pattern.strip_suffix('$')) {
        _ if pattern == ".*" => true,
        (Some(start), Some(_)) => name == start.trim_end_matches('$'),
        (Some(start), None) => name.starts_with(start),
        (None, Some(end)) => name.ends_with(end),
        (None, None) => name.contains(pattern),
    }
}

fn draw_panel(drawing: &mut Drawing, panel: &Panel, lines: &[Line], times: &Times) {
    let [x, y, width, height] = panel.place.map(f64::from);
    let area = Area {
        x: x * CELL.0 + 4.0,
        y: y * CELL.1 + 4.0,
        width: width * CELL.0 - 8.0,
        height: height * CELL.1 - 8.0,
    };
    drawing.open(&panel.title);
    if panel.kind == "row" {
        drawing.text("strong", (area.x, area.y + 16.0), &panel.title);
    } else {
        drawing.fill("frame", area);
        drawing.text("strong", (area.x + 10.0, area.y + 20.0), &panel.title);
        match panel.kind.as_str() {
            "timeseries" => curves(drawing, area, panel, lines, times),
            "bargauge" => bars(drawing, area, panel, lines),
            _ => figures(drawing, area, panel, lines),
        }
    }
    drawing.close();
}

/// Where a curve is drawn, and up to which value.
struct Plot {
    area: Area,
    shown: Span,
    top: f64,
}

impl Plot {
    fn x(&self, at: f64) -> f64 {
        let (from, to) = self.shown;
        self.area.x + (at.clamp(from, to) - from) / (to - from) * self.area.width
    }

    fn y(&self, value: f64) -> f64 {
        self.area.y + self.area.height * (1.0 - value.min(self.top) / self.top)
    }
}

fn curves(drawing: &mut Drawing, area: Area, panel: &Panel, lines: &[Line], times: &Times) {
    let highest =
        lines.iter().flat_map(|line| &line.points).map(|point| point.1).fold(0.0, f64::max);
    let line_at = panel.thresholds.iter().map(|(at, _)| *at).filter(|at| *at < 3.0 * highest);
    let top = line_at.fold(if highest > 0.0 { highest } else { 1.0 }, f64::max) * 1.15;
    let under = legend(drawing, area, lines);
    let height = area.height - 34.0 - 22.0 - under;
    let plot = Area { x: area.x + 62.0, y: area.y + 34.0, width: area.width - 84.0, height };
    let plot = Plot { area: plot, shown: times.shown, top };
    for (from, to) in &times.outages {
        let (x, width) = (plot.x(*from), plot.x(*to) - plot.x(*from));
        drawing.fill("outage", Area { x, y: plot.area.y, width, height });
    }
    axes(drawing, &plot, panel);
    for line in lines {
        let mut path = String::new();
        for run in line.points.chunk_by(|(at, _), (next, _)| next - at < GAP) {
            for (command, (at, value)) in "M".chars().chain("L".chars().cycle()).zip(run) {
                let _ = write!(path, "{command}{} {}", number(plot.x(*at)), number(plot.y(*value)));
            }
        }
        drawing.path(&format!("line {}", line.colour), &path);
    }
}

fn axes(drawing: &mut Drawing, plot: &Plot, panel: &Panel) {
    let Area { x, y, width, height } = plot.area;
    for share in [0.0, 0.5, 1.0] {
        let value = plot.top / 1.15 * share;
        let at = plot.y(value);
        drawing.line("rule", (x, at), (x + width, at));
        drawing.text("small end", (x - 6.0, at + 4.0), &written(value, &panel.unit));
    }
    let seconds = plot.shown.1 - plot.shown.0;
    for part in 0..=4 {
        let second = seconds * f64::from(part) / 4.0;
        let text = format!("{second:.0} s");
        drawing.text("small middle", (plot.x(plot.shown.0 + second), y + height + 16.0), &text);
    }
    for (value, colour) in panel.thresholds.iter().filter(|(value, _)| *value < plot.top) {
        let at = plot.y(*value);
        drawing.line(&format!("dashed {colour}"), (x, at), (x + width, at));
    }
}

/// Draws the names under the curves, as many per row as fit; returns the height.
fn legend(drawing: &mut Drawing, area: Area, lines: &[Line]) -> f64 {
    const LEFT: f64 = 12.0;
    const ROW: f64 = 15.0;
    let (mut places, mut x, mut rows) = (Vec::new(), LEFT, 1.0);
    for line in lines {
        let wide = 30.0 + 6.4 * line.name.len() as f64;
        if x > LEFT && x + wide > area.width {
            (x, rows) = (LEFT, rows + 1.0);
        }
        places.push((x, rows));
        x += wide;
    }
    let top = area.y + area.height - ROW * rows - 6.0;
    for (line, (x, row)) in lines.iter().zip(places) {
        let (x, y) = (area.x + x, top + ROW * (row - 1.0));
        let mark = Area { x, y: y + 5.0, width: 10.0, height: 3.0 };
        drawing.fill(&format!("mark {}", line.colour), mark);
        drawing.text("small", (x + 15.0, y + 10.0), &line.name);
    }
    ROW * rows + 6.0
}

fn bars(drawing: &mut Drawing, area: Area, panel: &Panel, lines: &[Line]) {
    let longest = lines.iter().map(Line::last).fold(1.0, f64::max);
    for (at, line) in lines.iter().enumerate() {
        let y = area.y + 38.0 + 26.0 * at as f64;
        let width = line.last() / longest * (area.width - 250.0);
        drawing.text("", (area.x + 10.0, y + 13.0), &line.name);
        drawing.fill("mark orange", Area { x: area.x + 180.0, y, width, height: 17.0 });
        let figure = written(line.last(), &panel.unit);
        drawing.text("", (area.x + 188.0 + width, y + 13.0), &figure);
    }
}

fn figures(drawing: &mut Drawing, area: Area, panel: &Panel, lines: &[Line]) {
    if lines.is_empty() {
        return drawing.text("small", (area.x + 10.0, area.y + 60.0), "no series yet");
    }
    for (at, line) in lines.iter().enumerate() {
        let x = area.x + 12.0 + 100.0 * at as f64;
        let written = written(line.last(), &panel.unit);
        let word = panel.words.iter().find(|(value, ..)| value.parse::<f64>() == Ok(line.last()));
        let (text, colour) = word.map_or((&written, "plain"), |(_, text, colour)| (text, colour));
        drawing.text(&format!("figure mark {colour}"), (x, area.y + 66.0), text);
        drawing.text("small", (x, area.y + 88.0), &line.name);
    }
}

/// A value as Grafana prints it in this unit.
fn written(value: f64, unit: &str) -> String {
    match unit {
        "s" if value < 0.001 => format!("{:.0} us", value * 1e6),
        "s" if value < 1.0 => format!("{:.1} ms", value * 1e3),
        "s" => format!("{value:.0} s"),
        "percentunit" => format!("{:.1} %", value * 100.0),
        "bytes" => format!("{:.1} MiB", value / f64::from(1 << 20)),
        "reqps" | "ops" | "cps" => format!("{value:.1}/s"),
        _ if value < 10.0 && value.fract() > 0.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}
