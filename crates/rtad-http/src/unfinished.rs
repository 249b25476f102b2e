//! Requests whose bodies are incomplete: a limit for all, and one per peer.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};

use parking_lot::Mutex;

/// Counts requests that wait for the rest of their bodies.
#[derive(Debug)]
pub struct Unfinished {
    limit: usize,
    peers: Mutex<Peers>,
}

#[derive(Debug, Default)]
struct Peers {
    total: usize,
    by_peer: HashMap<IpAddr, usize>,
}

impl Unfinished {
    /// Allows up to `limit` requests. One peer may have half of them: it cannot shed all others.
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            peers: Mutex::default(),
        }
    }

    /// A permit to wait; `None` at a limit. The 2^64 addresses of an IPv6 network are one peer.
    pub fn permit(&self, peer: IpAddr) -> Option<UnfinishedPermit<'_>> {
        let peer = network_of(peer);
        let mut peers = self.peers.lock();
        let of_peer = peers.by_peer.get(&peer).copied().unwrap_or(0);
        if peers.total >= self.limit || of_peer >= self.limit.div_ceil(2) {
            return None;
        }
        peers.total += 1;
        peers.by_peer.insert(peer, of_peer + 1);
        Some(UnfinishedPermit {
            unfinished: self,
            peer,
        })
    }
}

/// A permit to wait for a body; returned when dropped.
#[derive(Debug)]
pub struct UnfinishedPermit<'a> {
    unfinished: &'a Unfinished,
    peer: IpAddr,
}

impl Drop for UnfinishedPermit<'_> {
    fn drop(&mut self) {
        let mut peers = self.unfinished.peers.lock();
        peers.total -= 1;
        match peers.by_peer.get_mut(&self.peer) {
            Some(count) if *count > 1 => *count -= 1,
            _ => {
                peers.by_peer.remove(&self.peer);
            }
        }
    }
}

/// The address, or the /64 network of an IPv6 address.
fn network_of(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => {
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)))
        }
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_peer_gets_half_and_all_get_the_limit() {
        let unfinished = Unfinished::new(4);
        let peer = |text: &str| text.parse::<IpAddr>().unwrap();
        let permit = |text| unfinished.permit(peer(text));
        let one = [permit("10.0.0.1"), permit("::ffff:10.0.0.1")];
        assert!(one.iter().all(Option::is_some));
        assert!(permit("10.0.0.1").is_none());
        let others = [permit("2001:db8::1"), permit("2001:db8::2:0:0:1")];
        assert!(others.iter().all(Option::is_some));
        assert!(permit("10.0.0.2").is_none(), "the limit of all");
        drop(one);
        assert!(permit("2001:db8:0:0:ffff::").is_none(), "the same network");
        assert!(permit("2001:db8:0:1::").is_some());
        drop(others);
        assert!(unfinished.peers.lock().by_peer.is_empty());
        assert!(Unfinished::new(1).permit(peer("10.0.0.1")).is_some());
    }
}
