//! A network that fails on command: a TCP proxy in front of a server, on a thread of its own.
//!
//! A change of [`Mode`] applies to data that arrives later, and to data that an earlier mode held
//! back. The bytes of a connection stay in order and complete, as in TCP: if a mode lost some, the
//! connection ends.

use std::future::pending;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc as blocking};
use std::thread;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

use super::process;
use super::servers::free_port;

/// The size of one read; less than a client's or a server's buffers.
const CHUNK_BYTES: usize = 64 * 1024;

/// The most delayed chunks per connection.
const DELAYED_MAX: usize = 4_096;

/// The treatment of data and connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Everything is forwarded.
    Pass,
    /// Every reply is delayed by this time; replies do not delay each other.
    DelayReplies(Duration),
    /// Connections are accepted and kept, nothing is forwarded, until another mode.
    Stall,
    /// All connections are closed, and new ones as soon as they are accepted.
    Cut,
    /// All connections are closed, and the port is closed.
    Refuse,
    /// Half of the next reply is forwarded, then its connection is closed; then [`Mode::Pass`].
    HalveReply,
    /// The first byte of the next reply is replaced by one that begins no reply; then [`Mode::Pass`].
    GarbleReply,
    /// Requests are forwarded and their replies discarded. Connections that lost a reply are closed
    /// at the next mode.
    DropReplies,
}

/// A running proxy; its connections and its port are closed on drop.
pub struct Proxy {
    addr: SocketAddr,
    /// The target of new connections.
    server: watch::Sender<SocketAddr>,
    orders: mpsc::UnboundedSender<Order>,
    counts: Arc<Counts>,
}

/// A mode, and the channel that confirms it.
type Order = (Mode, blocking::Sender<()>);

#[derive(Debug, Default)]
struct Counts {
    accepted: AtomicU64,
    open: AtomicU64,
    request_bytes: AtomicU64,
}

impl Proxy {
    /// Listens on a port of its own and forwards to `server`.
    pub fn before(server: SocketAddr) -> Self {
        let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let (orders, inbox) = mpsc::unbounded_channel();
        let counts = Arc::new(Counts::default());
        let server = watch::Sender::new(server);
        let acceptor = Acceptor {
            addr,
            server: server.subscribe(),
            mode: Arc::new(watch::Sender::new(Mode::Pass)),
            counts: Arc::clone(&counts),
        };
        let (ready, is_ready) = blocking::channel();
        thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(acceptor.run(inbox, ready));
        });
        is_ready.recv().expect("the proxy listens");
        Self { addr, server, orders, counts }
    }

    /// Its address.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Its address as a Redis URL.
    pub fn url(&self) -> String {
        format!("redis://{}", self.addr)
    }

    /// Changes the mode; when this returns, it applies to all connections.
    ///
    /// # Panics
    /// When another process took the port during [`Mode::Refuse`].
    pub fn set(&self, mode: Mode) {
        let (done, is_done) = blocking::channel();
        self.orders.send((mode, done)).expect("the proxy runs");
        is_done.recv().expect("the proxy runs");
    }

    /// Changes the target of new connections; open ones keep theirs.
    pub fn lead_to(&self, server: SocketAddr) {
        self.server.send_replace(server);
    }

    /// The number of accepted connections, including those that were closed at once.
    pub fn accepted(&self) -> u64 {
        self.counts.accepted.load(Ordering::Relaxed)
    }

    /// The number of open connections of callers.
    pub fn open(&self) -> u64 {
        self.counts.open.load(Ordering::Relaxed)
    }

    /// The number of bytes of requests that reached the server's side.
    pub fn request_bytes(&self) -> u64 {
        self.counts.request_bytes.load(Ordering::Relaxed)
    }

    /// Waits until so many connections were accepted since the start.
    ///
    /// # Panics
    /// When that takes longer than `deadline`.
    pub fn wait_for_accepted(&self, accepted: u64, deadline: Duration) {
        process::wait_until(deadline, || (self.accepted() >= accepted).then_some(()))
            .unwrap_or_else(|| panic!("{} connections, {accepted} expected", self.accepted()));
    }
}

struct Acceptor {
    addr: SocketAddr,
    server: watch::Receiver<SocketAddr>,
    mode: Arc<watch::Sender<Mode>>,
    counts: Arc<Counts>,
}

impl Acceptor {
    /// Runs until the [`Proxy`] is dropped; connections end with the runtime.
    async fn run(self, mut orders: mpsc::UnboundedReceiver<Order>, ready: blocking::Sender<()>) {
        let mut listener = Some(self.listen().await);
        ready.send(()).expect("who starts the proxy waits for it");
        loop {
            tokio::select! {
                biased;
                order = orders.recv() => {
                    let Some((mode, done)) = order else { return };
                    if mode == Mode::Refuse {
                        listener = None;
                        self.refused().await;
                    } else if listener.is_none() {
                        listener = Some(self.listen().await);
                    }
                    self.mode.send_replace(mode);
                    if matches!(mode, Mode::Cut | Mode::Refuse) {
                        self.closed().await;
                    }
                    let _ = done.send(());
                }
                accepted = accept(listener.as_ref()) => self.forward(accepted),
            }
        }
    }

    async fn listen(&self) -> TcpListener {
        let listener = TcpListener::bind(self.addr).await;
        listener.unwrap_or_else(|error| panic!("{}: {error}", self.addr))
    }

