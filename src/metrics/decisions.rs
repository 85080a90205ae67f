//! Decisions, by domain, result and source.

use std::fmt::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::configured::{Configured, escaped};
use super::declared::DECISIONS;
use crate::decision::Source;

const DECIDED: [&str; 2] = ["allowed", "rejected"];

/// The series of all domains in force.
#[derive(Default)]
pub(super) struct Decisions(Configured<Box<str>, Series>);

/// Counts for one domain: allowed and rejected, by source.
#[derive(Default)]
pub(super) struct Series([[AtomicU64; 2]; Source::ALL.len()]);

impl Series {
    /// Counts one decision.
    pub(super) fn count(&self, allowed: bool, source: Source) {
        self.0[source as usize][usize::from(!allowed)].fetch_add(1, Ordering::Relaxed);
    }
}

impl Decisions {
    /// Sets the domains, and returns their series in the same order.
    pub(super) fn configure<'a>(
        &self,
        domains: impl IntoIterator<Item = &'a str>,
    ) -> Vec<Arc<Series>> {
        self.0.replace(domains.into_iter().map(Box::from))
    }

    /// Appends all series in Prometheus's text format.
    pub(super) fn render(&self, text: &mut String) {
        text.push_str(&DECISIONS.header());
        self.0.for_each(|domain, series| {
            // Writing to a string does not fail.
            let _ = write_domain(text, &escaped(domain), series);
        });
        text.push('\n');
    }
}

fn write_domain(text: &mut String, domain: &str, series: &Series) -> fmt::Result {
    for source in Source::ALL {
        let name = source.name();
        for (decision, count) in DECIDED.iter().zip(&series.0[source as usize]) {
            let labels = format!("domain=\"{domain}\",decision=\"{decision}\",source=\"{name}\"");
            let count = count.load(Ordering::Relaxed);
            writeln!(text, "{}{{{labels}}} {count}", DECISIONS.name)?;
        }
    }
    Ok(())
}
