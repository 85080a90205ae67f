//! Values that change from request to request: text with patterns in braces.
//!
//! A template is parsed once and drawn for every request. Drawing allocates nothing and costs at
//! most one search: `{zipf:N}` looks up its rank in the cumulated weights.

use std::io::Write;

use fastrand::Rng;

/// Ranks of a zipf pattern, at most. Each takes 8 bytes here.
const ZIPF_MAX: u64 = 10_000_000;

/// The default exponent of a zipf pattern.
const ZIPF_EXPONENT: f64 = 1.1;

/// Nesting of braces, at most. A mix of mixes is unreadable long before.
const DEPTH_MAX: usize = 4;

const FORMS: &str =
    "{uniform:N}, {zipf:N}, {zipf:N:EXPONENT}, {seq}, {seq:N}, {mix:PERCENT:VALUE|VALUE}";

/// A text with patterns.
#[derive(Clone, Debug)]
pub(super) struct Template(Vec<Part>);

#[derive(Clone, Debug)]
enum Part {
    Text(Box<[u8]>),
    Uniform(u64),
    /// The cumulated weights of the ranks; the last is 1.
    Zipf(Box<[f64]>),
    Seq {
        next: u64,
        end: u64,
    },
    /// The first with this probability, else the second.
    Mix(f64, Template, Template),
}

impl Template {
    /// Parses a value.
    ///
    /// # Errors
    /// A pattern is invalid. The message lists the valid ones.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        parse(text, 0)
    }

    /// Appends the next value.
    pub(super) fn draw(&mut self, rng: &mut Rng, out: &mut Vec<u8>) {
        for part in &mut self.0 {
            match part {
                Part::Text(text) => out.extend_from_slice(text),
                Part::Uniform(count) => number(rng.u64(..*count), out),
                Part::Zipf(weights) => number(rank(weights, rng.f64()), out),
                Part::Seq { next, end } => {
                    number(*next, out);
                    *next = if *next + 1 >= *end { 0 } else { *next + 1 };
                }
                Part::Mix(share, first, second) => {
                    let chosen = if rng.f64() < *share { first } else { second };
                    chosen.draw(rng, out);
                }
            }
        }
    }
}

/// Writing to memory does not fail.
fn number(number: u64, out: &mut Vec<u8>) {
    let _ = write!(out, "{number}");
}

/// The number of ranks whose cumulated weight is below `at`, from 0 to 1.
fn rank(weights: &[f64], at: f64) -> u64 {
    let rank = weights.partition_point(|weight| *weight <= at);
    rank.min(weights.len() - 1) as u64
}

fn parse(text: &str, depth: usize) -> Result<Template, String> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(open) = rest.find(['{', '}']) {
        let (before, at) = rest.split_at(open);
        if !before.is_empty() {
            parts.push(Part::Text(before.as_bytes().into()));
        }
        let close = closing(at).ok_or_else(|| format!("{text:?}: a brace has no partner"))?;
        let (pattern, after) = (&at[1..close], &at[close + 1..]);
        let part = part(pattern, depth).map_err(|why| format!("{{{pattern}}} {why}"))?;
        parts.push(part);
        rest = after;
    }
    if !rest.is_empty() {
        parts.push(Part::Text(rest.as_bytes().into()));
    }
    Ok(Template(parts))
}

/// The position of the brace that closes the one at the start of `text`.
fn closing(text: &str) -> Option<usize> {
    let mut open = 0_usize;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'{' => open += 1,
            b'}' => open = open.checked_sub(1)?,
            _ => {}
        }
        if open == 0 {
            return Some(at);
        }
    }
    None
}

fn part(pattern: &str, depth: usize) -> Result<Part, String> {
    let (name, rest) =
        pattern.split_once(':').map_or((pattern, None), |(name, rest)| (name, Some(rest)));
    match (name, rest) {
        ("uniform", Some(count)) => Ok(Part::Uniform(count_of(count, u64::MAX)?)),
        ("zipf", Some(rest)) => {
            let (count, exponent) = match rest.split_once(':') {
                Some((count, exponent)) => (count, exponent_of(exponent)?),
                None => (rest, ZIPF_EXPONENT),
            };
            Ok(zipf(count_of(count, ZIPF_MAX)?, exponent))
        }
        ("seq", None) => Ok(Part::Seq { next: 0, end: u64::MAX }),
        ("seq", Some(count)) => Ok(Part::Seq { next: 0, end: count_of(count, u64::MAX)? }),
        ("mix", Some(rest)) => mix(rest, depth + 1),
        _ => Err(format!("is not one of {FORMS}")),
    }
}

fn count_of(text: &str, max: u64) -> Result<u64, String> {
    let count = text.parse().ok().filter(|count| (1..=max).contains(count));
    count.ok_or_else(|| format!("needs a whole number from 1 to {max}, not {text:?}"))
}

