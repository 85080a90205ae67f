//! RESP 2 for tests: commands over a connection of their own, and their replies.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

/// The deadline of one reply; a paused server does not answer.
pub const REPLY_DEADLINE: Duration = Duration::from_secs(5);

/// A server's reply (RESP 2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// No such key, or a nil array.
    Nil,
    /// A whole number.
    Int(i64),
    /// Any bytes.
    Bulk(Vec<u8>),
    /// A word such as OK.
    Status(String),
    /// An error, such as `WRONGTYPE …`.
    Error(String),
    /// Replies in order.
    Array(Vec<Reply>),
}

impl Reply {
    /// The bytes of a bulk reply.
    ///
    /// # Panics
    /// When it is of another kind.
    pub fn into_bytes(self) -> Vec<u8> {
        let Self::Bulk(bytes) = self else { panic!("bytes expected: {self:?}") };
        bytes
    }

    /// The text of a bulk reply or a status.
    ///
    /// # Panics
    /// When it is of another kind, or not UTF-8.
    pub fn into_text(self) -> String {
        if let Self::Status(text) = self {
            return text;
        }
        String::from_utf8(self.into_bytes()).expect("UTF-8")
    }

    /// A non-negative integer.
    ///
    /// # Panics
    /// When it is of another kind.
    pub fn into_count(self) -> u64 {
        let Self::Int(number) = self else { panic!("a number expected: {self:?}") };
        u64::try_from(number).expect("not negative")
    }

    /// The replies of an array.
    ///
    /// # Panics
    /// When it is of another kind.
    pub fn into_array(self) -> Vec<Self> {
        let Self::Array(replies) = self else { panic!("an array expected: {self:?}") };
        replies
    }
}

/// The value of the line `name:value` of an INFO text.
pub fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
}

/// Sends one command to a local port, over a new connection.
///
/// # Errors
/// The connection is refused, or no reply comes in time.
pub fn ask<A: AsRef<[u8]>>(port: u16, args: &[A]) -> io::Result<Reply> {
    Connection::open(port)?.command(args)
}

/// A connection, over TCP or what is built on it.
pub struct Connection<S: Read>(BufReader<S>);

impl Connection<TcpStream> {
    /// Connects to a local port.
    ///
    /// # Errors
    /// The connection is refused.
    pub fn open(port: u16) -> io::Result<Self> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_read_timeout(Some(REPLY_DEADLINE))?;
        stream.set_nodelay(true)?;
        Ok(Self::over(stream))
    }

    /// Sets the deadline of further replies, instead of [`REPLY_DEADLINE`].
    pub fn wait_at_most(&self, deadline: Duration) {
        self.0.get_ref().set_read_timeout(Some(deadline)).expect("a deadline can be set");
    }
}

impl<S: Read + Write> Connection<S> {
    /// Uses a connected stream.
    pub fn over(stream: S) -> Self {
        Self(BufReader::new(stream))
    }

    /// Sends one command and reads its reply.
    ///
    /// # Errors
    /// When no whole reply comes.
    pub fn command<A: AsRef<[u8]>>(&mut self, args: &[A]) -> io::Result<Reply> {
        self.send(args)?;
        self.reply()
    }

    /// Sends one command.
    ///
    /// # Errors
    /// When the connection is closed.
    pub fn send<A: AsRef<[u8]>>(&mut self, args: &[A]) -> io::Result<()> {
        let mut request = format!("*{}\r\n", args.len()).into_bytes();
        for arg in args {
            let arg = arg.as_ref();
            request.extend(format!("${}\r\n", arg.len()).into_bytes());
            request.extend(arg);
            request.extend(b"\r\n");
        }
        let stream = self.0.get_mut();
        stream.write_all(&request)?;
        stream.flush()
    }

    /// Reads the reply to a command that was sent.
    ///
    /// # Errors
    /// When no whole reply comes.
    pub fn reply(&mut self) -> io::Result<Reply> {
        read_reply(&mut self.0)
    }
}

fn read_reply(stream: &mut impl BufRead) -> io::Result<Reply> {
    let mut line = Vec::new();
    stream.read_until(b'\n', &mut line)?;
    let Some([kind, text @ ..]) = line.strip_suffix(b"\r\n") else {
        return Err(io::ErrorKind::UnexpectedEof.into());
    };
    let text = String::from_utf8_lossy(text);
    match kind {
        b'+' => Ok(Reply::Status(text.into_owned())),
        b'-' => Ok(Reply::Error(text.into_owned())),
        b':' => text.parse().map(Reply::Int).map_err(io::Error::other),
        b'$' | b'*' if text == "-1" => Ok(Reply::Nil),
        b'$' => {
            let len: usize = text.parse().map_err(io::Error::other)?;
            let mut bytes = vec![0; len + 2];
            stream.read_exact(&mut bytes)?;
            bytes.truncate(len);
            Ok(Reply::Bulk(bytes))
        }
        b'*' => {
            let len: usize = text.parse().map_err(io::Error::other)?;
            (0..len).map(|_| read_reply(stream)).collect::<io::Result<_>>().map(Reply::Array)
        }
        _ => Err(io::Error::other(format!("not RESP 2: {}", line.escape_ascii()))),
    }
}
