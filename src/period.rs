//! Periods: the lengths of units, and the text form of periods such as `1m30s`.
//!
//! A month has 30 days and a year 365, as in envoyproxy/ratelimit, so that every period is a fixed
//! number of milliseconds.

const SECOND_MS: u64 = 1_000;
const MINUTE_MS: u64 = 60 * SECOND_MS;
const HOUR_MS: u64 = 60 * MINUTE_MS;
const DAY_MS: u64 = 24 * HOUR_MS;

/// The parts of a written period, in the required order.
const STEPS: [(&str, u64); 5] =
    [("d", DAY_MS), ("h", HOUR_MS), ("m", MINUTE_MS), ("s", SECOND_MS), ("ms", 1)];

/// A named period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// 1,000 milliseconds.
    Second,
    /// 60 seconds.
    Minute,
    /// 60 minutes.
    Hour,
    /// 24 hours.
    Day,
    /// 7 days.
    Week,
    /// 30 days.
    Month,
    /// 365 days.
    Year,
}

impl Unit {
    /// All units, shortest first.
    pub const ALL: [Self; 7] =
        [Self::Second, Self::Minute, Self::Hour, Self::Day, Self::Week, Self::Month, Self::Year];

    /// Its length in milliseconds.
    pub const fn ms(self) -> u64 {
        match self {
            Self::Second => SECOND_MS,
            Self::Minute => MINUTE_MS,
            Self::Hour => HOUR_MS,
            Self::Day => DAY_MS,
            Self::Week => 7 * DAY_MS,
            Self::Month => 30 * DAY_MS,
            Self::Year => 365 * DAY_MS,
        }
    }

    /// The name in limits files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Second => "second",
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
            Self::Year => "year",
        }
    }

    /// The unit with this name; upper and lower case are the same.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|unit| unit.name().eq_ignore_ascii_case(name))
    }

    /// The longest unit of which the period is a whole multiple, and the multiplier.
    pub const fn longest_of(period_ms: u64) -> Option<(Self, u64)> {
        // Written out so that each divisor is a constant: every answer to Envoy runs this, and a
        // division by a variable is slow.
        macro_rules! first_whole {
            ($($unit:ident),*) => {
                $({
                    const LENGTH_MS: u64 = Unit::$unit.ms();
                    if period_ms.is_multiple_of(LENGTH_MS) {
                        return Some((Self::$unit, period_ms / LENGTH_MS));
                    }
                })*
            };
        }
        first_whole!(Year, Month, Week, Day, Hour, Minute, Second);
        None
    }
}

/// Parses a period such as `1m30s` into milliseconds; saturates at 64 bits.
///
/// `None` unless the text is whole numbers with d, h, m, s, ms in descending order.
pub fn parse(text: &str) -> Option<u64> {
    let mut rest = text;
    let mut steps = STEPS.iter();
    let mut sum = 0_u64;
    while !rest.is_empty() {
        let (number, behind) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit())?);
        let (name, behind) =
            behind.split_at(behind.find(|c: char| c.is_ascii_digit()).unwrap_or(behind.len()));
        let (_, ms) = steps.find(|(step, _)| *step == name)?;
        sum = sum.saturating_add(whole(number)?.saturating_mul(*ms));
        rest = behind;
    }
    (!text.is_empty()).then_some(sum)
}

fn whole(digits: &str) -> Option<u64> {
    (!digits.is_empty()).then(|| digits.parse().unwrap_or(u64::MAX))
}

/// The period that a text which is none probably means, in milliseconds: a number without a unit means
/// seconds, and units may be written out, as in `60`, `1.5h`, `10 minutes`, `1w` or `minute`.
pub fn guess(text: &str) -> Option<u64> {
    let text = text.trim().to_ascii_lowercase();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, name) = text.split_at(digits);
    let ms = unit_ms(name.trim_start())?;
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let times = |digits: &str| if digits.is_empty() { Some(0) } else { digits.parse::<u64>().ok() };
    let whole = if number.is_empty() { 1 } else { times(whole)? };
    let tenfold = 10_u64.checked_pow(u32::try_from(part.len()).ok()?)?;
    let part = times(part)?.checked_mul(ms)?;
    if part % tenfold != 0 || number.is_empty() && name.is_empty() {
        return None;
    }
    u64::checked_mul(whole, ms)?.checked_add(part / tenfold)
}

