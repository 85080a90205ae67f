//! The drawings of docs/performance.md, from the tables of that page.

use crate::support::svg::{Area, Drawing};

const LEFT: f64 = 250.0;
const BAR: f64 = 22.0;

/// A row of a table: its name, and its cells as numbers where they are numbers.
pub(super) struct Row {
    name: String,
    cells: Vec<Option<f64>>,
}

impl Row {
    fn cell(&self, column: usize) -> f64 {
        self.cells[column - 1].unwrap_or(0.0)
    }
}

/// The rows of the first table below a heading whose header line starts with these words.
pub(super) fn table(page: &str, header: &str) -> Vec<Row> {
    let lines = page.lines().skip_while(|line| !line.starts_with(header));
    let rows = lines.skip(2).take_while(|line| line.starts_with('|'));
    rows.map(|line| {
        let mut cells = line.trim_matches('|').split('|').map(str::trim);
        let name = cells.next().unwrap_or_default().to_owned();
        Row { name, cells: cells.map(|cell| cell.replace(',', "").parse().ok()).collect() }
    })
    .collect()
}

/// CPU time per request as bars, from two columns: the server's and that of Redis.
struct Bars<'a> {
    title: &'a str,
    rows: &'a [&'a Row],
    columns: [usize; 2],
}

impl Bars<'_> {
    fn draw(&self, drawing: &mut Drawing, top: f64, width: f64) {
        drawing.open(self.title);
        drawing.text("strong", (16.0, top), self.title);
        let total = |row: &&&Row| row.cell(self.columns[0]) + row.cell(self.columns[1]);
        let longest = self.rows.iter().map(|row| total(&row)).fold(1.0, f64::max);
        for (at, row) in self.rows.iter().enumerate() {
            let y = top + 18.0 + at as f64 * (BAR + 10.0);
            let [server, redis] = self.columns.map(|column| row.cell(column) / longest * width);
            let server_class = if is_floor(&row.name) { "floor" } else { "first" };
            drawing.text("end", (LEFT - 12.0, y + 16.0), &row.name);
            drawing.fill(server_class, Area { x: LEFT, y, width: server, height: BAR });
            drawing.fill("second", Area { x: LEFT + server, y, width: redis, height: BAR });
            let figure = format!("{:.1}", total(&row));
            drawing.text("", (LEFT + server + redis + 8.0, y + 16.0), &figure);
        }
        drawing.close();
    }
}

fn is_floor(name: &str) -> bool {
    name.contains("floor") || name.contains("decides nothing")
}

fn legend(drawing: &mut Drawing, y: f64, marks: &[(&str, &str)]) {
    let mut x = LEFT;
    for (class, text) in marks {
        drawing.dot(class, (x + 5.0, y - 4.0));
        drawing.text("small", (x + 16.0, y), text);
        x += 40.0 + 6.2 * text.len() as f64;
    }
}

/// Tidegate, the least that a service could cost, and other services, from one run.
pub(super) fn compared(page: &str) -> String {
    let rows = table(page, "| service, store |");
    let rows: Vec<_> = rows.iter().collect();
    let title =
        "CPU time per request: Tidegate, a service that decides nothing, and other limiters";
    let mut drawing = Drawing::new((960.0, 74.0 + rows.len() as f64 * 32.0), title);
    let bars =
        Bars { title: "CPU time per request, in microseconds", rows: &rows, columns: [1, 2] };
    bars.draw(&mut drawing, 28.0, 600.0);
    let marks = [
        ("first", "the service"),
        ("second", "Redis"),
        ("floor", "a gRPC service that decides nothing"),
    ];
    legend(&mut drawing, 62.0 + rows.len() as f64 * 32.0, &marks);
    drawing.finish()
}

/// The figures of `make bench`: CPU time as bars, and percentiles of the open loop as dots.
pub(super) fn measured(page: &str) -> String {
    let table = table(page, "| leg ");
    let named = |name: &&str| table.iter().find(|row| row.name == *name);
    let legs = [
        "floor",
        "memory",
        "Redis, uniform keys",
        "Redis, Zipf 1.1 keys",
        "Redis, 90 % over the limit",
        "memory, 24 limits",
        "Redis, 24 limits",
    ];
    let rows: Vec<_> = legs.iter().filter_map(named).collect();
    let title = "Tidegate's CPU time per request, and its latency at a third of what Redis can do";
    let mut drawing = Drawing::new((960.0, 500.0), title);
    let bars =
        Bars { title: "CPU time per request, in microseconds", rows: &rows, columns: [1, 3] };
    bars.draw(&mut drawing, 28.0, 600.0);
    let marks = [("first", "Tidegate"), ("second", "Redis"), ("floor", "the floor")];
    legend(&mut drawing, 286.0, &marks);
    let open = ["open loop: floor", "open loop: memory", "open loop: Redis"];
    let rows: Vec<_> = open.iter().filter_map(named).collect();
    latencies(&mut drawing, 330.0, &rows);
    drawing.finish()
}

/// Percentiles as dots on a logarithmic axis: nothing was measured between them.
fn latencies(drawing: &mut Drawing, top: f64, rows: &[&Row]) {
    const MARKS: [(&str, &str); 3] = [("first", "p50"), ("third", "p99"), ("second", "p99.9")];
    const WIDTH: f64 = 640.0;
    let title = "Latency at a third of what Redis can do, in microseconds";
    drawing.open(title);
    drawing.text("strong", (16.0, top), title);
    let place = |us: f64| LEFT + (us / 100.0).log10() / 2.0 * WIDTH;
    let bottom = top + 22.0 + rows.len() as f64 * 32.0;
    for us in [100.0, 1_000.0, 10_000.0] {
        drawing.line("rule", (place(us), top + 14.0), (place(us), bottom));
        drawing.text("small middle", (place(us), bottom + 16.0), &format!("{us}"));
    }
    for (at, row) in rows.iter().enumerate() {
        let y = top + 34.0 + at as f64 * 32.0;
        drawing.text("end", (LEFT - 12.0, y + 4.0), row.name.trim_start_matches("open loop: "));
        drawing.line("rule", (LEFT, y), (LEFT + WIDTH, y));
        for ((class, _), column) in MARKS.iter().zip([5, 6, 7]) {
            let us = row.cell(column);
            drawing.dot(class, (place(us), y));
            drawing.text("small middle", (place(us), y - 8.0), &format!("{us}"));
        }
    }
    drawing.close();
    legend(drawing, bottom + 34.0, &MARKS);
}
