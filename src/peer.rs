//! The addresses that connections come from, and how much of shared budgets each of them holds.
//!
//! A caller with many connections must not get more than one with few. So connections from one address
//! count together: from one IPv4 address, or from one /64 of IPv6, which is what one machine usually
//! has. A trusted proxy's address stands for many callers, and a Unix socket has no address: there
//! each connection counts by itself.

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

/// Peers that are added before those without connections are removed.
const ADDED_MAX: usize = 1_024;

/// A range of addresses, such as `10.1.0.0/16`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    addr: Ipv6Addr,
    bits: u32,
}

/// The part of an address that callers have in common. IPv4 is mapped to IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct PeerKey(u128);

/// The address of one or more connections. Its fields are bytes reserved from the budgets of the same
/// names, by all its connections together.
#[derive(Debug, Default)]
pub struct Peer {
    /// For open calls.
    pub open_calls: Arc<AtomicUsize>,
    /// For messages that arrive slowly.
    pub slow_messages: Arc<AtomicUsize>,
    /// For long-lived streams.
    pub streams: Arc<AtomicUsize>,
    /// For pages that are read slowly.
    pub unread_pages: Arc<AtomicUsize>,
}

/// All peers with connections.
#[derive(Debug)]
pub struct Peers {
    trusted: Vec<Network>,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    peers: HashMap<PeerKey, Weak<Peer>>,
    added: usize,
}

impl Peers {
    /// No peers yet. Connections from `trusted` networks count one by one.
    pub fn new(trusted: Vec<Network>) -> Self {
        Self { trusted, known: Mutex::default() }
    }

    /// The peer of a new connection; `None` if the connection counts by itself.
    pub fn of(&self, addr: Option<IpAddr>) -> Option<Arc<Peer>> {
        let addr = addr.map(mapped).filter(|addr| !self.trusts(*addr))?;
        let known = &mut *self.known.lock();
        let key = PeerKey::of(addr);
        if let Some(peer) = known.peers.get(&key).and_then(Weak::upgrade) {
            return Some(peer);
        }
        known.added += 1;
        if known.added > ADDED_MAX {
            known.peers.retain(|_, peer| peer.strong_count() > 0);
            known.added = 0;
        }
        let peer = Arc::new(Peer::default());
        known.peers.insert(key, Arc::downgrade(&peer));
        Some(peer)
    }

    fn trusts(&self, addr: Ipv6Addr) -> bool {
        self.trusted.iter().any(|network| network.contains(addr))
    }
}

impl PeerKey {
    fn of(addr: Ipv6Addr) -> Self {
        let whole = addr.to_bits();
        Self(if addr.to_ipv4_mapped().is_some() { whole } else { whole >> 64 << 64 })
    }
}

impl Network {
    fn contains(self, addr: Ipv6Addr) -> bool {
        let differ = self.addr.to_bits() ^ addr.to_bits();
        differ.leading_zeros() >= self.bits
    }
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "is not an address or network, such as 10.1.0.0/16 or fd00::/8".to_owned();
        let (addr, bits) = text.split_once('/').map_or((text, None), |(a, b)| (a, Some(b)));
        let addr: IpAddr = addr.parse().map_err(|_not_an_address| wrong())?;
        let bits_max = if addr.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            None => Some(bits_max),
            Some(bits) => bits.parse().ok().filter(|bits| *bits <= bits_max),
        };
        let bits = bits.ok_or_else(wrong)?;
        Ok(Self { addr: mapped(addr), bits: 128 - bits_max + bits })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.addr.to_ipv4_mapped() {
            Some(addr) if self.bits >= 96 => write!(f, "{addr}/{}", self.bits - 96),
            _ => write!(f, "{}/{}", self.addr, self.bits),
        }
    }
}

fn mapped(addr: IpAddr) -> Ipv6Addr {
    match addr {
        IpAddr::V4(addr) => addr.to_ipv6_mapped(),
        IpAddr::V6(addr) => addr,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peers(trusted: &[&str]) -> Peers {
        Peers::new(trusted.iter().map(|network| network.parse().unwrap()).collect())
    }

    fn addr(text: &str) -> Option<IpAddr> {
        Some(text.parse().unwrap())
    }

    #[test]
    fn connections_from_one_address_or_one_64_count_together() {
        let peers = peers(&[]);
        let of = |text| peers.of(addr(text)).unwrap();
        for (one, other, same) in [
            ("10.0.0.1", "10.0.0.1", true),
            ("10.0.0.1", "::ffff:10.0.0.1", true),
            ("10.0.0.1", "10.0.0.2", false),
            ("2001:db8:0:1::1", "2001:db8:0:1:ffff::2", true),
            ("2001:db8:0:1::1", "2001:db8:0:2::1", false),
        ] {
            let (one_peer, other_peer) = (of(one), of(other));
            assert_eq!(Arc::ptr_eq(&one_peer, &other_peer), same, "{one} {other}");
        }
    }

    #[test]
    fn connections_of_trusted_peers_and_of_unix_sockets_count_by_themselves() {
        let peers = peers(&["10.1.0.0/16", "fd00::/8", "192.0.2.7"]);
        for trusted in ["10.1.2.3", "::ffff:10.1.2.3", "fd12::1", "192.0.2.7"] {
            assert!(peers.of(addr(trusted)).is_none(), "{trusted}");
        }
        for other in ["10.2.0.1", "fe80::1", "192.0.2.8"] {
            assert!(peers.of(addr(other)).is_some(), "{other}");
        }
        assert!(peers.of(None).is_none());
    }

    #[test]
    fn peers_without_connections_are_forgotten() {
        let peers = peers(&[]);
        let kept = peers.of(addr("10.0.0.1"));
        for number in 0..10 * u32::try_from(ADDED_MAX).unwrap() {
            drop(peers.of(Some(IpAddr::V4((0xc000_0000 + number).into()))));
        }
        assert!(peers.known.lock().peers.len() <= 1 + ADDED_MAX);
        assert!(Arc::ptr_eq(&kept.unwrap(), &peers.of(addr("10.0.0.1")).unwrap()));
    }

    #[test]
    fn a_network_is_an_address_with_the_bits_that_count() {
        for (text, shown) in [
            ("10.1.0.0/16", "10.1.0.0/16"),
            ("192.0.2.7", "192.0.2.7/32"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("fd00::/8", "fd00::/8"),
            ("::/0", "::/0"),
        ] {
            assert_eq!(text.parse::<Network>().unwrap().to_string(), shown);
        }
        for wrong in ["", "10.1", "10.1.0.0/33", "10.1.0.0/x", "fd00::/129", "/8"] {
            assert!(wrong.parse::<Network>().is_err(), "{wrong}");
        }
    }
}
