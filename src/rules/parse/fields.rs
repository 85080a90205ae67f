//! Reads the fields of one mapping by name and type, and reports each mistake at its position.
//!
//! A value that is reported as wrong is returned as [`Reported`], so that a caller skips what
//! depends on it and reports nothing twice. Numbers and flags follow the spellings of YAML 1.1, as
//! envoyproxy/ratelimit does, except octal numbers, which are refused because people read them as
//! decimal.

use std::fmt;

use super::errors::{Message, Position, Report, quoted, shortened};
use super::names::{Place, unknown_key};
use super::yaml::{Content, Field, Node, Scalar};
use crate::limit::HITS_MAX;

/// The longest `raw_body`, in bytes.
const RAW_BODY_BYTES_MAX: usize = 64 << 10;

/// What a mapping configures: the start of messages about it.
#[derive(Clone, Copy)]
pub(super) enum Subject<'p> {
    File,
    /// A descriptor without a key, below the rule of this path (empty: at the top).
    DescriptorIn(&'p str),
    Descriptor(&'p str),
    Limit(&'p str),
}

/// A mistake that has been reported; code that depends on the value is skipped.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reported;

/// The value of a field; `None` if it is not given.
pub(super) type Given<T> = Result<Option<T>, Reported>;

/// A type of plain scalars, which are written without quotes.
struct Plain<T> {
    type_name: &'static str,
    parse: fn(&str) -> Result<T, String>,
}

/// The fields of one mapping.
#[derive(Clone, Copy)]
pub(super) struct Fields<'n, 'a> {
    pub(super) subject: Subject<'n>,
    pub(super) at: Position,
    fields: &'n [Field<'a>],
}

impl<'n, 'a> Fields<'n, 'a> {
    /// The fields of a node; `None` unless it is a mapping.
    pub(super) fn of(node: &'n Node<'a>, subject: Subject<'n>) -> Option<Self> {
        match &node.content {
            Content::Map(fields) => Some(Self { subject, at: node.at, fields }),
            Content::Scalar(_) | Content::List(_) => None,
        }
    }

    /// Reports every field that is not allowed.
    pub(super) fn check_names(&self, here: Place, report: &mut Report<'_>) {
        for field in self.fields {
            let name = &*field.name.text;
            if !here.keys().contains(&name) {
                self.refuse(field.at, unknown_key(name, here), report);
            }
        }
    }

    /// The same fields under another subject.
    pub(super) fn about<'s>(self, subject: Subject<'s>) -> Fields<'s, 'a>
    where
        'n: 's,
    {
        Fields { subject, at: self.at, fields: self.fields }
    }

    /// All fields, in file order.
    pub(super) fn all(&self) -> &'n [Field<'a>] {
        self.fields
    }

    pub(super) fn get(&self, name: &str) -> Option<&'n Field<'a>> {
        self.fields.iter().find(|field| field.name.text == name)
    }

    /// The position of a field's value, or of the mapping if the field is not given.
    pub(super) fn at(&self, name: &str) -> Position {
        self.get(name).map_or(self.at, |field| field.value.at)
    }

    /// Reports a mistake in this mapping.
    pub(super) fn refuse(
        &self,
        at: Position,
        message: impl Into<Message>,
        report: &mut Report<'_>,
    ) -> Reported {
        report.add(at, message.into().about(self.subject));
        Reported
    }

    /// Reports a warning about this mapping.
    pub(super) fn warn(&self, at: Position, message: impl Into<Message>, report: &mut Report<'_>) {
        report.warn(at, message.into().about(self.subject));
    }

    /// A text as written, quoted or not; null is an empty text.
    pub(super) fn text(&self, name: &str, report: &mut Report<'_>) -> Given<&'n str> {
        let Some(scalar) = self.scalar(name, "text", report)? else {
            return Ok(None);
        };
        Ok(Some(if scalar.is_null() { "" } else { &scalar.text }))
    }

    /// A text of at most `bytes_max` bytes.
    pub(super) fn text_within(
        &self,
        name: &str,
        bytes_max: usize,
        report: &mut Report<'_>,
    ) -> Given<&'n str> {
        match self.text(name, report)? {
            Some(text) if text.len() > bytes_max => {
                let length = text.len();
                let message = format!("{name} of {length} bytes is over the maximum, {bytes_max}");
                Err(self.refuse(self.at(name), message, report))
            }
            text => Ok(text),
        }
    }

    /// The `raw_body` of a domain or a rule.
    pub(super) fn raw_body(&self, report: &mut Report<'_>) -> Given<Box<str>> {
        let text = self.text_within("raw_body", RAW_BODY_BYTES_MAX, report)?;
        Ok(text.map(Box::from))
    }

    /// An integer that fits 64 bits.
    pub(super) fn whole(&self, name: &str, report: &mut Report<'_>) -> Given<u64> {
        self.plain(name, &Plain { type_name: "a whole number", parse: whole }, report)
    }

    /// True or false. Null, which envoyproxy/ratelimit reads as false, counts as not given.
    pub(super) fn flag(&self, name: &str, report: &mut Report<'_>) -> Given<bool> {
        if self.get(name).is_some_and(|field| field.value.is_null()) {
            self.warn(self.at(name), format!("{name} is empty and means false"), report);
            return Ok(None);
        }
        self.plain(name, &Plain { type_name: "true or false", parse: flag }, report)
    }

    /// A value of a type that is never quoted.
    fn plain<T>(&self, name: &str, plain: &Plain<T>, report: &mut Report<'_>) -> Given<T> {
        let type_name = plain.type_name;
        let Some(scalar) = self.scalar(name, type_name, report)? else {
            return Ok(None);
        };
        let message = match (plain.parse)(&scalar.text) {
            _ if scalar.is_null() => format!("{name} is empty; it must be {type_name}"),
            Ok(value) if scalar.plain => return Ok(Some(value)),
            Ok(_) => format!("{name} {} is text; write it without quotes", quoted(&scalar.text)),
            Err(wrong) => format!("{name} {wrong}"),
        };
        Err(self.refuse(self.at(name), message, report))
    }

    fn scalar(
        &self,
        name: &str,
        type_name: &str,
        report: &mut Report<'_>,
    ) -> Given<&'n Scalar<'a>> {
        let Some(field) = self.get(name) else {
            return Ok(None);
        };
        match &field.value.content {
            Content::Scalar(scalar) => Ok(Some(scalar)),
            Content::List(_) | Content::Map(_) => {
                let message = format!("{name} must be {type_name}, not {}", kind(&field.value));
                Err(self.refuse(field.value.at, message, report))
            }
        }
    }
}

