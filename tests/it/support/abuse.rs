//! Callers that exhaust memory and time of the service.
//!
//! They write handmade bytes into plain connections: a fixed number, so that bytes that the service
//! does not read queue up nowhere in this process.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::oneshot;
use tokio::time::{interval, timeout};

use super::client::{Request, request};
use super::fleet::framed;

/// The start of an HTTP/2 connection: the preface and empty SETTINGS.
pub const HELLO: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// The same, with an initial window of 0 bytes.
const HELLO_OF_A_SLOW_READER: &[u8] =
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\x06\x04\0\0\0\0\0\0\x04\0\0\0\0";

const CHECK: &str = "/tidegate.v1.RateLimitService/CheckRateLimit";

const REFLECTION: &str = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";

/// Descriptors of a call whose answer is large.
const DESCRIPTORS: usize = 256;

/// The delay before a caller that was disconnected, or is done, starts again.
const AGAIN: Duration = Duration::from_millis(500);

/// The interval of repeated actions.
const PACE: Duration = Duration::from_millis(250);

/// The maximum duration of a connection that is not disconnected.
const PATIENCE: Duration = Duration::from_secs(60);

/// Calls per slow reader.
const CALLS: u32 = 50;

/// Streams that a connection may have open.
const STREAMS_MAX: usize = 256;

/// Messages whose parts fit the initial and the later flow-control windows of the service.
const MESSAGES: u32 = 16;
const MESSAGE_PARTS: usize = 15;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RST_STREAM: u8 = 3;
const PING: u8 = 6;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// The kinds of abuse.
#[derive(Clone, Copy, Debug)]
pub enum Abuse {
    /// Header blocks that never end, in many frames.
    EndlessHeaders,
    /// Header blocks that never end, in large frames.
    LargeHeaders,
    /// Calls that are reset at once.
    Resets,
    /// Frames outside of calls that require an answer: PING.
    Pings,
    /// Frames outside of calls without an answer: PRIORITY.
    Priorities,
    /// Calls whose answers are never read.
    SlowReader,
    /// Messages that arrive slowly, and claim to have 4 MiB.
    SlowMessages,
    /// Messages that claim to have 1 GiB.
    HugeMessages,
    /// Calls without a message, as many as a connection may have.
    CallsWithoutMessage,
    /// Calls with large answers that are never read.
    UnreadLargeAnswers,
    /// Streams of reflection whose answers are never read.
    UnreadReflection,
    /// The start of a connection, and nothing more.
    Idle,
    /// HTTP/1: headers that never end.
    EndlessHeadersOfPages,
    /// HTTP/1: bodies that arrive slowly.
    SlowBodies,
    /// HTTP/1: pages that are requested and never read.
    UnreadPages,
}

/// Callers that run until they are dropped.
pub struct Abusers {
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    turns: Arc<AtomicU64>,
}

impl Abusers {
    /// Starts so many connections of each kind, on a thread of their own.
    pub fn start(addr: SocketAddr, kinds: &[Abuse], each: usize) -> Self {
        let (end, ended) = oneshot::channel();
        let turns = Arc::new(AtomicU64::new(0));
        let (kinds, counted) = (kinds.to_vec(), Arc::clone(&turns));
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async {
                for kind in kinds {
                    for _ in 0..each {
                        tokio::spawn(go_on(addr, kind, Arc::clone(&counted)));
                    }
                }
                // The only message is the end.
                let _ = ended.await;
            });
        });
        Self { end: Some(end), thread: Some(thread), turns }
    }

    /// The number of times that one of them started again.
    pub fn turns(&self) -> u64 {
        self.turns.load(Ordering::Relaxed)
    }
}

