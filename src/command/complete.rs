//! `tidegate completions` and `tidegate man`: what shells and `man` need to know of the command line.
//!
//! Both are made from the same declarations as `--help`, so they cannot differ from it.

use crate::settings::{Cli, Completions, Man};

const NAME: &str = "tidegate";

/// Prints a completion script.
///
/// # Errors
/// It cannot be printed.
pub fn completions(settings: &Completions) -> Result<(), String> {
    let mut script = Vec::new();
    clap_complete::generate(settings.shell, &mut Cli::described(), NAME, &mut script);
    super::print(&String::from_utf8_lossy(&script))
}

/// Prints the page of the program, or writes the pages of all commands to a directory.
///
/// # Errors
/// They cannot be written.
pub fn man(settings: &Man) -> Result<(), String> {
    if let Some(folder) = &settings.out {
        let written = clap_mangen::generate_to(Cli::described(), folder);
        return written.map_err(|error| format!("--out {}: {error}", folder.display()));
    }
    let mut page = Vec::new();
    let rendered = clap_mangen::Man::new(Cli::described()).render(&mut page);
    rendered.map_err(|error| error.to_string())?;
    super::print(&String::from_utf8_lossy(&page))
}
