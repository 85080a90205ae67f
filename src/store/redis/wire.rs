//! What goes to the script and comes back; `lua/contract.lua` has the same in words.
//!
//! A run has few allocations, however many requests it decides: its keys are slices of one buffer,
//! what is asked alike of many counters is sent once, and a key that several requests name is found
//! again by the hash that it brings.

use std::io::Write;

use bytes::Bytes;
use fred::types::Key;

use crate::decide::{CounterRequest, Mode, Outcome};
use crate::decision::{Decision, Source};
use crate::decision::{Enforcement, Status};
use crate::limit::{Excess, ScriptArguments};
use crate::store_error::StoreError;

/// Bytes of one ask without its key.
const ASK_BYTES: usize = 4 + 7 + 7 + 6 + 7 + 6;

/// Bytes of one counter's row in a reply.
const STATUS_BYTES: usize = 1 + 3 * 7;

/// How many of the asks sent last a next one is compared with; what it is like is nearly always
/// among the limits of one request.
const ALIKE_MAX: usize = 16;

/// One run of the script.
#[derive(Clone)]
pub struct Call {
    pub(super) keys: Vec<Key>,
    pub(super) args: Vec<Bytes>,
}

impl Call {
    /// A run that decides these requests in their order, of at most 65,535 asks together.
    pub fn of<'a, R>(requests: R, at_ms: Option<u64>) -> Self
    where
        R: Iterator<Item = &'a [CounterRequest]> + Clone,
    {
        let mut run = Run::for_requests(requests.clone());
        for counters in requests {
            run.push(counters);
        }
        run.finish(at_ms)
    }

    /// KEYS of the script run.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.keys.iter().map(Key::as_bytes)
    }

    /// ARGV of the script run.
    pub fn args(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.args.iter().map(|arg| &arg[..])
    }
}

/// A run while requests are added to it.
struct Run<'a> {
    /// The first ask of each key, of those that are read and written whole and of logs.
    whole: Keys<'a>,
    logs: Keys<'a>,
    /// The asks in `sent`, which are all different unless they are many.
    known: Vec<&'a CounterRequest>,
    sent: Vec<u8>,
    plan: Vec<u8>,
    /// Where in `plan` the index of a log stands, which come behind the others.
    log_rows: Vec<usize>,
}

impl<'a> Run<'a> {
    fn for_requests(requests: impl Iterator<Item = &'a [CounterRequest]>) -> Self {
        let (count, rows) =
            requests.fold((0, 0), |(count, rows), counters| (count + 1, rows + counters.len()));
        // No two asks of one request name the same key.
        let shared = if count > 1 { rows } else { 0 };
        Self {
            whole: Keys::new(rows, shared),
            logs: Keys::new(0, shared),
            known: Vec::with_capacity(ALIKE_MAX),
            sent: Vec::with_capacity(4 * ASK_BYTES),
            plan: Vec::with_capacity(2 * count + 4 * rows),
            log_rows: Vec::new(),
        }
    }

    fn push(&mut self, counters: &'a [CounterRequest]) {
        push_index(&mut self.plan, counters.len());
        for counter in counters {
            let whole = counter.limit.is_read_whole();
            if !whole {
                self.log_rows.push(self.plan.len());
            }
            let keys = if whole { &mut self.whole } else { &mut self.logs };
            push_index(&mut self.plan, keys.index_of(counter));
            let known = self.known_like(counter);
            push_index(&mut self.plan, known);
        }
    }

    /// The index of an ask like this one, sent now if none was.
    fn known_like(&mut self, counter: &'a CounterRequest) -> usize {
        let recent = self.known.len().saturating_sub(ALIKE_MAX);
        let alike = self.known[recent..].iter().position(|known| is_alike(known, counter));
        alike.map_or_else(
            || {
                push_ask(&mut self.sent, counter);
                self.known.push(counter);
                self.known.len()
            },
            |at| recent + at + 1,
        )
    }

    fn finish(mut self, at_ms: Option<u64>) -> Call {
        let whole = self.whole.counters.len();
        for at in self.log_rows {
            let index = usize::from(u16::from_le_bytes([self.plan[at], self.plan[at + 1]])) + whole;
            self.plan[at..at + 2].copy_from_slice(&index.to_le_bytes()[..2]);
        }
        let keys = || {
            self.whole
                .counters
                .iter()
                .chain(&self.logs.counters)
                .map(|counter| counter.key.as_bytes())
        };
        let mut bytes = Vec::with_capacity(keys().map(<[u8]>::len).sum());
        keys().for_each(|key| bytes.extend_from_slice(key));
        let bytes = Bytes::from(bytes);
        let mut end = 0;
        let slice = |key: &[u8]| {
            let start = end;
            end += key.len();
            bytes.slice(start..end).into()
        };
        let keys = keys().map(slice).collect();
        let args = vec![decimal(at_ms), decimal(Some(whole)), self.sent.into(), self.plan.into()];
        Call { keys, args }
    }
}

/// Different keys, in the order in which they came first.
struct Keys<'a> {
    counters: Vec<&'a CounterRequest>,
    /// Open addressing: a bucket is 0 or an index into `counters` and one more. Empty where no key
    /// comes twice.
    buckets: Vec<u16>,
}