impl Drop for Abusers {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn go_on(addr: SocketAddr, kind: Abuse, turns: Arc<AtomicU64>) {
    let mut again = interval(AGAIN);
    loop {
        again.tick().await;
        let Ok(stream) = TcpStream::connect(addr).await else { continue };
        // A turn may end in any way.
        let _ = timeout(PATIENCE, turn(kind, stream)).await;
        turns.fetch_add(1, Ordering::Relaxed);
    }
}

/// Returns when the connection ends, or after the last byte.
async fn turn(kind: Abuse, stream: TcpStream) -> io::Result<()> {
    let reads = !matches!(
        kind,
        Abuse::SlowReader
            | Abuse::UnreadPages
            | Abuse::UnreadLargeAnswers
            | Abuse::UnreadReflection
    );
    let (read, write) = stream.into_split();
    let write = async move {
        match kind {
            Abuse::EndlessHeaders => endless_headers(write, &literals(1)).await,
            Abuse::LargeHeaders => endless_headers(write, &literals(16)).await,
            Abuse::Resets => resets(write).await,
            Abuse::Pings => again_and_again(write, &frame(PING, 0, 0, &[0; 8])).await,
            Abuse::Priorities => again_and_again(write, &frame(PRIORITY, 0, 1, &[0; 5])).await,
            Abuse::SlowReader => slow_reader(write).await,
            Abuse::SlowMessages => slow_messages(write).await,
            Abuse::HugeMessages => huge_messages(write).await,
            Abuse::CallsWithoutMessage => calls_without_message(write).await,
            Abuse::UnreadLargeAnswers => unread_large_answers(write).await,
            Abuse::UnreadReflection => unread_reflection(write).await,
            Abuse::Idle => idle(write).await,
            Abuse::EndlessHeadersOfPages => {
                trickle(write, b"GET /healthz HTTP/1.1\r\nx-abuse: ").await
            }
            Abuse::SlowBodies => {
                trickle(write, b"POST /json HTTP/1.1\r\ncontent-length: 4000000\r\n\r\n{").await
            }
            Abuse::UnreadPages => unread_pages(write).await,
        }
    };
    if reads {
        tokio::select! {
            written = write => written,
            () = discard(read) => Ok(()),
        }
    } else {
        write.await
    }
}

/// Returns when the connection ends.
async fn discard(mut read: OwnedReadHalf) {
    let mut bytes = [0; 1 << 10];
    while read.read(&mut bytes).await.is_ok_and(|count| count > 0) {}
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a frame is small").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The headers of a call that checks a limit.
fn head(stream: u32) -> Vec<u8> {
    head_of(CHECK, stream)
}

/// The headers of a call as literals: the dynamic table is empty.
fn head_of(path: &str, stream: u32) -> Vec<u8> {
    let text = |text: &str| [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
    let mut block = vec![0x83, 0x86, 0x04];
    block.extend(text(path));
    block.push(0x01);
    block.extend(text("abused"));
    block.extend([0x0f, 0x10]);
    block.extend(text("application/grpc"));
    frame(HEADERS, END_HEADERS, stream, &block)
}

/// Odd stream ids, as clients use.
fn streams(count: u32) -> impl Iterator<Item = u32> {
    (0..count).map(|number| 2 * number + 1)
}

/// Literals without indexing, complete within the frame: "x-abuse" and 1,012 letters.
fn literals(count: usize) -> Vec<u8> {
    let mut literal = b"\0\x07x-abuse\x7f\xf5\x06".to_vec();
    literal.resize(1 << 10, b'a');
    literal.repeat(count)
}

async fn endless_headers(mut write: OwnedWriteHalf, part: &[u8]) -> io::Result<()> {
    write.write_all(HELLO).await?;
    write.write_all(&frame(HEADERS, 0, 1, &[])).await?;
    let part = frame(CONTINUATION, 0, 1, part);
    let mut pace = interval(PACE);
    loop {
        pace.tick().await;
        write.write_all(&part).await?;
    }
}

/// Writes a frame as often as it is accepted.
async fn again_and_again(mut write: OwnedWriteHalf, frame: &[u8]) -> io::Result<()> {
    write.write_all(HELLO).await?;
    let many = frame.repeat(1_000);
    loop {
        write.write_all(&many).await?;
    }
}

async fn resets(mut write: OwnedWriteHalf) -> io::Result<()> {
    write.write_all(HELLO).await?;
    let taken_back = |stream| [head(stream), frame(RST_STREAM, 0, stream, &[0, 0, 0, 8])].concat();
    let mut pace = interval(PACE);
    let mut calls = streams(10_000).map(taken_back);
    loop {
        pace.tick().await;
        // All in one write, so that they are reset before the service has read them.
        let some: Vec<u8> = calls.by_ref().take(100).flatten().collect();
        if some.is_empty() {
            return Ok(());
        }
        write.write_all(&some).await?;
    }
}

async fn slow_reader(mut write: OwnedWriteHalf) -> io::Result<()> {
    write.write_all(HELLO_OF_A_SLOW_READER).await?;
    let message = framed(&request("edge").about("k", "unread").check());
    for stream in streams(CALLS) {
        write.write_all(&head(stream)).await?;
        write.write_all(&frame(DATA, END_STREAM, stream, &message)).await?;
    }
    until_closed(write).await
}

/// Sends a few bytes now and then, to detect a closed connection.
async fn until_closed(mut write: OwnedWriteHalf) -> io::Result<()> {
    let mut pace = interval(PACE);
    loop {
        pace.tick().await;
        write.write_all(&frame(PING, 0, 0, b"a ping..")).await?;
    }
}

async fn unread_large_answers(mut write: OwnedWriteHalf) -> io::Result<()> {
    write.write_all(HELLO_OF_A_SLOW_READER).await?;
    let about = |request: Request, number: usize| request.about("k", number.to_string());
    let message = framed(&(0..DESCRIPTORS).fold(request("edge"), about).check());
    for stream in streams(100) {
        write.write_all(&head(stream)).await?;
        write.write_all(&frame(DATA, END_STREAM, stream, &message)).await?;
    }
    until_closed(write).await
}

async fn unread_reflection(mut write: OwnedWriteHalf) -> io::Result<()> {
    write.write_all(HELLO_OF_A_SLOW_READER).await?;
    let symbol = b"envoy.service.ratelimit.v3.RateLimitService";
    // Field 4, a text.
    let length = u8::try_from(symbol.len()).expect("it is short");
    let message = [&[0, 0, 0, 0, length + 2, 0x22, length], &symbol[..]].concat();
    for stream in streams(4) {
        write.write_all(&head_of(REFLECTION, stream)).await?;
        for _ in 0..100 {
            write.write_all(&frame(DATA, 0, stream, &message)).await?;
        }
    }
    until_closed(write).await
}

async fn slow_messages(mut write: OwnedWriteHalf) -> io::Result<()> {
    write.write_all(HELLO).await?;
    for stream in streams(MESSAGES) {
        write.write_all(&head(stream)).await?;
        write.write_all(&frame(DATA, 0, stream, b"\0\0\x3f\xff\xff")).await?;
    }
    let part = vec![b'a'; 3 << 10];
    let mut pace = interval(PACE);
    for _ in 0..MESSAGE_PARTS {
        pace.tick().await;
        for stream in streams(MESSAGES) {
            write.write_all(&frame(DATA, 0, stream, &part)).await?;
        }
    }
    Ok(())
}

async fn calls_without_message(mut write: OwnedWriteHalf) -> io::Result<()> {
    write.write_all(HELLO).await?;
    let mut calls = streams(2_000).map(head);
    write.write_all(&calls.by_ref().take(STREAMS_MAX).flatten().collect::<Vec<_>>()).await?;
    // Others in place of those that the service gave up.
    let mut pace = interval(PACE);
    for call in calls {
        pace.tick().await;
        write.write_all(&call).await?;
    }
    Ok(())
}

async fn idle(mut write: OwnedWriteHalf) -> io::Result<()> {
    write.write_all(HELLO).await?;
    std::future::pending().await
}

async fn huge_messages(mut write: OwnedWriteHalf) -> io::Result<()> {
    write.write_all(HELLO).await?;
    let part = vec![b'a'; 15 << 10];
    let mut pace = interval(PACE);
    for stream in streams(MESSAGES) {
        pace.tick().await;
        write.write_all(&head(stream)).await?;
        write.write_all(&frame(DATA, 0, stream, b"\0\x40\0\0\0")).await?;
        for _ in 0..4 {
            write.write_all(&frame(DATA, 0, stream, &part)).await?;
        }
    }
    Ok(())
}

/// HTTP/1 with ever more bytes.
async fn trickle(mut write: OwnedWriteHalf, begin: &[u8]) -> io::Result<()> {
    write.write_all(begin).await?;
    let part = vec![b'a'; 8 << 10];
    let mut pace = interval(PACE);
    loop {
        pace.tick().await;
        write.write_all(&part).await?;
    }
}

async fn unread_pages(mut write: OwnedWriteHalf) -> io::Result<()> {
    for _ in 0..1_000 {
        write.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").await?;
    }
    std::future::pending().await
}

/// Waits until the service closes a connection on which `bytes` were sent.
///
/// # Panics
/// When it does not.
pub async fn closes_after(addr: SocketAddr, bytes: &[u8], within: Duration) {
    let mut stream = TcpStream::connect(addr).await.expect("the service listens");
    stream.write_all(bytes).await.expect("bytes can be sent");
    let mut printed = vec![];
    let end = timeout(within, stream.read_to_end(&mut printed)).await;
    // Closed, or reset.
    assert!(end.is_ok(), "still open after {within:?}");
}
