//! Limits the HTTP/2 frames that a caller sends beside its calls. A PING costs its sender 17 bytes
//! and us an answer.
//!
//! h2 itself limits resets, empty DATA and CONTINUATION frames, and answers everything else however
//! often it comes. So frames are counted here while their bytes pass. A frame that belongs to no
//! call takes one from a credit, and calls and time restore the credit.

use crate::clock::uptime_us;

/// Frames beside calls that are allowed per [`REFILL_US`] without a call. Keepalive needs far
/// fewer.
const CREDIT_MAX: u32 = 10_000;
const REFILL_US: u64 = 60_000_000;

/// Credit per call: window updates and round-trip measurements belong to it.
const CREDIT_OF_A_CALL: u32 = 100;

const PREFACE_BYTES: usize = 24;
const HEAD_BYTES: usize = 9;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const CONTINUATION: u8 = 9;

/// The frames of one connection so far.
pub(super) struct Frames {
    /// Bytes to skip before the next frame header.
    skip: usize,
    head: [u8; HEAD_BYTES],
    /// Bytes of the header received so far.
    head_bytes: usize,
    credit: u32,
    refilled_us: u64,
}

impl Frames {
    pub(super) fn new() -> Self {
        let (head, refilled_us) = ([0; HEAD_BYTES], uptime_us());
        Self { skip: PREFACE_BYTES, head, head_bytes: 0, credit: CREDIT_MAX, refilled_us }
    }

    /// Counts the frames in `bytes`. Returns `false` when the limit is exceeded.
    pub(super) fn pass(&mut self, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            bytes = &bytes[skipped..];
            let taken = (HEAD_BYTES - self.head_bytes).min(bytes.len());
            self.head[self.head_bytes..][..taken].copy_from_slice(&bytes[..taken]);
            self.head_bytes += taken;
            bytes = &bytes[taken..];
            if self.head_bytes == HEAD_BYTES && !self.begin() {
                return false;
            }
        }
        true
    }

    /// Handles a complete frame header.
    fn begin(&mut self) -> bool {
        let [a, b, c, kind, ..] = self.head;
        self.skip = u32::from_be_bytes([0, a, b, c]) as usize;
        self.head_bytes = 0;
        match kind {
            HEADERS => self.credit = (self.credit + CREDIT_OF_A_CALL).min(CREDIT_MAX),
            // Limited by h2, or by the maximum message size.
            DATA | RST_STREAM | CONTINUATION => {}
            _ => return self.spend(uptime_us),
        }
        true
    }

    fn spend(&mut self, now_us: impl Fn() -> u64) -> bool {
        if self.credit == 0 {
            let now_us = now_us();
            if now_us - self.refilled_us < REFILL_US {
                return false;
            }
            (self.credit, self.refilled_us) = (CREDIT_MAX, now_us);
        }
        self.credit -= 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PING: u8 = 6;
    const SETTINGS: u8 = 4;

    fn frame(kind: u8, payload: usize) -> Vec<u8> {
        let length = u32::try_from(payload).unwrap().to_be_bytes();
        [&length[1..], &[kind, 0, 0, 0, 0, 1], &vec![0xff; payload]].concat()
    }

    fn begun() -> Frames {
        let mut frames = Frames::new();
        assert!(
            frames.pass(&[&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &frame(SETTINGS, 6)].concat())
        );
        frames
    }

    #[test]
    fn frames_beside_calls_are_counted_however_their_bytes_are_cut() {
        let bytes = [frame(PING, 8), frame(DATA, 300), frame(SETTINGS, 0)].concat();
        for cut in 1..bytes.len() {
            let mut frames = begun();
            assert!(bytes.chunks(cut).all(|part| frames.pass(part)));
            assert_eq!(frames.credit, CREDIT_MAX - 3, "cut after {cut}");
        }
    }

    #[test]
    fn without_calls_there_is_an_end_and_with_them_none() {
        let mut frames = begun();
        let passed = (0..2 * CREDIT_MAX).take_while(|_| frames.pass(&frame(PING, 8))).count();
        assert_eq!(passed, CREDIT_MAX as usize - 1);
        let mut frames = begun();
        let call = [frame(HEADERS, 40), frame(PING, 8).repeat(CREDIT_OF_A_CALL as usize)].concat();
        assert!((0..1_000).all(|_| frames.pass(&call)));
    }

    #[test]
    fn time_restores_the_credit() {
        let mut frames = begun();
        frames.credit = 0;
        let end_us = frames.refilled_us + REFILL_US;
        assert!(!frames.spend(|| end_us - 1));
        assert!(frames.spend(|| end_us));
        assert_eq!(frames.credit, CREDIT_MAX - 1);
    }
}
