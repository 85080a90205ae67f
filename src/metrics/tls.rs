//! Metrics of a port with TLS.

use metrics::{Counter, Gauge, counter, describe_counter, describe_gauge, gauge};

use crate::tls::Validity;

const HANDSHAKES_FAILED: &str = "rate_limit_tls_handshakes_failed_total";
const RELOADS: &str = "rate_limit_tls_certificate_reload_total";
const NOT_BEFORE: &str = "rate_limit_tls_certificate_not_before_seconds";
const NOT_AFTER: &str = "rate_limit_tls_certificate_not_after_seconds";
const RELOADED_WELL: &str = "rate_limit_tls_certificate_last_reload_successful";

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
        Self {
            handshakes_failed: counter!(HANDSHAKES_FAILED, "port" => port),
            read: counter!(RELOADS, "port" => port, "result" => "success"),
            refused: counter!(RELOADS, "port" => port, "result" => "failure"),
            well: gauge!(RELOADED_WELL, "port" => port),
            not_before: gauge!(NOT_BEFORE, "port" => port),
            not_after: gauge!(NOT_AFTER, "port" => port),
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

pub(super) fn describe() {
    describe_counter!(HANDSHAKES_FAILED, "Connections with which there was no agreement on TLS");
    describe_counter!(RELOADS, "Readings of a port's certificates, by what came of them");
    describe_gauge!(
        RELOADED_WELL,
        "1 while a port's newest certificates are in force, 0 while refused"
    );
    let of_which = "of a port's certificates, of that which ends first; since the epoch";
    describe_gauge!(NOT_BEFORE, format!("The first valid second {of_which}"));
    describe_gauge!(NOT_AFTER, format!("The last valid second {of_which}"));
}
