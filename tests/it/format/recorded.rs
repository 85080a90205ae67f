//! The recorded files of each format, and scripts that run on a server.

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tidegate::algorithm::FORMAT;
use tidegate::decide::CounterRequest;
use tidegate::decision::Decision;
use tidegate::store::redis::SCRIPT;
use tidegate::store::redis::wire::{self, Call};

use crate::support::resp::{Connection, Reply};
use crate::support::servers::RedisServer;

/// The folder of one format.
pub fn folder(format: u32) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/format").join(format.to_string())
}

/// The script of a format, as it was when the format was recorded.
pub fn script(format: u32) -> String {
    text(format, "decide.lua", || {
        assert_eq!(format, FORMAT, "only today's script can be recorded");
        SCRIPT.to_owned()
    })
}

/// The lines of a recorded file. One that does not exist yet is recorded, if that is asked for.
pub fn lines(format: u32, name: &str, record: impl FnOnce() -> Vec<Value>) -> Vec<Value> {
    let text = text(format, name, || {
        let lines = record().into_iter().map(|line| format!("{line}\n"));
        lines.collect()
    });
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn text(format: u32, name: &str, record: impl FnOnce() -> String) -> String {
    let path = folder(format).join(name);
    let may_write = std::env::var_os("GOLDEN").is_some_and(|value| value == "write");
    if !path.exists() && may_write {
        fs::create_dir_all(folder(format)).unwrap();
        fs::write(&path, record()).unwrap();
    }
    let hint = "GOLDEN=write records a new format";
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}; {hint}", path.display()))
}

/// Bytes as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes of hexadecimal digits.
pub fn bytes(hex: &str) -> Vec<u8> {
    let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(byte).collect()
}

/// A script that is loaded in a server.
pub struct Script {
    sha: String,
    connection: Connection<TcpStream>,
}

impl Script {
    pub fn load(server: &RedisServer, text: &str) -> Self {
        let mut connection = Connection::open(server.port()).unwrap();
        let sha = connection.command(&["SCRIPT", "LOAD", text]).unwrap().into_text();
        Self { sha, connection }
    }

    /// Decides requests in one run, in their order.
    pub fn decide(&mut self, requests: &[Vec<CounterRequest>], at_ms: u64) -> Vec<Decision> {
        let requests = requests.iter().map(Vec::as_slice);
        let call = Call::of(requests.clone(), Some(at_ms));
        let reply = self.run(&call.keys().collect::<Vec<_>>(), &call.args().collect::<Vec<_>>());
        wire::decisions(requests, &reply).unwrap().collect()
    }

    /// Runs the script.
    pub fn run(&mut self, keys: &[&[u8]], args: &[&[u8]]) -> Vec<u8> {
        let count = keys.len().to_string();
        let head: [&[u8]; 3] = [b"EVALSHA", self.sha.as_bytes(), count.as_bytes()];
        self.connection.command(&[&head, keys, args].concat()).unwrap().into_bytes()
    }

    /// The stored bytes of a key.
    pub fn stored(&mut self, key: &[u8]) -> Option<Vec<u8>> {
        let reply = self.connection.command(&[b"GET", key]).unwrap();
        (reply != Reply::Nil).then(|| reply.into_bytes())
    }

    /// Stores bytes under a key.
    pub fn store(&mut self, key: &[u8], bytes: &[u8]) {
        let reply = self.connection.command(&[b"SET", key, bytes]).unwrap();
        assert_eq!(reply, Reply::Status("OK".to_owned()));
    }
}
