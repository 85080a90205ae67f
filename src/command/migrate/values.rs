//! The values of all variables, parsed once according to the table.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use super::table::{self, Kind, Variable};
use super::vars::{Source, Var, Vars};

/// A parsed value.
#[derive(Clone, PartialEq)]
pub enum Value {
    /// Text; also used for secrets and ratios.
    Text(String),
    /// On or off.
    Switch(bool),
    /// An address.
    Host(IpAddr),
    /// A port.
    Port(u16),
    /// A duration.
    Duration(Duration),
    /// The word, spelled as in the table.
    Choice(&'static str),
    /// A whole number.
    Count(u64),
}

/// All known variables that are not empty.
pub struct Values<'v> {
    by_name: BTreeMap<&'static str, Value>,
    sources: BTreeMap<&'static str, &'v Source>,
}

/// All mistakes, each with its line in the file, or 0.
#[derive(Default)]
pub struct Mistakes(Vec<(usize, String)>);

impl<'v> Values<'v> {
    /// Parses all known variables. Empty ones count as not set.
    pub fn of(vars: &'v Vars, mistakes: &mut Mistakes) -> Self {
        let mut values = Self { by_name: BTreeMap::new(), sources: BTreeMap::new() };
        for (name, var) in vars.iter().filter(|(_, var)| !var.value.trim().is_empty()) {
            let Some(variable) = table::find(name) else { continue };
            values.sources.insert(variable.name, &var.source);
            match variable.kind.read(var.value.trim()) {
                Ok(value) => drop(values.by_name.insert(variable.name, value)),
                Err(allowed) => mistakes.add(&var.source, &refused(variable, var, &allowed)),
            }
        }
        values
    }

    /// Whether a variable is set.
    pub fn has(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// Whether a switch is on.
    pub fn is_on(&self, name: &str) -> bool {
        self.by_name.get(name) == Some(&Value::Switch(true))
    }

    /// Whether a switch is set and off.
    pub fn is_off(&self, name: &str) -> bool {
        self.by_name.get(name) == Some(&Value::Switch(false))
    }

    /// A text, a secret or a word.
    pub fn text(&self, name: &str) -> Option<&str> {
        let value = self.by_name.get(name)?;
        if let Value::Text(text) = value {
            return Some(text);
        }
        if let Value::Choice(word) = value { Some(word) } else { None }
    }

    /// An address to listen on; by default all addresses, as in envoyproxy/ratelimit.
    pub fn host(&self, name: &str) -> IpAddr {
        match self.by_name.get(name) {
            Some(Value::Host(host)) => *host,
            _ => Ipv4Addr::UNSPECIFIED.into(),
        }
    }

    /// A port.
    pub fn port(&self, name: &str, default: u16) -> u16 {
        match self.by_name.get(name) {
            Some(Value::Port(port)) => *port,
            _ => default,
        }
    }

    /// A whole number.
    pub fn count(&self, name: &str) -> Option<u64> {
        if let Value::Count(count) = self.by_name.get(name)? { Some(*count) } else { None }
    }

    /// A duration.
    pub fn duration(&self, name: &str) -> Option<Duration> {
        if let Value::Duration(duration) = self.by_name.get(name)? { Some(*duration) } else { None }
    }

    /// Reports a mistake in a variable.
    pub fn refuse(&self, name: &str, message: &str, mistakes: &mut Mistakes) {
        let source = self.sources.get(name).map_or(&Source::Environment, |source| *source);
        mistakes.add(source, &format!("{name} {message}"));
    }
}

impl Mistakes {
    /// Adds a mistake and its location.
    fn add(&mut self, source: &Source, message: &str) {
        self.0.push(match source {
            Source::Environment => (0, message.to_owned()),
            Source::Line(_, line) => (*line, format!("{source}: {message}")),
        });
    }

