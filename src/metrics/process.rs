//! What the operating system says of this process, under the names that all exporters use. On Linux
//! only.

#[cfg(target_os = "linux")]
pub(super) fn describe() {
    metrics_process::Collector::default().describe();
}

/// Asks for the current numbers: to be called before they are told.
#[cfg(target_os = "linux")]
pub(super) fn collect() {
    metrics_process::Collector::default().collect();
}

#[cfg(not(target_os = "linux"))]
pub(super) const fn describe() {}

#[cfg(not(target_os = "linux"))]
pub(super) const fn collect() {}
