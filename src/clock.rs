//! The clocks of the machine, and a clock that tests set. No other file reads a clock.
//!
//! Wall-clock time ([`Clock`]) decides and is stored in Redis, where several replicas compare it.
//! Monotonic time ([`uptime_us`], [`Stopwatch`]) measures durations inside the process, because an
//! operator or NTP can step the wall clock. A request reads the wall clock once and passes the
//! value on: a second read within one decision could give a different window.

use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant, SystemTime};

/// The latest moment that a stored state can hold, in ms since the epoch: 6 bytes, minus the
/// longest period.
pub const MOMENT_MAX_MS: u64 = 1 << 47;

/// A source of milliseconds since the Unix epoch.
pub trait Clock: Debug + Send + Sync {
    /// The current time, at most [`MOMENT_MAX_MS`].
    fn now_ms(&self) -> u64;
}

/// The machine's wall clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[allow(clippy::disallowed_methods)] // this is the clock
    fn now_ms(&self) -> u64 {
        let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let ms = since_epoch.unwrap_or_default().as_millis();
        u64::try_from(ms).unwrap_or(MOMENT_MAX_MS).min(MOMENT_MAX_MS)
    }
}

/// A clock for tests. It shows the time that it was last set to.
#[derive(Clone, Debug, Default)]
pub struct FakeClock(Arc<AtomicU64>);

impl FakeClock {
    /// A clock set to `now_ms`.
    pub fn at(now_ms: u64) -> Self {
        Self(Arc::new(AtomicU64::new(now_ms)))
    }

    /// Sets the clock, forward or back.
    pub fn set(&self, now_ms: u64) {
        self.0.store(now_ms, Ordering::Relaxed);
    }
}

impl Clock for FakeClock {
    fn now_ms(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Formats milliseconds since the epoch as RFC 3339.
#[allow(clippy::cast_possible_wrap)] // moments fit 47 bits
pub fn moment(at_ms: u64) -> String {
    let nanos = i32::try_from(at_ms % 1_000 * 1_000_000).unwrap_or(0);
    prost_types::Timestamp { seconds: (at_ms / 1_000) as i64, nanos }.to_string()
}

/// Microseconds of a monotonic clock, which steps of the wall clock do not affect.
#[allow(clippy::disallowed_methods)] // this is the clock
pub fn uptime_us() -> u64 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    u64::try_from(START.elapsed().as_micros()).unwrap_or(u64::MAX)
}

/// The wall clock, for trace spans, which are compared with those of other machines.
#[allow(clippy::disallowed_methods)] // this is the clock
pub fn wall_time() -> SystemTime {
    SystemTime::now()
}

/// Measures durations, for metrics.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// Starts measuring.
    #[allow(clippy::disallowed_methods)] // this is the clock
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Time since the start.
    pub fn elapsed(self) -> Duration {
        self.0.elapsed()
    }
}
