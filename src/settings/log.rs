//! Settings of the log.

use clap::Args;

/// Settings of the log.
#[derive(Args, Clone, Debug)]
pub struct Log {
    /// Log level: error, warn, info, debug, trace, or tracing directives
    #[arg(long = "log", env = "TIDEGATE_LOG", default_value = "info", value_name = "LEVEL")]
    pub level: String,
    /// Log format: `text`, `json` (one object per line), or `auto`: text on a terminal, else JSON
    #[arg(long = "log-format", env = "TIDEGATE_LOG_FORMAT", default_value = "auto", value_parser = format, value_name = "auto|text|json")]
    pub format: LogFormat,
    /// Share of the decisions that are logged, from 0 to 1, one JSON line each
    #[arg(long, env = "TIDEGATE_DECISION_LOG_SAMPLE", default_value = "0", value_parser = share, value_name = "SHARE")]
    pub decision_log_sample: f64,
    /// Lines of the decision log per second, at most
    #[arg(long, env = "TIDEGATE_DECISION_LOG_RATE", default_value_t = 100, value_name = "N")]
    pub decision_log_rate: u32,
}

/// The format of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Text on a terminal, else JSON.
    Auto,
    /// Text for people.
    Text,
    /// One JSON object per line.
    Json,
}

impl LogFormat {
    /// Whether to write JSON.
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
