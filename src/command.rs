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

use std::io::{ErrorKind, Write};

use anstyle::AnsiColor;

pub(crate) use crate::printable::printable;

/// Prints to standard output, with colours on a terminal only.
///
/// # Errors
/// Standard output cannot be written. The message is for people.
pub fn print(text: &str) -> Result<(), String> {
    let mut out = anstream::stdout();
    let printed = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    match printed {
        // The reader has seen enough, as `head` does.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        printed => printed.map_err(|error| format!("cannot print: {error}")),
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
    print_error(&format!("{style}error:{style:#} {}\n", failure.trim_end()));
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
