//! The only parser of callers' data: a message becomes a [`Request`], or an error that names the
//! field. Code behind it can rely on the bounds.
//!
//! A request is flat: one buffer holds all its text, and keys and values are ranges in it, so that
//! parsing a message allocates three times for any number of entries. Building the messages of
//! `proto/` first was rejected: it allocates twice per entry.

mod wire;

use std::fmt;

use crate::decide::Mode;
use crate::limit::{HITS_MAX, Limit};

/// The inline capacity for the descriptors and entries of a usual request.
const USUAL: usize = 4;

/// The maximum sizes of a request.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Descriptors per request.
    pub descriptors_max: usize,
    /// Entries per descriptor.
    pub entries_max: usize,
    /// Bytes per domain, key or value.
    pub text_bytes_max: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { descriptors_max: 256, entries_max: 32, text_bytes_max: 4_096 }
    }
}

/// One request, within its bounds.
#[derive(Clone, Debug)]
pub struct Request {
    text: String,
    domain: Span,
    entries: Vec<Entry>,
    descriptors: Vec<DescriptorRange>,
    /// Limits that the request brings, by descriptor index.
    limits: Vec<(usize, Limit)>,
    /// Hits for a descriptor that names none.
    hits: u64,
    mode: Mode,
    explains: bool,
}

/// A range in a request's text, which is shorter than 4 GiB.
#[derive(Clone, Copy, Debug, Default)]
struct Span {
    start: u32,
    end: u32,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    key: Span,
    value: Span,
}

/// The entries and options of one descriptor.
#[derive(Clone, Debug)]
struct DescriptorRange {
    /// Its entries are those from this index to the start of the next descriptor.
    first_entry: u32,
    hits: Option<u64>,
    refund: bool,
}

/// One dimension: a path of entries.
#[derive(Clone, Copy, Debug)]
pub struct Descriptor<'a> {
    /// Key and value, as the configuration nests them.
    pub entries: Entries<'a>,
    /// At most [`HITS_MAX`]; 0 only tests.
    pub hits: u64,
    /// Whether the hits are taken, peeked or given back.
    pub mode: Mode,
    /// A limit that the request brings, which replaces the configured ones.
    pub limit: Option<&'a Limit>,
}

/// The entries of a descriptor, (key, value) in order.
#[derive(Clone, Copy, Debug)]
pub struct Entries<'a> {
    text: &'a str,
    rest: &'a [Entry],
}

/// A mistake of the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestError {
    /// The path of the field in the message.
    pub field: String,
    /// The mistake, and the allowed values.
    pub message: String,
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

impl std::error::Error for RequestError {}

/// Refuses a request for this field.
pub(crate) fn refuse<T>(
    field: impl Into<String>,
    message: impl Into<String>,
) -> Result<T, RequestError> {
    Err(RequestError { field: field.into(), message: message.into() })
}

impl Request {
    /// The domain, which names the rules to apply.
    pub fn domain(&self) -> &str {
        self.domain.of(&self.text)
    }

    /// The descriptors, at least one.
    pub fn descriptors(&self) -> impl ExactSizeIterator<Item = Descriptor<'_>> {
        (0..self.descriptors.len()).map(|at| self.descriptor(at))
    }

    /// Whether the request only reads state and takes nothing.
    pub fn only_reads(&self) -> bool {
        self.mode == Mode::Peek
    }

    /// Whether all of it gives hits back.
    pub fn only_refunds(&self) -> bool {
        self.mode == Mode::Refund
    }

    /// Whether the caller asks which rule each descriptor matches.
    pub fn explains(&self) -> bool {
        self.explains
    }

    /// Whether some descriptor gives hits back and none takes any. Descriptors of 0 hits then do
    /// not test for capacity either: a refund is never rejected.
    fn only_gives_back(&self) -> bool {
        let takes = |head: &DescriptorRange| !head.refund && head.hits.unwrap_or(self.hits) > 0;
        self.mode == Mode::Take
            && self.descriptors.iter().any(|head| head.refund)
            && !self.descriptors.iter().any(takes)
    }

    fn limit(&self, at: usize) -> Option<&Limit> {
        let found = self.limits.binary_search_by_key(&at, |(of, _)| *of).ok()?;
        Some(&self.limits[found].1)
    }

    /// The descriptor at this index.
    pub(crate) fn descriptor(&self, at: usize) -> Descriptor<'_> {
        let place = &self.descriptors[at];
        let last =
            self.descriptors.get(at + 1).map_or(self.entries.len(), DescriptorRange::first_entry);
        let takes = if place.refund { Mode::Refund } else { Mode::Take };
        Descriptor {
            entries: Entries { text: &self.text, rest: &self.entries[place.first_entry()..last] },
            hits: place.hits.unwrap_or(self.hits).min(HITS_MAX),
            mode: if self.mode == Mode::Take { takes } else { self.mode },
            limit: self.limit(at),
        }
    }
}

