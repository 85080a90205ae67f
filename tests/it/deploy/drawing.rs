//! Draws the dashboard: its panels in Grafana's layout, with the results of Prometheus.

use std::path::Path;

use plotters::prelude::*;

use super::dashboard::Panel;
use crate::support::canvas::{COLOURS, Canvas, INK, PALE, label};
use crate::support::prometheus::{Prometheus, Series};

/// Pixels of a column and of a row of Grafana's grid.
const CELL: (i32, i32) = (50, 30);
const COLUMNS: i32 = 24;
const SERIES_MAX: usize = COLOURS.len();

/// Seconds without a value that are drawn as a gap rather than a line.
const GAP: f64 = 3.0;

/// A series and its legend.
struct Line {
    name: String,
    points: Vec<(f64, f64)>,
}

/// Draws the results of `prometheus` for the last `seconds` into an SVG file.
pub(super) fn draw(path: &Path, panels: &[Panel], prometheus: &Prometheus, seconds: f64) {
    let rows = panels.iter().map(|panel| panel.place[1] + panel.place[3]).max().unwrap();
    let size = (COLUMNS * CELL.0, rows * CELL.1).into();
    let root = SVGBackend::new(path, pixels(size)).into_drawing_area();
    root.fill(&WHITE).unwrap();
    for panel in panels {
        let [x, y, width, height] = panel.place;
        let size = pixels((width * CELL.0 - 8, height * CELL.1 - 8).into());
        let canvas = root.clone().shrink((x * CELL.0 + 4, y * CELL.1 + 4), size);
        draw_panel(&canvas, panel, &answers(panel, prometheus, seconds));
    }
    root.present().unwrap();
}

fn pixels(size: [i32; 2]) -> (u32, u32) {
    (size[0].unsigned_abs(), size[1].unsigned_abs())
}

fn answers(panel: &Panel, prometheus: &Prometheus, seconds: f64) -> Vec<Line> {
    let mut lines = Vec::new();
    for target in &panel.targets {
        let series = if panel.kind == "timeseries" {
            prometheus.query_range(&target.expr, seconds, 1.0)
        } else {
            prometheus.query(&target.expr)
        };
        lines.extend(series.into_iter().map(|series| Line::of(series, &target.legend)));
    }
    lines.truncate(SERIES_MAX);
    lines
}

impl Line {
    fn of(series: Series, legend: &str) -> Self {
        let mut name = legend.to_owned();
        for (label, value) in series.labels.as_object().into_iter().flatten() {
            name = name.replace(&format!("{{{{{label}}}}}"), value.as_str().unwrap());
        }
        let points = series.points.into_iter().filter(|(_, value)| value.is_finite()).collect();
        Self { name, points }
    }

    fn last(&self) -> f64 {
        self.points.last().map_or(0.0, |(_, value)| *value)
    }
}

fn draw_panel(canvas: &Canvas<'_>, panel: &Panel, lines: &[Line]) {
    let (width, height) = canvas.dim_in_pixel();
    if panel.kind == "row" {
        return label(canvas, &panel.title, (0, 4), 16);
    }
    let corner = (width.cast_signed() - 1, height.cast_signed() - 1);
    canvas.draw(&Rectangle::new([(0, 0), corner], PALE)).unwrap();
    label(canvas, &panel.title, (8, 7), 14);
    match panel.kind.as_str() {
        "timeseries" => curves(canvas, panel, lines),
        "bargauge" => bars(canvas, panel, lines),
        _ => figures(canvas, panel, lines),
    }
}

fn curves(canvas: &Canvas<'_>, panel: &Panel, lines: &[Line]) {
    let moments = || lines.iter().flat_map(|line| line.points.iter().map(|point| point.0));
    let (first, last) = (moments().fold(f64::MAX, f64::min), moments().fold(0.0, f64::max));
    let highest = lines.iter().flat_map(|line| &line.points).map(|point| point.1);
    let highest = highest.fold(0.0, f64::max);
    if first >= last {
        return label(canvas, "no series yet", (8, 40), 13);
    }
    let top = if highest > 0.0 { highest * 1.15 } else { 1.0 };
    let under = legend(canvas, lines);
    let mut chart = ChartBuilder::on(canvas)
        .margin_top(28)
        .margin_right(10)
        .margin_bottom(under)
        .x_label_area_size(18)
        .y_label_area_size(58)
        .build_cartesian_2d(0.0..last - first, 0.0..top)
        .unwrap();
    let axis = ("sans-serif", 11).into_font().color(&INK);
    let seconds = |at: &f64| format!("{at:.0} s");
    let value = |value: &f64| written(*value, &panel.unit);
    let mut mesh = chart.configure_mesh();
    let mesh = mesh.disable_x_mesh().x_labels(6).x_label_formatter(&seconds);
    let mesh = mesh.y_labels(4).y_label_formatter(&value);
    mesh.label_style(axis).light_line_style(WHITE.mix(0.0)).draw().unwrap();
    for (line, colour) in lines.iter().zip(COLOURS) {
        for run in line.points.chunk_by(|(at, _), (next, _)| next - at < GAP) {
            let points = run.iter().map(|(at, value)| (at - first, *value));
            chart.draw_series(LineSeries::new(points, colour.stroke_width(2))).unwrap();
        }
    }
}

/// Draws the names under the curves, as many per row as fit; returns the height.
fn legend(canvas: &Canvas<'_>, lines: &[Line]) -> i32 {
    const LEFT: i32 = 12;
    const CHARACTER: i32 = 6;
    const ROW: i32 = 14;
    let (width, height) = canvas.dim_in_pixel();
    let (mut places, mut x, mut rows) = (Vec::new(), LEFT, 1);
    for line in lines {
        let wide = 26 + CHARACTER * i32::try_from(line.name.len()).unwrap();
        if x > LEFT && x + wide > width.cast_signed() {
            (x, rows) = (LEFT, rows + 1);
        }
        places.push((x, rows));
        x += wide;
    }
    let top = height.cast_signed() - 6 - ROW * (rows + 1);
    for ((line, colour), (x, row)) in lines.iter().zip(COLOURS).zip(places) {
        let y = top + ROW * row;
        canvas.draw(&Rectangle::new([(x, y + 4), (x + 10, y + 7)], colour.filled())).unwrap();
        label(canvas, &line.name, (x + 14, y), 11);
    }
    14 + ROW * rows
}

fn bars(canvas: &Canvas<'_>, panel: &Panel, lines: &[Line]) {
    let (width, _) = canvas.dim_in_pixel();
    let longest = lines.iter().map(Line::last).fold(1.0, f64::max);
    for (line, top) in lines.iter().zip((34..).step_by(26)) {
        let room = f64::from(width) - 250.0;
        #[allow(clippy::cast_possible_truncation, reason = "within the drawing")]
        let end = 180 + (line.last() / longest * room) as i32;
        label(canvas, &line.name, (10, top + 2), 12);
        canvas.draw(&Rectangle::new([(180, top), (end, top + 16)], COLOURS[1].filled())).unwrap();
        label(canvas, &written(line.last(), &panel.unit), (end + 6, top + 2), 12);
    }
}

fn figures(canvas: &Canvas<'_>, panel: &Panel, lines: &[Line]) {
    if lines.is_empty() {
        return label(canvas, "no series yet", (8, 48), 13);
    }
    for (line, left) in lines.iter().zip((12..).step_by(100)) {
        label(canvas, &written(line.last(), &panel.unit), (left, 40), 30);
        label(canvas, &line.name, (left, 78), 12);
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
