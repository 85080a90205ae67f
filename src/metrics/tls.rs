//! Metrics of a port with TLS.

use metrics::{Counter, Gauge, counter, describe_counter, describe_gauge, gauge};

const HANDSHAKES_FAILED: &str = "rate_limit_tls_handshakes_failed_total";
const RELOADS: &str = "rate_limit_tls_certificate_reload_total";
const RELOADED_WELL: &str = "rate_limit_tls_certificate_last_reload_successful";

/// The handles of one port.
#[derive(Clone)]
pub struct TlsMetrics {
    /// Connections with which there was no agreement.
    pub handshakes_failed: Counter,
    read: Counter,
    refused: Counter,
    well: Gauge,
}

impl TlsMetrics {
    pub(super) fn new(port: &'static str) -> Self {
        Self {
            handshakes_failed: counter!(HANDSHAKES_FAILED, "port" => port),
            read: counter!(RELOADS, "port" => port, "result" => "success"),
            refused: counter!(RELOADS, "port" => port, "result" => "failure"),
            well: gauge!(RELOADED_WELL, "port" => port),
        }
    }

    /// Counts a reading of the certificates.
    pub fn read(&self, well: bool) {
        if well { &self.read } else { &self.refused }.increment(1);
        self.well.set(f64::from(u8::from(well)));
    }
}

pub(super) fn describe() {
    describe_counter!(HANDSHAKES_FAILED, "Connections with which there was no agreement on TLS");
    describe_counter!(RELOADS, "Readings of a port's certificates, by what came of them");
    describe_gauge!(
        RELOADED_WELL,
        "1 while a port's newest certificates are in force, 0 while refused"
    );
}
