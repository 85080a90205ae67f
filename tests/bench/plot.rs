//! The plot: CPU time per request as bars, and latencies of the open loop.

use std::path::Path;

use plotters::prelude::*;

use crate::legs;
use crate::measure::{Figures, Results};

const SIZE: (u32, u32) = (960, 420);
const INK: RGBColor = RGBColor(60, 60, 60);
const SERVER: RGBColor = RGBColor(38, 110, 160);
const REDIS: RGBColor = RGBColor(205, 90, 60);
const LATENCIES: [RGBColor; 3] = [RGBColor(120, 120, 120), SERVER, REDIS];

type Canvas<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

/// Writes an SVG file.
pub fn write(results: &Results, path: &Path) {
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    root.fill(&WHITE).unwrap();
    let (bars, lines) = root.split_horizontally(500);
    cpu(results, &bars);
    latencies(results, &lines);
    root.present().unwrap();
}

fn label(canvas: &Canvas<'_>, text: &str, at: (i32, i32), size: i32) {
    let style = ("sans-serif", size).into_font().color(&INK);
    canvas.draw_text(text, &style, at).unwrap();
}

fn cpu(results: &Results, canvas: &Canvas<'_>) {
    const LEFT: i32 = 190;
    const WIDTH: f64 = 240.0;
    const STEP: i32 = 44;
    label(canvas, "CPU time a request, us: server (blue) and Redis (red)", (12, 12), 15);
    let names = [
        legs::FLOOR,
        legs::MEMORY,
        legs::REDIS_UNIFORM,
        legs::REDIS_SINGLE,
        legs::REDIS_ZIPF,
        legs::REDIS_OVER,
        legs::LIMITS_24_MEMORY,
    ];
    let rows = names.iter().filter_map(|name| Some((*name, results.median(name)?)));
    let rows: Vec<_> = rows.collect();
    let total = |figures: &Figures| figures.server_us.unwrap_or(0.0) + figures.redis_us;
    let longest = rows.iter().map(|(_, figures)| total(figures)).fold(0.0, f64::max);
    for ((name, figures), top) in rows.iter().zip((48..).step_by(44)) {
        let pixels = |us: f64| pixel(us / longest * WIDTH);
        let middle = LEFT + pixels(figures.server_us.unwrap_or(0.0));
        let end = LEFT + pixels(total(figures));
        let bottom = top + STEP - 18;
        label(canvas, name, (12, top + 6), 13);
        canvas.draw(&Rectangle::new([(LEFT, top), (middle, bottom)], SERVER.filled())).unwrap();
        canvas.draw(&Rectangle::new([(middle, top), (end, bottom)], REDIS.filled())).unwrap();
        label(canvas, &format!("{:.1}", total(figures)), (end + 6, top + 6), 13);
    }
}

#[allow(clippy::cast_possible_truncation)] // within the drawing
fn pixel(at: f64) -> i32 {
    at.round() as i32
}

fn latencies(results: &Results, canvas: &Canvas<'_>) {
    const NINES: [&str; 3] = ["p50", "p99", "p99.9"];
    label(canvas, "latency at a third of saturation, us", (12, 12), 15);
    let names = [legs::OPEN_FLOOR, legs::OPEN_MEMORY, legs::OPEN_REDIS];
    let series = names.map(|name| {
        let figures = results.median(name).expect("every round runs the open loops");
        [figures.p50_us, figures.p99_us, figures.p999_us]
    });
    let highest = series.iter().flatten().copied().fold(1.0, f64::max);
    let lowest = series.iter().flatten().copied().fold(highest, f64::min);
    let mut chart = ChartBuilder::on(canvas)
        .margin_top(44)
        .margin_right(16)
        .x_label_area_size(28)
        .y_label_area_size(52)
        .build_cartesian_2d(0_f64..2_f64, (lowest * 0.7..highest * 1.4).log_scale())
        .unwrap();
    let axis = ("sans-serif", 13).into_font().color(&INK);
    let nine = |at: &f64| NINES[pixel(*at).clamp(0, 2).unsigned_abs() as usize].to_owned();
    let mut mesh = chart.configure_mesh();
    let mesh = mesh.disable_x_mesh().x_labels(3).x_label_formatter(&nine);
    let mesh = mesh.y_label_formatter(&|us| format!("{us:.0}"));
    mesh.label_style(axis).light_line_style(WHITE.mix(0.0)).draw().unwrap();
    for ((name, points), colour) in names.iter().zip(&series).zip(LATENCIES) {
        let points = points.iter().enumerate().map(|(at, us)| (at as f64, *us));
        let line = LineSeries::new(points, colour.stroke_width(2)).point_size(3);
        let drawn = chart.draw_series(line).unwrap().label(name.trim_start_matches("open loop: "));
        drawn.legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(2)));
    }
    let mut legend = chart.configure_series_labels();
    let legend = legend.position(SeriesLabelPosition::LowerRight).label_font(("sans-serif", 13));
    legend.background_style(WHITE.mix(0.8)).draw().unwrap();
}
