//! Settings of `top`.

use std::time::Duration;

use clap::Args;

use super::client::Client;
use super::heading;
use super::values::duration;

/// Settings of `top`.
#[derive(Args, Debug)]
pub struct Top {
    /// The service's HTTP port: HOST[:PORT], https://HOST[:PORT] or unix:PATH; the port is 8080 unless
    /// given
    #[arg(long, env = "TIDEGATE_HTTP_ADDR", default_value = "127.0.0.1:8080", value_name = "ADDR")]
    pub addr: String,
    /// Show only this domain
    #[arg(long, value_name = "D")]
    pub domain: Option<String>,
    /// Show only this rule: its path, or a limit's name
    #[arg(long, value_name = "R")]
    pub rule: Option<String>,
    /// Ask again every 2s, or as often as given, until Ctrl-C
    #[arg(long, value_parser = duration, num_args = 0..=1, require_equals = true,
        default_missing_value = "2s", value_name = "DURATION")]
    pub watch: Option<Duration>,
    /// Print the answer as JSON
    #[arg(long)]
    pub json: bool,
    /// TLS
    #[command(flatten, next_help_heading = heading::TLS)]
    pub client: Client,
}
