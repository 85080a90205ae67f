//! Memory that many may use a part of, within a bound that holds for all of them together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use metrics::Counter;

/// So many bytes, which all threads share.
#[derive(Clone, Debug)]
pub struct Room(Arc<Bounded>);

#[derive(Debug)]
struct Bounded {
    used: AtomicUsize,
    bytes_max: usize,
    refused: Counter,
}

/// A part of a room, until it is dropped.
#[derive(Debug)]
pub struct Held {
    room: Room,
    bytes: usize,
}

/// The room has not so many bytes left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

struct Holding {
    bytes: Bytes,
    _held: Held,
}

impl Room {
    /// For so many bytes; who finds none is counted as `refused`.
    pub fn new(bytes_max: usize, refused: Counter) -> Self {
        Self(Arc::new(Bounded { used: AtomicUsize::new(0), bytes_max, refused }))
    }

    /// How much of it is used.
    pub fn used(&self) -> usize {
        self.0.used.load(Ordering::Relaxed)
    }

    /// Whether no more than a half is left.
    pub fn is_half_full(&self) -> bool {
        self.used() >= self.0.bytes_max / 2
    }

    /// A part of it.
    ///
    /// # Errors
    /// There is not so much left. What is alone is never too large.
    pub fn hold(&self, bytes: usize) -> Result<Held, Full> {
        self.take(bytes)?;
        Ok(Held { room: self.clone(), bytes })
    }

    fn take(&self, bytes: usize) -> Result<(), Full> {
        let Bounded { used, bytes_max, refused } = &*self.0;
        let before = used.fetch_add(bytes, Ordering::Relaxed);
        if before == 0 || before + bytes <= *bytes_max {
            return Ok(());
        }
        used.fetch_sub(bytes, Ordering::Relaxed);
        refused.increment(1);
        Err(Full)
    }
}

impl Held {
    /// Makes the part larger.
    ///
    /// # Errors
    /// There is not so much left.
    pub fn grow(&mut self, bytes: usize) -> Result<(), Full> {
        self.room.take(bytes)?;
        self.bytes += bytes;
        Ok(())
    }

    /// Bytes that hold it for as long as they are somewhere.
    pub fn with(self, bytes: Bytes) -> Bytes {
        Bytes::from_owner(Holding { bytes, _held: self })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.room.0.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl AsRef<[u8]> for Holding {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_room_is_shared_and_given_back() {
        let room = Room::new(10, Counter::noop());
        let mut six = room.hold(6).unwrap();
        assert_eq!(room.hold(5).err(), Some(Full));
        six.grow(4).unwrap();
        assert_eq!((six.grow(1), room.used()), (Err(Full), 10));
        drop(six);
        assert_eq!(room.used(), 0);
    }

    #[test]
    fn what_is_alone_is_never_too_large() {
        let room = Room::new(10, Counter::noop());
        let large = room.hold(100).unwrap();
        assert!(room.hold(1).is_err());
        drop(large);
        assert!(room.hold(1).is_ok());
    }

    #[test]
    fn bytes_hold_their_part_until_the_last_of_them_is_gone() {
        let room = Room::new(10, Counter::noop());
        let mut page = room.hold(4).unwrap().with(Bytes::from_static(b"page"));
        let end = page.split_off(2);
        drop(page);
        assert_eq!((&end[..], room.used()), (&b"ge"[..], 4));
        drop(end);
        assert_eq!(room.used(), 0);
    }
}