    /// The result of `make` if there are no mistakes.
    pub(super) fn or_else<T>(mut self, make: impl FnOnce() -> T) -> Result<T, String> {
        if self.0.is_empty() {
            return Ok(make());
        }
        self.0.sort_by_key(|(line, _)| *line);
        Err(self.0.into_iter().map(|(_, message)| message).collect::<Vec<_>>().join("\n"))
    }
}

fn refused(variable: &Variable, var: &Var, allowed: &str) -> String {
    let name = variable.name;
    if matches!(variable.kind, Kind::Secret) {
        return format!("{name} has an invalid value; allowed is {allowed}");
    }
    let value: String = var.value.chars().take(64).collect();
    format!("{name} is {value:?}; allowed is {allowed}")
}

impl Kind {
    /// # Errors
    /// The allowed values.
    fn read(self, text: &str) -> Result<Value, String> {
        match self {
            Self::Text | Self::Secret if text.chars().any(char::is_control) => {
                Err("a text without control characters".to_owned())
            }
            Self::Text | Self::Secret => Ok(Value::Text(text.to_owned())),
            Self::Switch => switch(text).map(Value::Switch).ok_or("true or false".to_owned()),
            Self::Host => host(text)
                .map(Value::Host)
                .ok_or("an IP address, such as 0.0.0.0 or ::, or localhost".to_owned()),
            Self::Port => {
                let port = text.parse().ok().filter(|port| *port > 0).map(Value::Port);
                port.ok_or("a port from 1 to 65535".to_owned())
            }
            Self::Count => match text.parse::<u64>() {
                Ok(count) => Ok(Value::Count(count)),
                Err(_) => Err("a whole number".to_owned()),
            },
            Self::Ratio => {
                let ratio = text.parse().ok().filter(|ratio| (0.0..=1.0).contains(ratio));
                let ratio: Option<f64> = ratio;
                ratio.map(|_| Value::Text(text.to_owned())).ok_or("a number from 0 to 1".to_owned())
            }
            Self::Duration => duration(text)
                .map(Value::Duration)
                .ok_or("a duration, such as 30s, 1h30m or 150us".to_owned()),
            Self::Choice(words) => {
                let word = words.iter().find(|word| word.eq_ignore_ascii_case(text));
                word.map(|word| Value::Choice(word))
                    .ok_or_else(|| format!("one of {}", words.join(", ")))
            }
        }
    }
}

fn switch(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

fn host(text: &str) -> Option<IpAddr> {
    if text == "localhost" {
        return Some(Ipv4Addr::LOCALHOST.into());
    }
    text.trim_start_matches('[').trim_end_matches(']').parse().ok()
}

/// Go's syntax: numbers with units in sequence, or 0.
fn duration(text: &str) -> Option<Duration> {
    if matches!(text, "" | "0") {
        return (text == "0").then_some(Duration::ZERO);
    }
    let (mut rest, mut sum) = (text, Duration::ZERO);
    while !rest.is_empty() {
        let number_end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, after) = rest.split_at(number_end);
        let unit_end = after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_end);
        let seconds = number.parse::<f64>().ok()? * unit_seconds(unit)?;
        sum = sum.checked_add(Duration::try_from_secs_f64(seconds).ok()?)?;
        rest = after;
    }
    Some(sum)
}

fn unit_seconds(unit: &str) -> Option<f64> {
    Some(match unit {
        "ns" => 1e-9,
        "us" | "µs" | "μs" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3_600.0,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_spelled_as_go_does() {
        for (text, millis) in [
            ("24h", 86_400_000),
            ("1h30m", 5_400_000),
            ("1.5s", 1_500),
            ("150ms", 150),
            ("0", 0),
            ("0s", 0),
        ] {
            assert_eq!(duration(text), Some(Duration::from_millis(millis)), "{text}");
        }
        for bad in ["", "5", "s", "1x", "1h30", "-1s", "1..5s", "9e9s"] {
            assert_eq!(duration(bad), None, "{bad}");
        }
    }

    #[test]
    fn addresses_are_of_both_kinds() {
        for (text, wanted) in
            [("0.0.0.0", "0.0.0.0"), ("::", "::"), ("[::1]", "::1"), ("localhost", "127.0.0.1")]
        {
            assert_eq!(host(text), wanted.parse().ok(), "{text}");
        }
        assert_eq!(host("ratelimit.example.com"), None);
    }
}