fn exponent_of(text: &str) -> Result<f64, String> {
    let exponent = text.parse().ok().filter(|exponent| (0.0..=10.0).contains(exponent));
    exponent.ok_or_else(|| format!("needs an exponent from 0 to 10, not {text:?}"))
}

fn zipf(count: u64, exponent: f64) -> Part {
    let mut sum = 0.0;
    let mut weights: Box<[f64]> = (1..=count)
        .map(|rank| {
            sum += (rank as f64).powf(-exponent);
            sum
        })
        .collect();
    weights.iter_mut().for_each(|weight| *weight /= sum);
    Part::Zipf(weights)
}

fn mix(rest: &str, depth: usize) -> Result<Part, String> {
    if depth > DEPTH_MAX {
        return Err(format!("is nested deeper than {DEPTH_MAX}"));
    }
    let (percent, values) = rest.split_once(':').ok_or("needs a percentage and two values")?;
    let share = percent.parse().ok().filter(|percent| (0.0..=100.0).contains(percent));
    let share: f64 = share.ok_or_else(|| format!("needs 0 to 100, not {percent:?}"))?;
    let bar = bar(values).ok_or("needs two values with a | between them")?;
    let (first, second) = (parse(&values[..bar], depth)?, parse(&values[bar + 1..], depth)?);
    Ok(Part::Mix(share / 100.0, first, second))
}

/// The position of the first bar outside of braces.
fn bar(values: &str) -> Option<usize> {
    let mut open = 0_usize;
    values.bytes().position(|byte| {
        match byte {
            b'{' => open += 1,
            b'}' => open = open.saturating_sub(1),
            _ => {}
        }
        byte == b'|' && open == 0
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn draws(text: &str, count: usize) -> Vec<String> {
        let mut template = Template::parse(text).unwrap();
        let mut rng = Rng::with_seed(7);
        let mut draw = || {
            let mut out = Vec::new();
            template.draw(&mut rng, &mut out);
            String::from_utf8(out).unwrap()
        };
        (0..count).map(|_| draw()).collect()
    }

    fn counts(text: &str, count: usize) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for value in draws(text, count) {
            *counts.entry(value).or_default() += 1;
        }
        counts
    }

    #[test]
    fn text_is_drawn_as_it_is() {
        assert_eq!(draws("42", 2), ["42", "42"]);
        assert_eq!(draws("", 1), [""]);
    }

    #[test]
    fn a_sequence_counts_and_starts_again() {
        assert_eq!(draws("u-{seq}!", 3), ["u-0!", "u-1!", "u-2!"]);
        assert_eq!(draws("{seq:2}", 5), ["0", "1", "0", "1", "0"]);
    }

    #[test]
    fn uniform_draws_every_number_about_equally_often() {
        let counts = counts("{uniform:10}", 10_000);
        assert_eq!(counts.len(), 10);
        assert!(counts.values().all(|count| (850..1_150).contains(count)), "{counts:?}");
    }

    #[test]
    fn zipf_draws_rank_r_as_often_as_its_power_says() {
        for (text, exponent) in [("{zipf:1000}", 1.1), ("{zipf:1000:1.5}", 1.5_f64)] {
            let counts = counts(text, 100_000);
            let sum: f64 = (1..=1_000).map(|rank| f64::from(rank).powf(-exponent)).sum();
            for rank in [1, 2, 10] {
                let expected = 100_000.0 * f64::from(rank).powf(-exponent) / sum;
                let drawn = counts[&(rank - 1).to_string()] as f64;
                assert!((drawn / expected - 1.0).abs() < 0.1, "{text} {rank}: {drawn} {expected}");
            }
        }
    }

    #[test]
    fn a_mix_draws_both_sides_by_their_shares() {
        let counts = counts("{mix:90:hot-{seq:1}|{mix:50:a|b}}", 10_000);
        assert!((8_800..9_200).contains(&counts["hot-0"]), "{counts:?}");
        assert!(counts["a"] > 400 && counts["b"] > 400 && counts.len() == 3, "{counts:?}");
    }

    #[test]
    fn what_is_no_pattern_is_told_with_those_that_are() {
        for (text, part) in [
            ("{unifrm:3}", "{unifrm:3} is not one of {uniform:N}, "),
            ("{uniform}", "is not one of"),
            ("{uniform:0}", "needs a whole number from 1 to"),
            ("{zipf:10000001}", "needs a whole number from 1 to 10000000, not \"10000001\""),
            ("{zipf:10:x}", "needs an exponent from 0 to 10, not \"x\""),
            ("{mix:101:a|b}", "needs 0 to 100, not \"101\""),
            ("{mix:10:ab}", "needs two values with a | between them"),
            ("{seq", "a brace has no partner"),
            ("seq}", "a brace has no partner"),
        ] {
            let error = Template::parse(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
        let deep = format!("{}a{}", "{mix:1:".repeat(5), "|b}".repeat(5));
        assert!(Template::parse(&deep).unwrap_err().contains("nested deeper than 4"));
    }
}