impl DescriptorRange {
    const fn first_entry(&self) -> usize {
        self.first_entry as usize
    }
}

impl Span {
    fn of(self, text: &str) -> &str {
        &text[self.start as usize..self.end as usize]
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = (&'a str, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        let (entry, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some((entry.key.of(self.text), entry.value.of(self.text)))
    }
}

/// Builds a request and checks each part against the bounds.
#[derive(Debug)]
pub struct RequestBuilder<'b> {
    request: Request,
    bounds: &'b Bounds,
}

impl<'b> RequestBuilder<'b> {
    /// An empty request whose text will have about `text_bytes`.
    pub fn new(text_bytes: usize, bounds: &'b Bounds) -> Self {
        let request = Request {
            text: String::with_capacity(text_bytes),
            domain: Span::default(),
            entries: Vec::with_capacity(USUAL),
            descriptors: Vec::with_capacity(USUAL),
            limits: Vec::new(),
            hits: 1,
            mode: Mode::Take,
            explains: false,
        };
        Self { request, bounds }
    }

    /// Sets the domain.
    ///
    /// # Errors
    /// It is too long.
    pub fn domain(&mut self, domain: &str) -> Result<(), RequestError> {
        self.request.domain = self.text(domain, || "domain".to_owned())?;
        Ok(())
    }

    /// Sets the hits for descriptors that name none; 0 only tests.
    pub fn hits(&mut self, hits: u64) {
        self.request.hits = hits;
    }

    /// Sets the mode of all descriptors.
    pub fn mode(&mut self, mode: Mode) {
        self.request.mode = mode;
    }

    /// Asks which rule each descriptor matches.
    pub fn explain(&mut self, explains: bool) {
        self.request.explains = explains;
    }

    /// Begins the next descriptor; its own `hits` override the request's.
    ///
    /// # Errors
    /// The descriptor before is empty, or there are too many.
    pub fn descriptor(&mut self, hits: Option<u64>) -> Result<(), RequestError> {
        self.last_has_entries()?;
        if self.request.descriptors.len() >= self.bounds.descriptors_max {
            let max = self.bounds.descriptors_max;
            return refuse("descriptors", format!("are over the maximum, {max}"));
        }
        let first_entry = u32::try_from(self.request.entries.len()).unwrap_or(u32::MAX);
        let place = DescriptorRange { first_entry, hits, refund: false };
        self.request.descriptors.push(place);
        Ok(())
    }

    /// Adds an entry to the last descriptor.
    ///
    /// # Errors
    /// There are too many entries, the key is empty, or a text is too long.
    pub fn entry(&mut self, key: &str, value: &str) -> Result<(), RequestError> {
        let at = self.request.descriptors.len().saturating_sub(1);
        let first = self.request.descriptors.last().map_or(0, DescriptorRange::first_entry);
        let entry = self.request.entries.len() - first;
        if entry >= self.bounds.entries_max {
            let max = self.bounds.entries_max;
            let field = format!("descriptors[{at}].entries");
            return refuse(field, format!("are over the maximum, {max}"));
        }
        let name = |part: &str| format!("descriptors[{at}].entries[{entry}].{part}");
        if key.is_empty() {
            return refuse(name("key"), "must not be empty");
        }
        let key = self.text(key, || name("key"))?;
        let value = self.text(value, || name("value"))?;
        self.request.entries.push(Entry { key, value });
        Ok(())
    }

    /// Returns the request if it is complete.
    ///
    /// # Errors
    /// Names the missing field.
    pub fn finish(mut self) -> Result<Request, RequestError> {
        if self.request.domain().is_empty() {
            return refuse("domain", "must not be empty");
        }
        if self.request.descriptors.is_empty() {
            return refuse("descriptors", "must hold at least one");
        }
        self.last_has_entries()?;
        if self.request.only_gives_back() {
            self.request.mode = Mode::Refund;
        }
        Ok(self.request)
    }

    fn last_has_entries(&self) -> Result<(), RequestError> {
        match self.request.descriptors.last() {
            Some(last) if last.first_entry() == self.request.entries.len() => {
                let at = self.request.descriptors.len() - 1;
                refuse(format!("descriptors[{at}].entries"), "must hold at least one")
            }
            Some(_) | None => Ok(()),
        }
    }

    fn text(&mut self, text: &str, field: impl Fn() -> String) -> Result<Span, RequestError> {
        let max = self.bounds.text_bytes_max;
        if text.len() > max {
            return refuse(field(), format!("{} bytes are over the maximum, {max}", text.len()));
        }
        let place = |at: usize| {
            let whole = |_| RequestError { field: field(), message: "is too much text".into() };
            u32::try_from(at).map_err(whole)
        };
        let start = place(self.request.text.len())?;
        self.request.text.push_str(text);
        Ok(Span { start, end: place(self.request.text.len())? })
    }
}
