//! Bounds a JSON body before it is parsed.
//!
//! A parsed message takes far more memory than its text: 4 MiB of `{},` become 300 MiB. A request within
//! its bounds has few values, so bodies with more are refused by counting, without a parser.

use crate::request::Bounds;

/// Values of an entry, of a descriptor besides its entries (its limit, its hits), and of a request
/// besides its descriptors, and the punctuation between them, and a few unknown ones.
const OF_ENTRY: usize = 6;
const OF_DESCRIPTOR: usize = 20;
const OF_REQUEST: usize = 100;

/// Whether a body has more values than any request within `bounds`.
pub(super) fn has_too_many_values(json: &[u8], bounds: &Bounds) -> bool {
    let of_descriptor = OF_DESCRIPTOR + OF_ENTRY.saturating_mul(bounds.entries_max);
    let most = OF_REQUEST.saturating_add(bounds.descriptors_max.saturating_mul(of_descriptor));
    punctuation(json, most) > most
}

/// Counts what begins and separates values outside of strings, to a little more than `most`.
fn punctuation(json: &[u8], most: usize) -> usize {
    let (mut count, mut in_string, mut at) = (0, false, 0);
    while let Some(byte) = json.get(at) {
        match byte {
            b'"' => in_string = !in_string,
            b'\\' if in_string => at += 1,
            b'{' | b'[' | b',' | b':' if !in_string => {
                count += 1;
                if count > most {
                    break;
                }
            }
            _ => {}
        }
        at += 1;
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds(descriptors_max: usize, entries_max: usize) -> Bounds {
        Bounds { descriptors_max, entries_max, ..Bounds::default() }
    }

    #[test]
    fn only_what_is_outside_of_strings_counts() {
        for (json, count) in [
            ("", 0),
            (r#"{"a":1,"b":[2]}"#, 5),
            (r#""{[,:""#, 0),
            (r#""\"{",{}"#, 2),
            (r#""\\",{}"#, 2),
            (r#""\"#, 0),
        ] {
            assert_eq!(punctuation(json.as_bytes(), 100), count, "{json}");
        }
    }

    #[test]
    fn the_largest_request_is_within_the_bounds_and_many_empty_values_are_not() {
        let entry = r#"{"key":"k","value":"{[,:"}"#;
        let entries = [entry; 3].join(",");
        let rest = r#""hitsAddend":"1","isNegativeHits":false,"limit":{"requestsPerUnit":5,"unit":"HOUR"}"#;
        let descriptor = format!(r#"{{"entries":[{entries}],{rest}}}"#);
        let descriptors = vec![descriptor; 50].join(",");
        let body = format!(r#"{{"domain":"d","descriptors":[{descriptors}],"hitsAddend":1}}"#);
        assert!(!has_too_many_values(body.as_bytes(), &bounds(50, 3)));
        assert!(has_too_many_values("{},".repeat(10_000).as_bytes(), &bounds(50, 3)));
    }
}
