//! A server in the place of Redis that answers every connection with bytes meant to harm.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// What it sends once a client has sent a first byte.
#[derive(Clone, Copy, Debug)]
pub enum Harm {
    /// Arrays within arrays.
    NestedArrays,
    /// The head of a string of 4 GiB, and its bytes.
    EndlessBulk,
    /// A line without an end.
    EndlessLine,
    /// An array of 4 billion numbers, and its numbers.
    EndlessArray,
    /// An array of 30,000 numbers, each in a packet of its own.
    SlowArray,
    /// Replies that nobody asked for.
    EndlessReplies,
    /// A reply of RESP3, which was not asked for, within itself.
    NestedMaps,
    /// An error of 60 KB with characters that control a terminal.
    LongError,
}

impl Harm {
    /// Each of them.
    pub const ALL: [Self; 8] = [
        Self::NestedArrays,
        Self::EndlessBulk,
        Self::EndlessLine,
        Self::EndlessArray,
        Self::SlowArray,
        Self::EndlessReplies,
        Self::NestedMaps,
        Self::LongError,
    ];

    /// What comes first, and what is repeated, if anything.
    fn bytes(self) -> (Vec<u8>, Vec<u8>) {
        let repeated = |part: &str, times: usize| part.repeat(times).into_bytes();
        match self {
            Self::NestedArrays => (repeated("*1\r\n", 8 << 10), vec![]),
            Self::EndlessBulk => (b"$4294967296\r\n".to_vec(), vec![b'a'; 1 << 16]),
            Self::EndlessLine => (b"+".to_vec(), vec![b'a'; 1 << 16]),
            Self::EndlessArray => (b"*4294967295\r\n".to_vec(), repeated(":1\r\n", 1 << 14)),
            Self::SlowArray => (b"*30000\r\n".to_vec(), b":1\r\n".to_vec()),
            Self::EndlessReplies => (vec![], repeated("+OK\r\n", 1 << 14)),
            Self::NestedMaps => (repeated("%1\r\n", 8 << 10), vec![]),
            Self::LongError => {
                let text = "\x1b[31mred\u{202e}".repeat(5 << 10);
                (format!("-ERR {text}\r\n").into_bytes(), vec![])
            }
        }
    }
}

/// A listening server. Its threads end with its last connection.
pub struct HostileRedis {
    addr: SocketAddr,
    connections: Arc<AtomicUsize>,
}

impl HostileRedis {
    /// Listens on a port of its own.
    pub fn start(harm: Harm) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
        let addr = listener.local_addr().expect("it listens");
        let connections = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&connections);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                counted.fetch_add(1, Ordering::Relaxed);
                thread::spawn(move || answer(stream, harm));
            }
        });
        Self { addr, connections }
    }

    /// Its URL for `--store`.
    pub fn url(&self) -> String {
        format!("redis://{}", self.addr)
    }

    /// Connections so far.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

/// Returns when the client closes the connection.
fn answer(mut stream: TcpStream, harm: Harm) {
    // Otherwise the kernel joins packets.
    let _ = stream.set_nodelay(true);
    let (first, then) = harm.bytes();
    let mut asked = [0; 4_096];
    while stream.read(&mut asked).is_ok_and(|bytes| bytes > 0) {
        if stream.write_all(&first).is_err() {
            return;
        }
        let times = if matches!(harm, Harm::SlowArray) {
            30_000
        } else if then.is_empty() {
            0
        } else {
            usize::MAX
        };
        if !(0..times).all(|_| stream.write_all(&then).is_ok()) {
            return;
        }
    }
}
