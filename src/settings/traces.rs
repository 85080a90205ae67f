//! Settings of traces.

use clap::Args;
use http::Uri;

use super::log::share;
use crate::trace::Options;

/// Settings of traces.
#[derive(Args, Clone, Debug)]
pub struct Traces {
    /// Where to send traces: the gRPC endpoint of an OpenTelemetry collector; unset: disabled
    #[arg(long, env = "TIDEGATE_OTLP_ENDPOINT", value_parser = endpoint, value_name = "URL")]
    pub otlp_endpoint: Option<String>,
    /// Share of the calls without `traceparent` that are traced, from 0 to 1. Callers that send one
    /// decide for themselves
    #[arg(long, env = "TIDEGATE_OTLP_SAMPLE", default_value = "0.01", value_parser = share, value_name = "SHARE")]
    pub otlp_sample: f64,
}

impl Traces {
    /// The exporter's options; `None`: disabled.
    pub fn options(&self) -> Option<Options> {
        let endpoint = self.otlp_endpoint.clone()?;
        Some(Options { endpoint, sample: self.otlp_sample })
    }
}

fn endpoint(text: &str) -> Result<String, String> {
    let uri = text.parse::<Uri>().ok();
    let is_one = |uri: &Uri| {
        let scheme = uri.scheme_str().unwrap_or("");
        ["http", "https"].contains(&scheme) && uri.host().is_some() && uri.path() == "/"
    };
    match uri.filter(is_one) {
        Some(_) => Ok(text.to_owned()),
        None => {
            Err("is not http://HOST:PORT or https://HOST:PORT, as http://127.0.0.1:4317".into())
        }
    }
}
