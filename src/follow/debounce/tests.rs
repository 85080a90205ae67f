//! Changing files, on a clock that these tests set.

use super::*;

const STILL: Duration = ms(100);

/// A change of one file, and its time.
#[derive(Clone, Copy)]
enum Event {
    /// Another file replaces it.
    Replace,
    /// A program opens and writes it.
    Write,
    /// The program closes it.
    Close,
}
use Event::{Close, Replace, Write};

/// A read.
#[derive(Debug, PartialEq, Eq)]
struct Reading {
    at: Duration,
    /// The number of events before it.
    events: usize,
}

/// The parameters of a run, besides its events.
struct Run {
    /// Without inotify, open files are not known.
    has_inotify: bool,
    poll_time: Duration,
    /// The duration of a read, if it fails.
    failing: Option<Duration>,
    end: Duration,
}

const RUN: Run = Run { has_inotify: true, poll_time: ms(1), failing: None, end: ms(30_000) };

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

impl Run {
    /// The reads after the first one, which comes before `events`.
    fn readings(&self, events: &[(Duration, Event)]) -> Vec<Reading> {
        let mut debounce = Debounce::new(STILL);
        let mut now = Duration::ZERO;
        let mut readings = vec![];
        while now < self.end {
            let step = debounce.observe(now, self.observation_at(now, events));
            now += self.poll_time;
            let wait = match step {
                Step::Wait(wait) => wait,
                Step::Read => {
                    let events_before = happened(now, events);
                    now += self.failing.unwrap_or_default();
                    let after = self.observation_at(now, events);
                    if debounce.finish_reading(now, &after, self.failing) {
                        readings.push(Reading { at: now, events: events_before });
                    }
                    SETTLE
                }
            };
            now += wait;
        }
        assert_eq!(readings.remove(0).events, 0, "no events before the first reading");
        readings
    }

    fn observation_at(&self, now: Duration, events: &[(Duration, Event)]) -> Observation {
        let (mut inode, mut writes, mut is_open) = (1, 0, false);
        for (_, event) in &events[..happened(now, events)] {
            match event {
                Replace => (inode, is_open) = (inode + 1, false),
                Write => (writes, is_open) = (writes + 1, true),
                Close => is_open = false,
            }
        }
        let is_open = is_open && self.has_inotify;
        Observation { state: FilesState::of_file(inode, writes), is_open, took: self.poll_time }
    }
}

fn happened(now: Duration, events: &[(Duration, Event)]) -> usize {
    events.iter().take_while(|(at, _)| *at <= now).count()
}

/// Writes every `pause`, from the first second, for `time`.
fn repeated(event: Event, pause: Duration, time: Duration) -> Vec<(Duration, Event)> {
    let times = time.as_millis() / pause.as_millis();
    (0..u32::try_from(times).unwrap()).map(|n| (ms(1_000) + pause * n, event)).collect()
}

#[test]
fn unchanged_files_are_read_once() {
    assert_eq!(RUN.readings(&[]), []);
}

#[test]
fn a_change_is_read_once_within_a_second_for_any_time_and_poll_duration() {
    for poll_time in [ms(0), ms(1), ms(3), ms(30)] {
        for at in (5_000..6_000).step_by(7).map(ms) {
            for events in [&[(at, Replace)][..], &[(at, Write), (at + ms(1), Close)]] {
                let readings = Run { poll_time, ..RUN }.readings(events);
                let [reading] = &readings[..] else { panic!("{readings:?}") };
                assert_eq!(reading.events, events.len());
                let took = reading.at - at;
                assert!(took >= STILL && took < ms(900), "{took:?}, a poll takes {poll_time:?}");
            }
        }
    }
}

