//! `counts.txt`: the recorded instructions of each step, and the comparison with today's.

use std::fmt;

/// A step that takes more instructions than recorded by over this share is a regression.
pub(crate) const TOLERANCE_PERCENT: u64 = 3;

/// The instructions per call of each step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Counts {
    /// The compiler's version and the machine that it compiles for.
    pub(crate) toolchain: String,
    pub(crate) steps: Vec<(String, u64)>,
}

/// Each step's count beside the recorded one.
pub(crate) struct Comparison {
    rows: Vec<Row>,
    /// Set if the recorded counts are from another toolchain.
    other_toolchain: Option<String>,
}

struct Row {
    name: String,
    before: Option<u64>,
    now: Option<u64>,
}

const TOOLCHAIN: &str = "toolchain ";

impl Counts {
    /// Reads what [`fmt::Display`] writes.
    ///
    /// # Errors
    /// The line that has neither a name and a count nor the toolchain.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut counts = Self { toolchain: String::new(), steps: Vec::new() };
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        for line in lines {
            if let Some(toolchain) = line.strip_prefix(TOOLCHAIN) {
                toolchain.clone_into(&mut counts.toolchain);
                continue;
            }
            let step = line.rsplit_once(' ').map(|(name, count)| (name.trim_end(), count.parse()));
            let Some((name, Ok(count))) = step else { return Err(format!("not a count: {line}")) };
            counts.steps.push((name.to_owned(), count));
        }
        Ok(counts)
    }

    /// The machine that the compiler compiles for.
    pub(crate) fn host(&self) -> &str {
        self.toolchain.split_once(' ').map_or("", |(_, host)| host)
    }

    pub(crate) fn compared_with(&self, before: &Self) -> Comparison {
        let count = |counts: &Self, name: &str| {
            counts.steps.iter().find(|(own, _)| own == name).map(|(_, count)| *count)
        };
        let row = |name: &String| Row {
            name: name.clone(),
            before: count(before, name),
            now: count(self, name),
        };
        let names = self.steps.iter().map(|(name, _)| name);
        let gone = before.steps.iter().map(|(name, _)| name);
        let gone = gone.filter(|name| count(self, name).is_none());
        let other_toolchain =
            (self.toolchain != before.toolchain).then(|| before.toolchain.clone());
        Comparison { rows: names.chain(gone).map(row).collect(), other_toolchain }
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "# Instructions per call of each step of a request: `make counts` compares with"
        )?;
        writeln!(f, "# these, `make counts-write` records them.")?;
        writeln!(f, "{TOOLCHAIN}{}", self.toolchain)?;
        self.steps.iter().try_for_each(|(name, count)| writeln!(f, "{name:<32} {count:>8}"))
    }
}

impl Comparison {
    /// Whether a step takes too many instructions, or is in only one of the two.
    pub(crate) fn has_regression(&self) -> bool {
        self.rows.iter().any(|row| row.verdict().fails())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Same,
    Fewer,
    More,
    New,
    Gone,
}

impl Verdict {
    const fn fails(self) -> bool {
        !matches!(self, Self::Same | Self::Fewer)
    }

    const fn text(self) -> &'static str {
        match self {
            Self::Same => "",
            Self::Fewer => "  fewer: `make counts-write` keeps it so",
            Self::More => "  MORE",
            Self::New => "  NOT RECORDED",
            Self::Gone => "  RECORDED, BUT NOT COUNTED",
        }
    }
}

impl Row {
    const fn verdict(&self) -> Verdict {
        let (before, now) = match (self.before, self.now) {
            (Some(before), Some(now)) => (before * 100, now * 100),
            (None, _) => return Verdict::New,
            (Some(_), None) => return Verdict::Gone,
        };
        let tolerance = before / 100 * TOLERANCE_PERCENT;
        if now > before + tolerance {
            Verdict::More
        } else if now + tolerance < before {
            Verdict::Fewer
        } else {
            Verdict::Same
        }
    }

