//! The send times of an open loop.

use std::io;
use std::time::Duration;

use fastrand::Rng;

/// The moments of a Poisson process, as durations since the start.
#[derive(Debug)]
pub(super) struct Arrivals {
    rng: Rng,
    mean_s: f64,
    next_s: f64,
}

impl Arrivals {
    /// A process with `rate` moments per second on average.
    pub(super) fn new(rate: u32, seed: u64) -> Self {
        Self { rng: Rng::with_seed(seed), mean_s: 1.0 / f64::from(rate), next_s: 0.0 }
    }

    /// The next moment.
    pub(super) fn next(&mut self) -> Duration {
        // 1 minus a number below 1, so that the logarithm is finite.
        self.next_s -= (1.0 - self.rng.f64()).ln() * self.mean_s;
        Duration::from_secs_f64(self.next_s)
    }
}

/// Waits with microsecond precision. Tokio's own timer ticks once per millisecond and would send
/// the requests of each millisecond in one burst.
#[cfg(target_os = "linux")]
pub(super) struct Alarm(tokio::io::unix::AsyncFd<std::os::fd::OwnedFd>);

#[cfg(target_os = "linux")]
impl Alarm {
    // The replacement is unsafe because the file could be closed while it is registered. This one
    // is owned here and never replaced.
    #[allow(deprecated)]
    pub(super) fn new() -> io::Result<Self> {
        use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        Ok(Self(tokio::io::unix::AsyncFd::new(timer)?))
    }

    /// Waits for `time`, which must be above 0.
    pub(super) async fn wait(&self, time: Duration) -> io::Result<()> {
        use rustix::time::{Itimerspec, TimerfdTimerFlags, Timespec, timerfd_settime};
        let it_value = Timespec::try_from(time).map_err(io::Error::other)?;
        let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
        let once = Itimerspec { it_interval, it_value };
        timerfd_settime(self.0.get_ref(), TimerfdTimerFlags::empty(), &once)?;
        // The timer stays ready until it is set again, by the next wait.
        self.0.readable().await?.clear_ready();
        Ok(())
    }
}

/// Where the kernel has no such timer: precise to a millisecond.
#[cfg(not(target_os = "linux"))]
pub(super) struct Alarm;

#[cfg(not(target_os = "linux"))]
impl Alarm {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self)
    }

    /// Waits for `time`.
    pub(super) async fn wait(&self, time: Duration) -> io::Result<()> {
        let _ = tokio::time::timeout(time, std::future::pending::<()>()).await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Stopwatch;

    #[test]
    fn arrivals_keep_their_rate_and_come_at_random() {
        let mut arrivals = Arrivals::new(1_000, 3);
        let moments: Vec<_> = (0..10_000).map(|_| arrivals.next()).collect();
        let last_s = moments.last().unwrap().as_secs_f64();
        assert!((9.7..10.3).contains(&last_s), "{last_s}");
        let gaps = moments.windows(2).map(|pair| pair[1] - pair[0]);
        // In a Poisson process, 1/e of the gaps are longer than the mean.
        let long = gaps.filter(|gap| *gap > Duration::from_millis(1)).count();
        assert!((3_500..3_860).contains(&long), "{long}");
    }

    #[test]
    fn an_alarm_waits_again_and_again() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let alarm = Alarm::new().unwrap();
            let watch = Stopwatch::start();
            for _ in 0..20 {
                alarm.wait(Duration::from_micros(500)).await.unwrap();
            }
            assert!(watch.elapsed() >= Duration::from_millis(10), "{:?}", watch.elapsed());
        });
    }
}