impl<'a> Keys<'a> {
    /// For some `expected` keys, of which `shared` at most are looked for again.
    fn new(expected: usize, shared: usize) -> Self {
        let buckets = if shared > 0 { (2 * shared).next_power_of_two() } else { 0 };
        Self { counters: Vec::with_capacity(expected), buckets: vec![0; buckets] }
    }

    /// The index of an ask's key, from 1.
    fn index_of(&mut self, counter: &'a CounterRequest) -> usize {
        if !self.buckets.is_empty() {
            let mask = self.buckets.len() - 1;
            let mut bucket = bucket_of(counter.key.hash()) & mask;
            // Half of the buckets stay free.
            while self.buckets[bucket] != 0 {
                let index = usize::from(self.buckets[bucket]);
                if self.counters[index - 1].key == counter.key {
                    return index;
                }
                bucket = (bucket + 1) & mask;
            }
            let [low, high, ..] = (self.counters.len() + 1).to_le_bytes();
            self.buckets[bucket] = u16::from_le_bytes([low, high]);
        }
        self.counters.push(counter);
        self.counters.len()
    }
}

/// A hash as far as it fits an index; the buckets are far fewer.
const fn bucket_of(hash: u128) -> usize {
    let [a, b, c, ..] = hash.to_le_bytes();
    usize::from_le_bytes([a, b, c, 0, 0, 0, 0, 0])
}

fn is_alike(known: &CounterRequest, counter: &CounterRequest) -> bool {
    let own = |counter: &CounterRequest| {
        (counter.hits, counter.mode, counter.enforcement, counter.quota_group)
    };
    own(known) == own(counter) && known.limit == counter.limit
}

fn decimal(number: Option<impl std::fmt::Display>) -> Bytes {
    let mut text = Vec::new();
    if let Some(number) = number {
        // Writing to a vector does not fail.
        drop(write!(text, "{number}"));
    }
    text.into()
}

/// An index that the script reads from two bytes; what a run may have keeps it below.
fn push_index(plan: &mut Vec<u8>, index: usize) {
    debug_assert!(u16::try_from(index).is_ok(), "{index} does not fit two bytes");
    plan.extend_from_slice(&index.to_le_bytes()[..2]);
}

fn push_ask(sent: &mut Vec<u8>, counter: &CounterRequest) {
    let ScriptArguments { code, a, b } = counter.limit.script_arguments();
    let mode = match counter.mode {
        Mode::Take => 0,
        Mode::Peek => 1,
        Mode::Refund => 2,
    };
    let role = match counter.enforcement {
        Enforcement::Enforced => 0,
        Enforcement::Shadow => 1,
        // Below QuotaGroup::MAX, so it fits.
        Enforcement::Quota => counter.quota_group.number().saturating_add(2),
    };
    let excess = match counter.limit.excess() {
        Excess::Refused => 0,
        Excess::Overdraft => 1,
        Excess::Counted => 2,
    };
    sent.extend_from_slice(&[code, mode, role, excess]);
    sent.extend_from_slice(&counter.hits.to_le_bytes()[..7]);
    sent.extend_from_slice(&counter.limit.capacity().to_le_bytes()[..7]);
    sent.extend_from_slice(&counter.limit.period_ms().to_le_bytes()[..6]);
    sent.extend_from_slice(&a.to_le_bytes()[..7]);
    sent.extend_from_slice(&b.to_le_bytes()[..6]);
}

/// Reads the reply to a run: a decision for each of its requests.
///
/// # Errors
/// The reply does not have a row for each counter.
pub fn decisions<'a, R>(
    requests: R,
    reply: &[u8],
) -> Result<impl Iterator<Item = Decision>, StoreError>
where
    R: Iterator<Item = &'a [CounterRequest]> + Clone,
{
    let rows: usize = requests.clone().map(<[CounterRequest]>::len).sum();
    if reply.len() != rows * STATUS_BYTES {
        let message = format!("{} bytes for {rows} counters", reply.len());
        return Err(StoreError::BadReply(message));
    }
    let mut left = reply;
    Ok(requests.map(move |counters| {
        let (own, others) = left.split_at(counters.len() * STATUS_BYTES);
        left = others;
        decision(counters, own)
    }))
}

fn decision(counters: &[CounterRequest], rows: &[u8]) -> Decision {
    let statuses: Vec<_> = rows.chunks_exact(STATUS_BYTES).map(status).collect();
    let outcome = Outcome::of(counters, &statuses);
    Decision { allowed: outcome.allowed(), source: Source::Store, statuses }
}

fn status(row: &[u8]) -> Status {
    let within_limit = row[0] == 1;
    let number = |index: usize| {
        let mut bytes = [0; 8];
        bytes[..7].copy_from_slice(&row[1 + index * 7..][..7]);
        u64::from_le_bytes(bytes)
    };
    let wait_ms = number(2);
    Status {
        within_limit,
        remaining: number(0),
        reset_after_ms: number(1),
        retry_after_ms: Some(wait_ms).filter(|wait_ms| !within_limit && *wait_ms > 0),
        delay_ms: if within_limit { wait_ms } else { 0 },
    }
}