    /// The change of instructions, in hundredths of a per cent.
    fn change(&self) -> Option<i64> {
        let (before, now) = (i64::try_from(self.before?).ok()?, i64::try_from(self.now?).ok()?);
        ((now - before) * 10_000).checked_div(before)
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(toolchain) = &self.other_toolchain {
            writeln!(
                f,
                "counts.txt is of another toolchain, {toolchain}: counts may differ for it"
            )?;
        }
        writeln!(
            f,
            "{:<32} {:>9} {:>9} {:>8}",
            "instructions per call", "recorded", "now", "change"
        )?;
        let number = |count: Option<u64>| count.map_or("-".to_owned(), |count| count.to_string());
        for row in &self.rows {
            let change = row.change().map_or("-".to_owned(), percent);
            let (before, now) = (number(row.before), number(row.now));
            writeln!(
                f,
                "{:<32} {before:>9} {now:>9} {change:>8}{}",
                row.name,
                row.verdict().text()
            )?;
        }
        Ok(())
    }
}

fn percent(hundredths: i64) -> String {
    let sign = if hundredths < 0 { '-' } else { '+' };
    let size = hundredths.unsigned_abs();
    format!("{sign}{}.{:02} %", size / 100, size % 100)
}

#[cfg(test)]
#[allow(dead_code, reason = "run by tests/it/files.rs: the bench has no test harness")]
mod tests {
    use super::*;

    fn counts(steps: &[(&str, u64)]) -> Counts {
        let steps = steps.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
        Counts { toolchain: "1.95.0 x86_64-unknown-linux-gnu".to_owned(), steps }
    }

    fn fails(before: &[(&str, u64)], now: &[(&str, u64)]) -> bool {
        counts(now).compared_with(&counts(before)).has_regression()
    }

    #[test]
    fn over_3_percent_more_instructions_fail_and_exactly_3_percent_do_not() {
        assert!(!fails(&[("parse", 1_000)], &[("parse", 1_000)]));
        assert!(!fails(&[("parse", 1_000)], &[("parse", 1_030)]));
        assert!(fails(&[("parse", 1_000)], &[("parse", 1_031)]));
        assert!(fails(&[("parse", 10)], &[("parse", 11)]));
    }

    #[test]
    fn fewer_instructions_are_reported_and_do_not_fail() {
        let comparison = counts(&[("parse", 969)]).compared_with(&counts(&[("parse", 1_000)]));
        assert!(!comparison.has_regression());
        let text = comparison.to_string();
        assert!(text.contains("-3.10 %  fewer"), "{text}");
        let within = counts(&[("parse", 970)]).compared_with(&counts(&[("parse", 1_000)]));
        assert!(!within.to_string().contains("fewer"), "{within}");
    }

    #[test]
    fn a_step_in_only_one_of_the_two_fails() {
        assert!(fails(&[("parse", 10)], &[("parse", 10), ("plan", 10)]));
        assert!(fails(&[("parse", 10), ("plan", 10)], &[("parse", 10)]));
    }

    #[test]
    fn written_counts_are_parsed_again() {
        let counts = counts(&[("parse Envoy's message", 1_000), ("plan", 7)]);
        assert_eq!(Counts::parse(&counts.to_string()), Ok(counts.clone()));
        assert_eq!(counts.host(), "x86_64-unknown-linux-gnu");
        assert!(Counts::parse("plan\n").is_err() && Counts::parse("plan x\n").is_err());
    }

    #[test]
    fn counts_of_another_toolchain_are_announced() {
        let now = Counts { toolchain: "1.96.0 x86_64-unknown-linux-gnu".to_owned(), ..counts(&[]) };
        let text = now.compared_with(&counts(&[])).to_string();
        assert!(text.contains("another toolchain, 1.95.0"), "{text}");
    }
}
