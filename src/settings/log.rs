//! Settings of the log.

use clap::Args;

/// Settings of the log.
#[derive(Args, Clone, Debug)]
pub struct Log {
    /// What to log: error, warn, info, debug, trace, or tracing directives
    #[arg(long = "log", env = "TIDEGATE_LOG", default_value = "info", value_name = "LEVEL")]
    pub level: String,
    /// How to log: `auto` is text on a terminal, else JSON, an object a line
    #[arg(long = "log-format", env = "TIDEGATE_LOG_FORMAT", default_value = "auto", value_parser = format, value_name = "auto|text|json")]
    pub format: LogFormat,
    /// Share of the decisions, from 0 to 1, that are logged each as a line of JSON
    #[arg(long, env = "TIDEGATE_DECISION_LOG_SAMPLE", default_value = "0", value_parser = share, value_name = "SHARE")]
    pub decision_log_sample: f64,
    /// Lines of the decision log in a second, at most
    #[arg(long, env = "TIDEGATE_DECISION_LOG_RATE", default_value_t = 100, value_name = "N")]
    pub decision_log_rate: u32,
}

/// How the log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Text on a terminal, else JSON.
    Auto,
    /// Lines for people.
    Text,
    /// A JSON object a line.
    Json,
}

impl LogFormat {
    /// Whether to write JSON, to a terminal or not.
    pub const fn is_json(self, to_terminal: bool) -> bool {
        match self {
            Self::Auto => !to_terminal,
            Self::Text => false,
            Self::Json => true,
        }
    }
}

fn format(text: &str) -> Result<LogFormat, String> {
    match text {
        "auto" => Ok(LogFormat::Auto),
        "text" => Ok(LogFormat::Text),
        "json" => Ok(LogFormat::Json),
        _ => Err("is not one of auto, text, json".into()),
    }
}

pub(super) fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "is not a number from 0 to 1".to_owned())
}
