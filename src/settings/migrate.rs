//! Settings of `migrate`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Settings of `migrate`.
#[derive(Args, Debug)]
pub struct Migrate {
    /// The settings to read: `envoyproxy-env` are the environment variables of envoyproxy/ratelimit
    #[arg(long, value_enum, hide_possible_values = true, value_name = "envoyproxy-env")]
    pub from: Origin,
    /// A file of NAME=value lines, such as an env file or /proc/PID/environ; `-` is standard input;
    /// unset: the environment of this command
    #[arg(value_name = "FILE|-")]
    pub file: Option<PathBuf>,
}

/// The source of the settings.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Origin {
    /// The environment variables of envoyproxy/ratelimit.
    EnvoyproxyEnv,
}
