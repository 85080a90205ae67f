//! How limits files are read, by every command that reads them.

use clap::Args;
use clap::builder::BoolishValueParser;

use crate::rules;

/// Switches that apply to all limits.
#[derive(Args, Clone, Copy, Debug)]
pub struct Switches {
    /// Merge files that name the same domain
    #[arg(long, env = "TIDEGATE_MERGE_DOMAINS", value_parser = BoolishValueParser::new())]
    pub merge_domains: bool,
    /// Reject nothing: all limits only count and report
    #[arg(long, env = "TIDEGATE_SHADOW_MODE", value_parser = BoolishValueParser::new())]
    pub shadow_mode: bool,
    /// Reject a request only if all limits that it matches are over
    #[arg(long, env = "TIDEGATE_QUOTA_MODE", value_parser = BoolishValueParser::new())]
    pub quota_mode: bool,
    /// Let fixed windows also count the hits of rejected requests, as envoyproxy/ratelimit does
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