    /// Waits until the port is closed: a process that is being started inherits it until exec.
    async fn refused(&self) {
        while TcpStream::connect(self.addr).await.is_ok() {}
    }

    /// Waits until every connection has noticed that it is cut.
    async fn closed(&self) {
        while self.counts.open.load(Ordering::Relaxed) > 0 {
            tokio::task::yield_now().await;
        }
    }

    fn forward(&self, caller: TcpStream) {
        self.counts.accepted.fetch_add(1, Ordering::Relaxed);
        // A connection that was still queued when the mode changed never counts as open.
        if *self.mode.borrow() == Mode::Cut {
            return;
        }
        let line = Line { mode: Arc::clone(&self.mode), counts: Arc::clone(&self.counts) };
        line.counts.open.fetch_add(1, Ordering::Relaxed);
        let server = *self.server.borrow();
        tokio::spawn(async move {
            // The end of either side ends both, so callers see it closed.
            let _ = line.connect(caller, server).await;
            line.counts.open.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

async fn accept(listener: Option<&TcpListener>) -> TcpStream {
    let Some(listener) = listener else { return pending().await };
    // Ignores a caller that disconnected before it was accepted.
    loop {
        if let Ok((caller, _)) = listener.accept().await {
            return caller;
        }
    }
}

/// One connection.
struct Line {
    mode: Arc<watch::Sender<Mode>>,
    counts: Arc<Counts>,
}

impl Line {
    async fn connect(&self, caller: TcpStream, server: SocketAddr) -> io::Result<()> {
        let work = async {
            self.until_it_flows().await;
            let server = TcpStream::connect(server).await?;
            caller.set_nodelay(true)?;
            server.set_nodelay(true)?;
            let (from_caller, to_caller) = caller.into_split();
            let (from_server, to_server) = server.into_split();
            tokio::select! {
                end = self.requests(from_caller, to_server) => end,
                end = self.replies(from_server, to_caller) => end,
            }
        };
        tokio::select! {
            biased;
            () = self.until(|mode| matches!(mode, Mode::Cut | Mode::Refuse)) => Ok(()),
            end = work => end,
        }
    }

    async fn requests(&self, mut from: OwnedReadHalf, mut to: OwnedWriteHalf) -> io::Result<()> {
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            let len = from.read(&mut chunk).await?;
            self.until_it_flows().await;
            if len == 0 {
                return Ok(());
            }
            to.write_all(&chunk[..len]).await?;
            self.counts.request_bytes.fetch_add(len as u64, Ordering::Relaxed);
        }
    }

    /// Reads continue while replies are delayed, so that each has its own delay.
    async fn replies(&self, mut from: OwnedReadHalf, mut to: OwnedWriteHalf) -> io::Result<()> {
        let (delayed, mut due) = mpsc::channel::<(Instant, Vec<u8>)>(DELAYED_MAX);
        let read = async {
            let mut chunk = vec![0; CHUNK_BYTES];
            loop {
                let len = from.read(&mut chunk).await?;
                let mode = *self.mode.borrow();
                let delay =
                    if let Mode::DelayReplies(delay) = mode { delay } else { Duration::ZERO };
                let reply = (Instant::now() + delay, chunk[..len].to_vec());
                if len == 0 || delayed.send(reply).await.is_err() {
                    // Data in flight still arrives; then the writer ends the connection.
                    drop(delayed);
                    return pending().await;
                }
            }
        };
        let write = async {
            while let Some((at, reply)) = due.recv().await {
                sleep_until(at).await;
                self.until_it_flows().await;
                if self.loses(&reply, &mut to).await? {
                    return Ok(());
                }
            }
            Ok(())
        };
        tokio::select! { end = read => end, end = write => end }
    }

    /// Forwards a reply according to the mode; returns whether the connection must end.
    async fn loses(&self, reply: &[u8], to: &mut OwnedWriteHalf) -> io::Result<bool> {
        let mode = *self.mode.borrow();
        if mode == Mode::DropReplies {
            self.until(|mode| mode != Mode::DropReplies).await;
            return Ok(true);
        }
        if self.is_next(Mode::GarbleReply) {
            to.write_all(&[&b"\x01"[..], &reply[1..]].concat()).await?;
            return Ok(false);
        }
        let halves = self.is_next(Mode::HalveReply);
        let mut len = if halves { reply.len() / 2 } else { reply.len() };
        if halves && reply[..len].ends_with(b"\r\n") {
            // Not between two replies.
            len -= 1;
        }
        to.write_all(&reply[..len]).await?;
        Ok(halves)
    }

    /// Whether this reply is the one that `mode` is for, which then ends: only one of all
    /// connections has it.
    fn is_next(&self, mode: Mode) -> bool {
        self.mode.send_if_modified(|current| {
            let is_next = *current == mode;
            *current = if is_next { Mode::Pass } else { *current };
            is_next
        })
    }

    async fn until_it_flows(&self) {
        self.until(|mode| mode != Mode::Stall).await;
    }

    async fn until(&self, wanted: impl Fn(Mode) -> bool) {
        let mut mode = self.mode.subscribe();
        // The sender belongs to this connection, so the wait cannot fail.
        let _ = mode.wait_for(|mode| wanted(*mode)).await;
    }
}
