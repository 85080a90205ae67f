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