#[test]
fn polls_use_half_a_percent_of_a_core_or_come_every_600_ms() {
    for (poll_time, wait) in
        [(0, 250), (1, 250), (2, 400), (3, 600), (1_000, 600)].map(|(a, b)| (ms(a), ms(b)))
    {
        let mut debounce = Debounce::new(STILL);
        let seen =
            || Observation { state: FilesState::of_file(1, 0), is_open: false, took: poll_time };
        assert_eq!(debounce.observe(ms(0), seen()), Step::Wait(SETTLE));
        assert_eq!(debounce.observe(STILL, seen()), Step::Read);
        assert!(debounce.finish_reading(STILL, &seen(), None));
        assert_eq!(
            debounce.observe(ms(300), seen()),
            Step::Wait(wait),
            "a poll takes {poll_time:?}"
        );
    }
}

#[test]
fn a_file_open_for_writing_is_not_read_before_it_is_closed() {
    let readings = RUN.readings(&[(ms(1_000), Write), (ms(8_000), Close)]);
    let [reading] = &readings[..] else { panic!("{readings:?}") };
    assert_eq!(reading.events, 2);
    assert!(reading.at < ms(8_200), "{reading:?}");
}

#[test]
fn a_file_that_is_never_closed_is_read_after_ten_seconds() {
    let readings = RUN.readings(&[(ms(1_000), Write)]);
    let [reading] = &readings[..] else { panic!("{readings:?}") };
    assert!(reading.at >= ms(11_000) && reading.at < ms(11_600), "{reading:?}");
}

#[test]
fn without_inotify_a_file_is_not_read_while_it_is_written() {
    let events = repeated(Write, ms(90), ms(5_000));
    let readings = Run { has_inotify: false, ..RUN }.readings(&events);
    let [reading] = &readings[..] else { panic!("{readings:?}") };
    assert_eq!(reading.events, events.len());
}

#[test]
fn files_replaced_without_a_pause_are_read_every_second() {
    let events = repeated(Replace, ms(10), ms(10_000));
    let readings = RUN.readings(&events);
    let mut last = ms(1_000);
    for reading in &readings {
        assert!(reading.at - last < ms(1_000), "{readings:?}");
        last = reading.at;
    }
    assert_eq!(readings.last().map(|reading| reading.events), Some(events.len()));
}

#[test]
fn files_that_change_during_a_read_are_read_again() {
    let seen = |writes, is_open| Observation {
        state: FilesState::of_file(1, writes),
        is_open,
        took: Duration::ZERO,
    };
    for (changed, now_open) in [(seen(1, false), false), (seen(0, true), true)] {
        let mut debounce = Debounce::new(STILL);
        debounce.observe(ms(0), seen(0, false));
        assert_eq!(debounce.observe(ms(100), seen(0, false)), Step::Read);
        assert!(!debounce.finish_reading(ms(101), &changed, None));
        let last = changed.state;
        let next = |is_open| Observation { state: last.clone(), is_open, took: Duration::ZERO };
        debounce.observe(ms(200), next(now_open));
        assert_eq!(debounce.observe(ms(300), next(false)), Step::Read);
    }
}

#[test]
fn a_requested_read_does_not_replace_the_one_that_is_due() {
    let seen =
        |writes| Observation { state: FilesState::of_file(1, writes), ..Observation::default() };
    let mut debounce = Debounce::new(STILL);
    debounce.observe(ms(0), seen(0));
    assert_eq!(debounce.observe(ms(50), seen(1)), Step::Wait(SETTLE));
    assert!(debounce.finish_reading(ms(51), &seen(1), None), "asked for");
    assert_eq!(debounce.observe(ms(150), seen(1)), Step::Read);
}

#[test]
fn slow_failed_reads_are_retried_less_often() {
    let tries = |took| Run { failing: Some(took), ..RUN }.readings(&[]).len();
    assert!((18..=28).contains(&tries(ms(1))), "{} in 30 s", tries(ms(1)));
    assert!((6..=8).contains(&tries(ms(20))), "{}, every 4 s", tries(ms(20)));
    assert!((2..=3).contains(&tries(ms(1_000))), "{}, every 10 s", tries(ms(1_000)));
}
