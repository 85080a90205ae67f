//! Metrics of a port with TLS.

use metrics::{Counter, Gauge};

use super::declared::{
    TLS_HANDSHAKES_FAILED, TLS_NOT_AFTER, TLS_NOT_BEFORE, TLS_RELOADED_WELL, TLS_RELOADS,
};
use crate::tls::Validity;

/// The handles of one port.
#[derive(Clone)]
pub struct TlsMetrics {
    /// Failed TLS handshakes.
    pub handshakes_failed: Counter,
    read: Counter,
    refused: Counter,
    well: Gauge,
    not_before: Gauge,
    not_after: Gauge,
}

impl TlsMetrics {
    pub(super) fn new(port: &'static str) -> Self {
        let port = ("port", port);
        Self {
            handshakes_failed: TLS_HANDSHAKES_FAILED.series(&[port]),
            read: TLS_RELOADS.series(&[port, ("result", "success")]),
            refused: TLS_RELOADS.series(&[port, ("result", "failure")]),
            well: TLS_RELOADED_WELL.series(&[port]),
            not_before: TLS_NOT_BEFORE.series(&[port]),
            not_after: TLS_NOT_AFTER.series(&[port]),
        }
    }

    /// Records that certificates were loaded and are in force.
    #[expect(clippy::cast_precision_loss, reason = "exact for 285 million years")]
    pub fn read(&self, validity: Option<Validity>) {
        self.read.increment(1);
        self.well.set(1.0);
        self.not_before.set(validity.map_or(f64::NAN, |validity| validity.not_before_s as f64));
        self.not_after.set(validity.map_or(f64::NAN, |validity| validity.not_after_s as f64));
    }

    /// Records that certificates were refused.
    pub fn refused(&self) {
        self.refused.increment(1);
        self.well.set(0.0);
    }
}
