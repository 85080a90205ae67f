//! Which of several independent servers has a hash tag: consistent hashing.
//!
//! Each server stands on a ring of 64-bit numbers at [`POINTS`] positions, `hash("HOST:PORT#i")` for i
//! from 0, in decimal; a tag belongs to the server at the first position that is not below `hash(tag)`,
//! or at the lowest position of all where there is none. Where two servers share a position, the name that
//! comes first in the order of bytes has it. So the order in which servers are named means nothing, and
//! one more server takes 1/n of the tags, from all the others alike.
//!
//! The hash is SipHash-2-4 with a key of zeros: it is specified with test vectors, libraries for it
//! exist for most languages, its bits are even without mixing (FNV-1a's are not on short texts), it is
//! made for short texts, and this program needs the crate anyway. Its key is public: who may choose values
//! of `slot_by` can choose a server, as with any ring that others shall be able to compute.
//!
//! 1,024 positions a server hold the fullest one below 1.15 times the mean: shares spread by one part in
//! the root of the positions, 3 %, so that 15 % is beyond any 16 servers' luck. 160, as often seen, give 8 %.

use std::hash::Hasher;

use siphasher::sip::SipHasher24;

/// Places on the ring for each server.
pub const POINTS: u16 = 1_024;

/// Servers by hash tags.
#[derive(Clone, Debug)]
pub struct Ring {
    /// By position.
    points: Box<[Point]>,
}

#[derive(Clone, Copy, Debug)]
struct Point {
    position: u64,
    /// Where the server stands among the names that the ring was made of.
    server: usize,
}

impl Ring {
    /// The ring of servers by their names, `HOST:PORT`. Without a name there is no ring.
    pub fn new<N: AsRef<str>>(names: &[N]) -> Option<Self> {
        let points_of = |(server, name): (usize, &N)| {
            let name = name.as_ref().to_owned();
            let position = move |point| hash(format!("{name}#{point}").as_bytes());
            (0..POINTS).map(move |point| Point { position: position(point), server })
        };
        let mut points: Vec<_> = names.iter().enumerate().flat_map(points_of).collect();
        points.sort_by_key(|point| (point.position, names[point.server].as_ref()));
        (!points.is_empty()).then(|| Self { points: points.into() })
    }

    /// Which server has a tag: where it stands among the names that the ring was made of.
    pub fn server_of(&self, tag: &[u8]) -> usize {
        let position = hash(tag);
        let at = self.points.partition_point(|point| point.position < position);
        // Past the last position comes the first; there is one, for no ring is empty.
        self.points[if at < self.points.len() { at } else { 0 }].server
    }
}

/// SipHash-2-4 with a key of zeros.
fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = SipHasher24::new();
    hasher.write(bytes);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The position of `HOST:PORT#i`, on either side of which tags change hands.
    fn ring(points: &[(u64, usize)]) -> Ring {
        let points =
            points.iter().map(|(position, server)| Point { position: *position, server: *server });
        Ring { points: points.collect() }
    }

    #[test]
    fn the_hash_is_siphash_2_4_as_published() {
        // The reference implementation's first vectors have the key 00 01 … 0f.
        let published = |len: u8| {
            let key: [u8; 16] = std::array::from_fn(|at| u8::try_from(at).unwrap());
            let mut hasher = SipHasher24::new_with_key(&key);
            hasher.write(&(0..len).collect::<Vec<_>>());
            hasher.finish()
        };
        assert_eq!(published(0), 0x726f_db47_dd0e_0e31);
        assert_eq!(published(15), 0xa129_ca61_49be_45e5);
        assert_eq!(hash(b""), 0x1e92_4b9d_7377_00d7);
    }

    #[test]
    fn a_tag_belongs_to_the_first_place_not_below_it_and_past_the_last_to_the_first() {
        let edge = hash(b"edge");
        assert_eq!(ring(&[(0, 7), (edge, 1), (edge + 1, 2)]).server_of(b"edge"), 1);
        assert_eq!(ring(&[(0, 7), (edge - 1, 1), (edge + 1, 2)]).server_of(b"edge"), 2);
        assert_eq!(ring(&[(0, 7), (edge - 1, 1)]).server_of(b"edge"), 7);
        assert_eq!(ring(&[(edge, 3), (edge, 4)]).server_of(b"edge"), 3);
    }

    #[test]
    fn one_server_has_all_and_none_is_no_ring() {
        assert!(Ring::new::<&str>(&[]).is_none());
        assert_eq!(Ring::new(&["redis:6379"]).unwrap().server_of(b"edge"), 0);
    }
}
