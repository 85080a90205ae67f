//! The text form of a descriptor's entries: `tenant=acme,path=/login`. A backslash escapes a comma
//! or a backslash, and in keys also `=`.

use std::borrow::Cow;

/// Appends an entry, after a comma unless it is the first.
pub(crate) fn push(text: &mut String, key: &str, value: &str) {
    if !text.is_empty() {
        text.push(',');
    }
    text.push_str(&escaped(key, &[',', '\\', '=']));
    text.push('=');
    text.push_str(&escaped(value, &[',', '\\']));
}

fn escaped<'t>(text: &'t str, special: &[char]) -> Cow<'t, str> {
    if !text.contains(special) {
        return text.into();
    }
    let escape = |c: char| special.contains(&c).then_some('\\').into_iter().chain([c]);
    text.chars().flat_map(escape).collect::<String>().into()
}

/// Parses entries.
///
/// # Errors
/// A part is not an entry. The message says how to write it.
pub(crate) fn parse(text: &str) -> Result<Vec<(String, String)>, String> {
    let mut entries = Vec::new();
    let (mut key, mut part) = (None, String::new());
    let mut end = |key: Option<String>, part: String| match key {
        Some(key) if !String::is_empty(&key) => {
            entries.push((key, part));
            Ok(())
        }
        Some(_) | None => Err(format!(
            "{:?} is not key=value; a comma in a value is written \\,",
            key.map_or_else(String::new, |key| key + "=") + &part
        )),
    };
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\\' => part.push(chars.next_if(|next| [',', '\\', '='].contains(next)).unwrap_or(c)),
            '=' if key.is_none() => key = Some(std::mem::take(&mut part)),
            ',' => end(key.take(), std::mem::take(&mut part))?,
            _ => part.push(c),
        }
    }
    end(key, part)?;
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Vec<(String, String)> {
        parse(text).unwrap()
    }

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn entries_are_parted_by_commas_and_keys_end_at_the_first_equals_sign() {
        assert_eq!(read("a=b,c="), pairs(&[("a", "b"), ("c", "")]));
        assert_eq!(read("url=/x?y=z"), pairs(&[("url", "/x?y=z")]));
        assert_eq!(read(r"ip=1\, 2"), pairs(&[("ip", "1, 2")]));
        assert_eq!(read(r"a\=b=c\\,d=e"), pairs(&[("a=b", r"c\"), ("d", "e")]));
        assert_eq!(read(r"path=C:\dir"), pairs(&[("path", r"C:\dir")]), "means itself elsewhere");
    }

    #[test]
    fn what_is_no_entry_is_told_with_the_way_to_write_it() {
        for text in ["", "a", "a=b,c", "=b", "a=b, c", ","] {
            let error = parse(text).unwrap_err();
            assert!(
                error.contains(r"is not key=value; a comma in a value is written \,"),
                "{error}"
            );
        }
        assert!(parse("a=1, 2").unwrap_err().starts_with(r#"" 2" "#));
    }

    proptest! {
        #[test]
        fn what_is_written_reads_the_same(
            entries in prop::collection::vec(("[a=,\\\\]{1,4}", "[a=,\\\\]{0,4}"), 1..4),
        ) {
            let mut text = String::new();
            entries.iter().for_each(|(key, value)| push(&mut text, key, value));
            prop_assert_eq!(read(&text), entries);
        }
    }
}