impl fmt::Display for Subject<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File => Ok(()),
            Self::DescriptorIn("") => f.write_str("descriptor: "),
            Self::DescriptorIn(path) => write!(f, "descriptor in {}: ", quoted(path)),
            Self::Descriptor(path) => write!(f, "descriptor {}: ", quoted(path)),
            Self::Limit(path) => write!(f, "limit for {}: ", quoted(path)),
        }
    }
}

/// The type of a node, in words.
pub(super) fn kind(node: &Node<'_>) -> String {
    match &node.content {
        Content::Scalar(scalar) if scalar.is_null() => "nothing".into(),
        Content::Scalar(scalar) => quoted(&scalar.text),
        Content::List(_) => "a list".into(),
        Content::Map(_) => "a mapping".into(),
    }
}

/// A number, or its mistake. Underscores may separate digits, as in YAML 1.1; a leading zero is
/// refused, because YAML 1.1 reads it as octal.
fn whole(text: &str) -> Result<u64, String> {
    let digits = text.replace('_', "");
    let is_whole = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if digits.strip_prefix('-').is_some_and(is_whole) {
        return Err(format!("{} is negative; allowed are 0 to {HITS_MAX}", shortened(text)));
    }
    if !is_whole(&digits) || text.starts_with('_') {
        return Err(format!("{} is not a whole number", quoted(text)));
    }
    if digits.len() > 1 && digits.starts_with('0') {
        return Err(format!("{} has a leading zero; write it without", shortened(text)));
    }
    digits
        .parse()
        .map_err(|_too_large| format!("{} is over the maximum, {HITS_MAX}", shortened(text)))
}

/// The spellings of YAML 1.1, for files that envoyproxy/ratelimit accepts.
fn flag(text: &str) -> Result<bool, String> {
    match &*text.to_ascii_lowercase() {
        "true" | "yes" | "on" | "y" => Ok(true),
        "false" | "no" | "off" | "n" => Ok(false),
        _ => Err(format!("{} is not true or false", quoted(text))),
    }
}
