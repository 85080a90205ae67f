//! The text of a limit, and its fields by name, for everything that shows limits.

use std::fmt;

use super::{Limit, LimitSpec};
use crate::period;

/// Hits per period, shown as `100 per 1m30s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Hits per period.
    pub hits: u64,
    /// The period in milliseconds.
    pub period_ms: u64,
}

/// The value of a limit's field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldValue {
    /// A number.
    Number(u64),
    /// `true` or `false`.
    Flag(bool),
    /// A text.
    Text(String),
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} per {}", self.hits, period::format(self.period_ms))
    }
}

/// Shown as `100 per 1m30s token_bucket burst=20`.
impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.rate(), self.algorithm_text())
    }
}

impl Limit {
    /// The hits and the period.
    pub const fn rate(&self) -> Rate {
        Rate { hits: self.hits, period_ms: self.period_ms }
    }

    /// The algorithm with its own fields, given or by default: `token_bucket burst=20`.
    pub fn algorithm_text(&self) -> String {
        let mut text = self.algorithm.name().to_owned();
        for (name, value) in own_fields(&self.spec()) {
            match value {
                FieldValue::Number(number) => text.push_str(&format!(" {name}={number}")),
                FieldValue::Text(value) => text.push_str(&format!(" {name}={value}")),
                FieldValue::Flag(true) => text.push_str(&format!(" {name}")),
                FieldValue::Flag(false) => {}
            }
        }
        text
    }

    /// All fields by their names in limits files, with the defaults of the algorithm.
    pub fn fields(&self) -> impl Iterator<Item = (&'static str, FieldValue)> {
        let common = [
            ("limit", FieldValue::Number(self.hits)),
            ("period", FieldValue::Text(period::format(self.period_ms))),
            ("algorithm", FieldValue::Text(self.algorithm.name().to_owned())),
            ("overdraft", FieldValue::Flag(self.overdraft())),
        ];
        common.into_iter().chain(own_fields(&self.spec()))
    }
}

/// The optional fields that are set, in the order of [`LimitSpec::OPTIONAL_FIELDS`].
fn own_fields(spec: &LimitSpec) -> impl Iterator<Item = (&'static str, FieldValue)> + use<> {
    let values = [
        spec.burst.map(FieldValue::Number),
        spec.sub_windows.map(|count| FieldValue::Number(count.into())),
        spec.weighted.map(FieldValue::Flag),
    ];
    let named = LimitSpec::OPTIONAL_FIELDS.into_iter().zip(values);
    named.filter_map(|(name, value)| value.map(|value| (name, value)))
}

#[cfg(test)]
mod tests {
    use crate::limit::{Algorithm, Limit, LimitSpec};

    #[test]
    fn a_limit_is_shown_with_the_fields_of_its_algorithm() {
        let shown = |algorithm, weighted| {
            let spec = LimitSpec {
                algorithm,
                hits: 100,
                period_ms: 90_000,
                weighted,
                ..LimitSpec::default()
            };
            Limit::new(&spec).unwrap().to_string()
        };
        assert_eq!(shown(Algorithm::FixedWindow, None), "100 per 1m30s fixed_window");
        assert_eq!(shown(Algorithm::Gcra, None), "100 per 1m30s gcra burst=1");
        let counter = "100 per 1m30s sliding_window_counter sub_windows=10";
        assert_eq!(shown(Algorithm::SlidingWindowCounter, Some(false)), counter);
        let weighted = shown(Algorithm::SlidingWindowCounter, Some(true));
        assert_eq!(weighted, format!("{counter} weighted"));
    }
}
