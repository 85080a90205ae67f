//! The commands of the program.

pub mod bench;
pub mod check;
pub mod migrate;
pub mod query;
pub mod reset;
pub mod serve;
pub mod simulate;

use std::io::Write;

/// Prints to standard output, in colours only on a terminal.
///
/// # Errors
/// Nobody takes it, for people.
pub fn print(text: &str) -> Result<(), String> {
    let mut out = anstream::stdout();
    let printed = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    printed.map_err(|error| format!("cannot print: {error}"))
}
