//! The names that each part of a limits file may have, and messages about other names.
//!
//! A name that is unknown is mostly misspelled, or stands in the wrong part of the file. So its message
//! suggests the nearest allowed name, or says where the name belongs.

use super::errors::{Message, quoted};
use crate::suggest;

/// A mapping of a limits file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    File,
    Descriptor,
    Limit,
    /// An entry of `replaces`.
    Replaced,
}

impl Place {
    /// The keys that it may have.
    pub(super) const fn keys(self) -> &'static [&'static str] {
        match self {
            Self::File => &["domain", "descriptors", "slot_by", "on_store_failure", "raw_body"],
            Self::Descriptor => &[
                "key",
                "value",
                "rate_limit",
                "descriptors",
                "shadow_mode",
                "quota_mode",
                "share_threshold",
                "detailed_metric",
                "value_to_metric",
                "hash_values",
                "metadata",
                "raw_body",
            ],
            Self::Limit => &[
                "limit",
                "requests_per_unit",
                "period",
                "unit",
                "unit_multiplier",
                "algorithm",
                "burst",
                "sub_windows",
                "weighted",
                "overdraft",
                "unlimited",
                "name",
                "replaces",
            ],
            Self::Replaced => &["name"],
        }
    }

    /// Where its keys belong, for a reader who is elsewhere.
    const fn name(self) -> &'static str {
        match self {
            Self::File => "at the top of the file, beside domain",
            Self::Descriptor => "in the descriptor, beside key and rate_limit",
            Self::Limit => "in rate_limit",
            Self::Replaced => "in an entry of replaces",
        }
    }
}

/// The message about a key that this place does not have.
pub(super) fn unknown_key(name: &str, here: Place) -> Message {
    let belongs = [Place::File, Place::Descriptor, Place::Limit]
        .into_iter()
        .find(|place| place.keys().contains(&name))
        .map(|place| format!("{name} belongs {}", place.name()));
    Message {
        text: format!("unknown key {}", quoted(name)),
        allowed: Some(format!("allowed are {}", here.keys().join(", "))),
        help: belongs.or_else(|| suggestion(name, here.keys())),
    }
}

/// The message about a value that is none of the allowed ones.
pub(super) fn not_one_of(field: &str, value: &str, allowed: &[&str]) -> Message {
    let text = format!("{field} {} is not one of {}", quoted(value), allowed.join(", "));
    Message { text, allowed: None, help: suggestion(value, allowed) }
}

fn suggestion(name: &str, allowed: &[&str]) -> Option<String> {
    nearest(name, allowed).map(|meant| format!("did you mean {meant}"))
}

/// The allowed name that begins with `name`, if it is the only one; else the nearest one.
fn nearest<'a>(name: &str, allowed: &[&'a str]) -> Option<&'a str> {
    let name = name.to_lowercase();
    let mut longer = allowed.iter().filter(|meant| name.len() > 1 && meant.starts_with(&name));
    if let (Some(meant), None) = (longer.next(), longer.next()) {
        return Some(meant);
    }
    suggest::nearest(&name, allowed.iter().copied())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_of_one_name_means_that_name() {
        assert_eq!(nearest("sec", &["second", "minute"]), Some("second"));
        assert_eq!(nearest("unit_m", &["unit", "unit_multiplier"]), Some("unit_multiplier"));
        assert_eq!(nearest("m", &["minute", "day"]), None, "one letter says too little");
        assert_eq!(nearest("mi", &["minute", "million"]), None, "two names begin with it");
    }

    #[test]
    fn a_key_of_another_place_is_told_where_it_belongs() {
        let help = |name, here| unknown_key(name, here).help.unwrap();
        assert_eq!(
            help("shadow_mode", Place::Limit),
            "shadow_mode belongs in the descriptor, beside key and rate_limit"
        );
        assert_eq!(help("burst", Place::Descriptor), "burst belongs in rate_limit");
        assert_eq!(
            help("slot_by", Place::Descriptor),
            "slot_by belongs at the top of the file, beside domain"
        );
    }
}
