//! Metrics of the process from the operating system, under the usual names. Linux only.

#[cfg(target_os = "linux")]
pub(super) fn describe() {
    metrics_process::Collector::default().describe();
}

/// Reads the current numbers; to be called before rendering.
#[cfg(target_os = "linux")]
pub(super) fn collect() {
    metrics_process::Collector::default().collect();
}

#[cfg(not(target_os = "linux"))]
pub(super) const fn describe() {}

#[cfg(not(target_os = "linux"))]
pub(super) const fn collect() {}
