//! Periods and units as limits files spell them.

/// The reference's units and their lengths in milliseconds.
pub(super) const UNITS: [(&str, u64); 7] = [
    ("second", 1_000),
    ("minute", 60_000),
    ("hour", 3_600_000),
    ("day", 86_400_000),
    ("week", 7 * 86_400_000),
    ("month", 30 * 86_400_000),
    ("year", 365 * 86_400_000),
];

/// The steps of a period, in the order in which they must stand.
const STEPS: [(&str, u64); 5] =
    [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// The length of a unit in milliseconds; letters may be large or small.
pub(super) fn unit_ms(name: &str) -> Option<u64> {
    UNITS.iter().find(|(unit, _)| unit.eq_ignore_ascii_case(name)).map(|&(_, ms)| ms)
}

/// The milliseconds of a period such as `1m30s`; one too long for 64 bits is the longest.
///
/// `None` where the text is anything but whole numbers with d, h, m, s, ms in descending order.
pub(super) fn period_ms(text: &str) -> Option<u64> {
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
            assert_eq!(period_ms(text), Some(ms), "{text}");
        }
    }

    #[test]
    fn other_texts_are_no_periods() {
        for text in
            ["", "5", "s", "1.5s", "-1s", "1s1m", "1s1s", "1 s", "1S", "1w", "5s ", "١s", "1m30"]
        {
            assert_eq!(period_ms(text), None, "{text}");
        }
    }

    #[test]
    fn units_are_read_in_any_case() {
        assert_eq!(unit_ms("MINUTE"), Some(60_000));
        assert_eq!(unit_ms("Year"), Some(31_536_000_000));
        assert_eq!(unit_ms("minutes"), None);
    }
}
