//! The commands of the program.

pub mod bench;
pub mod check;
mod dial;
pub mod migrate;
pub mod query;
pub mod reset;
pub mod serve;
pub mod simulate;
pub mod top;

use std::io::Write;

/// Prints to standard output, with colours on a terminal only.
///
/// # Errors
/// Standard output cannot be written. The message is for people.
pub fn print(text: &str) -> Result<(), String> {
    let mut out = anstream::stdout();
    let printed = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    printed.map_err(|error| format!("cannot print: {error}"))
}

/// A runtime on this thread.
fn runtime() -> Result<tokio::runtime::Runtime, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| format!("runtime: {error}"))
}

/// Pads each column but the last to its widest cell. Every line ends with a line feed.
fn columns<const N: usize>(rows: &[[String; N]]) -> String {
    let mut widths = [0; N];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// Escapes control characters, so that text from callers or limits files cannot move the terminal's
/// cursor.
fn printable(text: &str) -> String {
    let escape = |c: char| {
        if c.is_control() { c.escape_default().to_string() } else { c.into() }
    };
    text.chars().map(escape).collect()
}
