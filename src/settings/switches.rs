//! How limits files are read, whoever reads them.

use clap::Args;
use clap::builder::BoolishValueParser;

use crate::rules;

/// Switches that hold for all limits.
#[derive(Args, Clone, Copy, Debug)]
pub struct Switches {
    /// Take files that name the same domain for parts of it
    #[arg(long, env = "TIDEGATE_MERGE_DOMAINS", value_parser = BoolishValueParser::new())]
    pub merge_domains: bool,
    /// Let no limit reject: all are counted and reported
    #[arg(long, env = "TIDEGATE_SHADOW_MODE", value_parser = BoolishValueParser::new())]
    pub shadow_mode: bool,
    /// Let limits reject a request only where all that it meets are over
    #[arg(long, env = "TIDEGATE_QUOTA_MODE", value_parser = BoolishValueParser::new())]
    pub quota_mode: bool,
    /// Count the hits of rejected requests in fixed windows too, as envoyproxy/ratelimit does
    #[arg(long, env = "TIDEGATE_COUNT_REJECTED", value_parser = BoolishValueParser::new())]
    pub count_rejected: bool,
}

impl From<Switches> for rules::Switches {
    fn from(switches: Switches) -> Self {
        Self {
            merge_domains: switches.merge_domains,
            shadow: switches.shadow_mode,
            quota: switches.quota_mode,
            count_rejected: switches.count_rejected,
        }
    }
}
