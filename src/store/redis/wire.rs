//! What goes to the script and comes back; `lua/contract.lua` has the same in words.

use fred::bytes::Bytes;
use fred::types::Key;

use super::super::{Decision, Source, StoreError};
use crate::decide::{Ask, Mode, Outcome, Status};
use crate::limit::{Algorithm, Bucket, Shape};

/// Bytes of one counter's row in a reply.
const STATUS_BYTES: usize = 1 + 4 * 7;

/// One run of the script.
pub(super) struct Call {
    pub(super) keys: Vec<Key>,
    pub(super) args: Vec<Bytes>,
}

impl Call {
    /// A run for one request.
    pub(super) fn of(asks: &[Ask], at_ms: Option<u64>) -> Self {
        let mut order: Vec<usize> = (0..asks.len()).collect();
        order.sort_by_key(|at| is_log(&asks[*at]));
        let whole = asks.iter().filter(|ask| !is_log(ask)).count();
        let mut key_index = vec![0; asks.len()];
        for (index, at) in order.iter().enumerate() {
            key_index[*at] = index + 1;
        }
        let mut rows = Vec::with_capacity(39 * asks.len());
        for (ask, key) in asks.iter().zip(key_index) {
            push_row(&mut rows, ask, key);
        }
        let at = at_ms.map_or_else(Vec::new, |at_ms| at_ms.to_string().into_bytes());
        let keys = order.into_iter().map(|at| asks[at].key.as_bytes().into()).collect();
        let args = [at, whole.to_string().into_bytes(), rows].map(Bytes::from).to_vec();
        Self { keys, args }
    }
}

fn is_log(ask: &Ask) -> bool {
    ask.limit.algorithm() == Algorithm::SlidingWindowLog
}

fn push_row(rows: &mut Vec<u8>, ask: &Ask, key: usize) {
    let (algorithm, a, b): (u8, u64, u64) = match ask.limit.shape() {
        Shape::FixedWindow => (1, 0, 0),
        Shape::SlidingWindowLog => (2, 0, 0),
        Shape::SlidingWindowCounter(windows) => {
            let code = if windows.weighted { 4 } else { 3 };
            (code, u64::from(windows.count), windows.length_ms)
        }
        Shape::Bucket(Bucket { drain, weight, .. }) => {
            let leaky = ask.limit.algorithm() == Algorithm::LeakyBucket;
            (if leaky { 6 } else { 5 }, *drain, *weight)
        }
    };
    let mode = match ask.mode {
        Mode::Take => 0,
        Mode::Peek => 1,
        Mode::Refund => 2,
    };
    rows.extend_from_slice(&key.to_le_bytes()[..2]);
    rows.extend_from_slice(&[algorithm, mode, ask.shadow.into(), ask.limit.overdraft().into()]);
    rows.extend_from_slice(&ask.hits.to_le_bytes()[..7]);
    rows.extend_from_slice(&ask.limit.capacity().to_le_bytes()[..7]);
    rows.extend_from_slice(&ask.limit.period_ms().to_le_bytes()[..6]);
    rows.extend_from_slice(&a.to_le_bytes()[..7]);
    rows.extend_from_slice(&b.to_le_bytes()[..6]);
}

/// Reads the reply to a run for one request.
pub(super) fn decision(asks: &[Ask], replies: &[Bytes]) -> Result<Decision, StoreError> {
    let reply = replies.first().map_or(&[][..], |reply| &reply[..]);
    if replies.len() != 1 || reply.len() != asks.len() * STATUS_BYTES {
        let message = format!("{} bytes for {} counters", reply.len(), asks.len());
        return Err(StoreError::Garbled(message));
    }
    let statuses: Vec<_> = reply.chunks_exact(STATUS_BYTES).map(status).collect();
    let mut outcome = Outcome::default();
    for (ask, status) in asks.iter().zip(&statuses) {
        outcome.count(ask, status.within_limit);
    }
    Ok(Decision { allowed: outcome.allowed(), source: Source::Store, statuses })
}

fn status(row: &[u8]) -> Status {
    let within_limit = row[0] == 1;
    let number = |index: usize| {
        let mut bytes = [0; 8];
        bytes[..7].copy_from_slice(&row[1 + index * 7..][..7]);
        u64::from_le_bytes(bytes)
    };
    Status {
        within_limit,
        remaining: number(0),
        reset_after_ms: number(1),
        retry_after_ms: Some(number(2)).filter(|wait_ms| *wait_ms > 0),
        delay_ms: number(3),
    }
}