/// The length of a unit by one of its usual names; no name means seconds.
fn unit_ms(name: &str) -> Option<u64> {
    let by_name = || {
        let singular = name.strip_suffix('s').unwrap_or(name);
        Unit::from_name(name).or_else(|| Unit::from_name(singular)).map(Unit::ms)
    };
    match name {
        "ms" | "msec" | "millis" | "millisecond" | "milliseconds" => Some(1),
        "" | "s" | "sec" | "secs" => Some(SECOND_MS),
        "m" | "min" | "mins" => Some(MINUTE_MS),
        "h" | "hr" | "hrs" => Some(HOUR_MS),
        "d" => Some(DAY_MS),
        "w" => Some(Unit::Week.ms()),
        _ => by_name(),
    }
}

/// Formats a period in one unit where that is possible, such as `60s`; else as [`format()`] does.
pub fn format_seconds(period_ms: u64) -> String {
    match period_ms / SECOND_MS {
        seconds @ 1..=120 if period_ms.is_multiple_of(SECOND_MS) => format!("{seconds}s"),
        _ => format(period_ms),
    }
}

/// Formats a period so that [`parse`] reads it back, such as `1m30s`. The largest part is the day.
pub fn format(period_ms: u64) -> String {
    let mut text = String::new();
    let mut rest = period_ms;
    for (name, ms) in STEPS {
        if rest >= ms {
            text.push_str(&format!("{}{name}", rest / ms));
            rest %= ms;
        }
    }
    if text.is_empty() { "0ms".into() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_add_up_their_steps() {
        for (text, ms) in [
            ("250ms", 250),
            ("90s", 90_000),
            ("1m30s", 90_000),
            ("12h", 43_200_000),
            ("7d", 604_800_000),
            ("1d2h3m4s5ms", 93_784_005),
            ("0s", 0),
            ("99999999999999999999d", u64::MAX),
        ] {
            assert_eq!(parse(text), Some(ms), "{text}");
        }
    }

    #[test]
    fn other_texts_are_no_periods() {
        for text in
            ["", "5", "s", "1.5s", "-1s", "1s1m", "1s1s", "1 s", "1S", "1w", "5s ", "١s", "1m30"]
        {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn what_is_written_is_read_as_it_was() {
        for ms in [0, 1, 250, 1_000, 90_000, 93_784_005, 36_500 * DAY_MS, u64::MAX] {
            assert_eq!(parse(&format(ms)), Some(ms), "{}", format(ms));
        }
    }

    #[test]
    fn what_a_wrong_period_means_is_guessed() {
        for (text, meant) in [
            ("60", "60s"),
            ("3600", "1h"),
            ("1.5h", "1h30m"),
            ("10 minutes", "10m"),
            ("0.25s", "250ms"),
            ("1w", "7d"),
            ("minute", "60s"),
            ("5sec", "5s"),
            ("1S", "1s"),
        ] {
            assert_eq!(guess(text).map(format_seconds).as_deref(), Some(meant), "{text}");
        }
        for text in ["", "soon", "1.0001ms", "-5", "..", "5 5s", "99999999999999999999", "1m30"] {
            assert_eq!(guess(text), None, "{text}");
        }
    }

    #[test]
    fn units_are_read_in_any_case() {
        assert_eq!(Unit::from_name("MINUTE"), Some(Unit::Minute));
        assert_eq!(Unit::from_name("Year"), Some(Unit::Year));
        assert_eq!(Unit::from_name("minutes"), None);
    }

    #[test]
    fn a_period_is_told_in_the_longest_unit_that_divides_it() {
        for unit in Unit::ALL {
            assert_eq!(Unit::longest_of(unit.ms()), Some((unit, 1)));
        }
        assert_eq!(Unit::longest_of(90_000), Some((Unit::Second, 90)));
        assert_eq!(Unit::longest_of(36_500 * DAY_MS), Some((Unit::Year, 100)));
        assert_eq!(Unit::longest_of(1_500), None);
    }
}
