//! The commands of the program.

pub mod bench;
pub mod check;
pub mod complete;
mod dial;
pub mod migrate;
mod progress;
pub mod query;
pub mod reset;
pub mod serve;
mod signals;
pub mod simulate;
pub mod top;

use std::io::{self, ErrorKind, Write};
use std::ops::ControlFlow;

use anstyle::AnsiColor;

use crate::printable::{printable, printable_line};
pub use signals::Completion;

/// Prints to standard output, with colours on a terminal only. Nothing is wrong if its reader has seen
/// enough and is gone, as `head` does.
///
/// # Errors
/// Standard output cannot be written. The message is for people.
pub fn print(text: &str) -> Result<(), String> {
    print_until_closed(text).map(drop)
}

/// The same; `Break` if the reader is gone.
fn print_until_closed(text: &str) -> Result<ControlFlow<()>, String> {
    let mut out = anstream::stdout();
    unless_closed(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
}

/// The result of writing to standard output; `Break` if the reader is gone.
fn unless_closed(written: io::Result<()>) -> Result<ControlFlow<()>, String> {
    match written {
        Ok(()) => Ok(ControlFlow::Continue(())),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(ControlFlow::Break(())),
        Err(error) => Err(format!("cannot print: {error}")),
    }
}

/// Prints to standard error, with colours on a terminal only. There is no place to report that it cannot
/// be written.
pub fn print_error(text: &str) {
    let _ = anstream::stderr().write_all(text.as_bytes());
}

/// Prints a failure as every command does.
pub fn print_failure(failure: &str) {
    let style = AnsiColor::Red.on_default().bold();
    let failure = printable_line(failure.trim_end().as_bytes(), false);
    print_error(&format!("{style}error:{style:#} {}\n", String::from_utf8_lossy(&failure)));
}

/// A runtime on this thread.
fn runtime() -> Result<tokio::runtime::Runtime, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| format!("runtime: {error}"))
}

/// A wider cell does not move those of other lines.
const WIDTH_MAX: usize = 80;

/// Pads each column but the last to its widest cell. Every line ends with a line feed.
fn columns<const N: usize>(rows: &[[String; N]]) -> String {
    let mut widths = [0; N];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().clamp(*width, WIDTH_MAX);
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
