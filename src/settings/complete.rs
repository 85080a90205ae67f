//! Settings of `completions` and `man`.

use std::path::PathBuf;

use clap::Args;
use clap_complete::Shell;

/// Settings of `completions`.
#[derive(Args, Debug)]
pub struct Completions {
    /// The shell
    #[arg(value_enum)]
    pub shell: Shell,
}

/// Settings of `man`.
#[derive(Args, Debug)]
pub struct Man {
    /// Write tidegate.1 and a page per command, as tidegate-serve.1, to this directory
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}
