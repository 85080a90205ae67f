//! The encoding of a script run's arguments and reply, which `lua/contract.lua` describes.
//!
//! A run has few allocations, however many requests it decides. Its keys are slices of one buffer.
//! Counter requests that differ only in their key share one entry of the arguments. A key that
//! occurs in several requests is sent once, and found by the hash that it already has.

use std::io::Write;

use bytes::Bytes;
use fred::types::Key;

use crate::decide::{CounterRequest, Mode, Outcome};
use crate::decision::{Decision, Source};
use crate::decision::{Enforcement, Status};
use crate::limit::{Excess, ScriptArguments};
use crate::store_error::StoreError;

/// Bytes of one counter request without its key.
const COUNTER_BYTES: usize = 4 + 7 + 7 + 6 + 7 + 6;

/// Bytes of one counter's row in a reply.
const STATUS_BYTES: usize = 1 + 3 * 7;

/// Entries that a counter request is compared with: the latest ones. An equal entry is nearly
/// always among the limits of the request before.
const COMPARED_MAX: usize = 16;

/// One run of the script.
#[derive(Clone)]
pub struct Call {
    pub(super) keys: Vec<Key>,
    pub(super) args: Vec<Bytes>,
}

impl Call {
    /// A run that decides these requests in order. Together they have at most 65,535 counters.
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
    /// The first counter request of each key: of states read and written whole, and of logs.
    whole: Keys<'a>,
    logs: Keys<'a>,
    /// The counter requests in `sent`, distinct among any [`COMPARED_MAX`] in a row.
    distinct: Vec<&'a CounterRequest>,
    sent: Vec<u8>,
    plan: Vec<u8>,
    /// The positions in `plan` of the key indexes of logs, which follow those of the others.
    log_rows: Vec<usize>,
}

impl<'a> Run<'a> {
    fn for_requests(requests: impl Iterator<Item = &'a [CounterRequest]>) -> Self {
        let (count, rows) =
            requests.fold((0, 0), |(count, rows), counters| (count + 1, rows + counters.len()));
        // No two counter requests of one request have the same key.
        let shared = if count > 1 { rows } else { 0 };
        Self {
            whole: Keys::new(rows, shared),
            logs: Keys::new(0, shared),
            distinct: Vec::with_capacity(COMPARED_MAX),
            sent: Vec::with_capacity(4 * COUNTER_BYTES),
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
            let index = self.index_of_equal(counter);
            push_index(&mut self.plan, index);
        }
    }

    /// The index, from 1, of an entry equal to this counter request. Adds one if there is none.
    fn index_of_equal(&mut self, counter: &'a CounterRequest) -> usize {
        let recent = self.distinct.len().saturating_sub(COMPARED_MAX);
        let equal = self.distinct[recent..].iter().position(|other| is_equal(other, counter));
        equal.map_or_else(
            || {
                push_counter(&mut self.sent, counter);
                self.distinct.push(counter);
                self.distinct.len()
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

/// Distinct keys, in the order of their first use.
struct Keys<'a> {
    counters: Vec<&'a CounterRequest>,
    /// A hash table with open addressing: a bucket is 0, or an index into `counters` plus 1. Empty
    /// if no key can occur twice.
    buckets: Vec<u16>,
}

impl<'a> Keys<'a> {
    /// Room for `expected` keys. At most `shared` keys are searched for again; 0: none can repeat.
    fn new(expected: usize, shared: usize) -> Self {
        let buckets = if shared > 0 { (2 * shared).next_power_of_two() } else { 0 };
        Self { counters: Vec::with_capacity(expected), buckets: vec![0; buckets] }
    }

    /// The index of a counter's key, from 1.
    fn index_of(&mut self, counter: &'a CounterRequest) -> usize {
        if !self.buckets.is_empty() {
            let mask = self.buckets.len() - 1;
            let mut bucket = bucket_of(counter.key.hash()) & mask;
            // At least half of the buckets stay free, so the search ends.
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

/// The lowest 3 bytes of a hash. There are far fewer buckets.
const fn bucket_of(hash: u128) -> usize {
    let [a, b, c, ..] = hash.to_le_bytes();
    usize::from_le_bytes([a, b, c, 0, 0, 0, 0, 0])
}

/// Whether two counter requests differ in their key at most.
fn is_equal(one: &CounterRequest, other: &CounterRequest) -> bool {
    let arguments = |counter: &CounterRequest| {
        (counter.hits, counter.mode, counter.enforcement, counter.quota_group)
    };
    arguments(one) == arguments(other) && one.limit == other.limit
}

fn decimal(number: Option<impl std::fmt::Display>) -> Bytes {
    let mut text = Vec::new();
    if let Some(number) = number {
        // Writing to a vector cannot fail.
        drop(write!(text, "{number}"));
    }
    text.into()
}

/// Adds an index of two bytes. [`Call::of`] bounds the counters of a run, so that it fits.
fn push_index(plan: &mut Vec<u8>, index: usize) {
    debug_assert!(u16::try_from(index).is_ok(), "{index} does not fit two bytes");
    plan.extend_from_slice(&index.to_le_bytes()[..2]);
}

fn push_counter(sent: &mut Vec<u8>, counter: &CounterRequest) {
    let ScriptArguments { code, a, b } = counter.limit.script_arguments();
    let mode = match counter.mode {
        Mode::Take => 0,
        Mode::Peek => 1,
        Mode::Refund => 2,
    };
    let role = match counter.enforcement {
        Enforcement::Enforced => 0,
        Enforcement::Shadow => 1,
        // A group is below QuotaGroup::MAX, 254, so the sum fits.
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

/// Reads the reply to a run: one decision per request.
///
/// # Errors
/// The reply does not have one row per counter.
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
