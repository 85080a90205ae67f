//! Settings of `top`.

use clap::Args;

use super::client::Client;

/// Settings of `top`.
#[derive(Args, Debug)]
pub struct Top {
    /// The service's HTTP port: HOST:PORT, https://HOST:PORT or unix:PATH
    #[arg(long, env = "TIDEGATE_HTTP_ADDR", default_value = "127.0.0.1:8080", value_name = "ADDR")]
    pub addr: String,
    /// TLS
    #[command(flatten)]
    pub client: Client,
    /// Show only this domain
    #[arg(long, value_name = "D")]
    pub domain: Option<String>,
    /// Show only this rule: its path, or a limit's name
    #[arg(long, value_name = "R")]
    pub rule: Option<String>,
    /// Print the answer as JSON
    #[arg(long)]
    pub json: bool,
}
