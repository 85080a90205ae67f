//! Listeners: a TCP port, or a Unix socket.

use std::fs::{self, Permissions};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream as Probe;
use std::path::{Path, PathBuf};

use tokio::net::{TcpListener, TcpSocket, TcpStream, UnixListener, UnixStream};
use tokio_util::either::Either;

use crate::settings::Address;

/// Bytes of unread answers that the kernel buffers per connection. Linux doubles this figure.
const SEND_BUFFER: u32 = 256 << 10;

/// The listen backlog.
const BACKLOG: u32 = 1_024;

/// Permissions of a Unix socket: our user and our group may connect.
const MODE: u32 = 0o660;

/// Advice for an address that cannot be bound.
const FIXES: [(ErrorKind, &str); 5] = [
    (ErrorKind::AddrInUse, "another process listens there; end it, or choose another address"),
    (ErrorKind::AddrNotAvailable, "this machine has no such address; 0.0.0.0 is all that it has"),
    (
        ErrorKind::PermissionDenied,
        "ports below 1024 need a privilege, and a socket a folder that we may write to",
    ),
    (ErrorKind::AlreadyExists, "remove it, or choose another path"),
    (ErrorKind::NotFound, "make the folder first"),
];

/// A connection that is registered with the runtime that serves it.
pub(super) type Socket = Either<TcpStream, UnixStream>;

/// A connection that is not yet registered with a runtime.
#[derive(Debug)]
pub(super) enum Stream {
    Tcp(std::net::TcpStream),
    Unix(std::os::unix::net::UnixStream),
}

/// An accepted connection.
#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) stream: Stream,
    /// The address that it comes from; `None` with a Unix socket.
    pub(super) addr: Option<IpAddr>,
}

/// A listening socket.
pub(super) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, SocketFile),
}

/// The file of a Unix socket. Dropping it removes the file.
pub(super) struct SocketFile {
    path: PathBuf,
    /// Identifies our file: another process may have put its own there.
    inode: u64,
}

impl Stream {
    pub(super) fn attach(self) -> io::Result<Socket> {
        match self {
            Self::Tcp(stream) => TcpStream::from_std(stream).map(Either::Left),
            Self::Unix(stream) => UnixStream::from_std(stream).map(Either::Right),
        }
    }
}

impl Listener {
    /// Binds the address that `flag` sets.
    ///
    /// # Errors
    /// It cannot be bound: the reason, and what to do.
    pub(super) fn open(flag: &str, address: &Address) -> Result<Self, String> {
        let listener = match address {
            Address::Tcp(addr) => tcp(*addr).map(Self::Tcp),
            Address::Unix(path) => unix(path).map(|(listener, file)| Self::Unix(listener, file)),
        };
        listener.map_err(|error| {
            let known = FIXES.iter().find(|(kind, _)| *kind == error.kind());
            let fix = known.map_or("choose another address", |(_, fix)| fix);
            format!("{flag} {address}: {}: {fix}", error.to_string().to_lowercase())
        })
    }

    /// The bound address, with the actual port where 0 was asked for.
    pub(super) fn address(&self) -> io::Result<Address> {
        match self {
            Self::Tcp(listener) => listener.local_addr().map(Address::Tcp),
            Self::Unix(_, file) => Ok(Address::Unix(file.path.clone())),
        }
    }

    /// The next connection.
    pub(super) async fn accept(&self) -> io::Result<Incoming> {
        match self {
            Self::Tcp(listener) => {
                let (stream, addr) = listener.accept().await?;
                stream.set_nodelay(true)?;
                let stream = stream.into_std().map(Stream::Tcp)?;
                Ok(Incoming { stream, addr: Some(addr.ip()) })
            }
            Self::Unix(listener, _) => {
                let (stream, _) = listener.accept().await?;
                let stream = stream.into_std().map(Stream::Unix)?;
                Ok(Incoming { stream, addr: None })
            }
        }
    }

    /// Closes the listener and returns the connections in its backlog, so that closing resets none
    /// of them.
    pub(super) fn close(self) -> Vec<Incoming> {
        let mut waiting = vec![];
        // The listener does not block: without a connection, accept fails.
        match self {
            Self::Tcp(listener) => {
                let Ok(listener) = listener.into_std() else { return waiting };
                while let Ok((stream, addr)) = listener.accept() {
                    let prepared =
                        stream.set_nonblocking(true).and_then(|()| stream.set_nodelay(true));
                    let (stream, addr) = (Stream::Tcp(stream), Some(addr.ip()));
                    // A socket that fails here was closed by its peer.
                    waiting.extend(prepared.ok().map(|()| Incoming { stream, addr }));
                }
            }
            Self::Unix(listener, _file) => {
                let Ok(listener) = listener.into_std() else { return waiting };
                while let Ok((stream, _)) = listener.accept() {
                    let prepared = stream.set_nonblocking(true);
                    let stream = Stream::Unix(stream);
                    waiting.extend(prepared.ok().map(|()| Incoming { stream, addr: None }));
                }
            }
        }
        waiting
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let is_ours = |file: &fs::Metadata| file.ino() == self.inode;
        if fs::symlink_metadata(&self.path).is_ok_and(|file| is_ours(&file)) {
            // The process that starts next replaces the file.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Binds as tokio does, with a smaller kernel buffer for unread answers.
pub(super) fn tcp(addr: SocketAddr) -> io::Result<TcpListener> {
    let socket = if addr.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    // Connections inherit it from their listener.
    socket.set_send_buffer_size(SEND_BUFFER)?;
    socket.bind(addr)?;
    socket.listen(BACKLOG)
}

fn unix(path: &Path) -> io::Result<(UnixListener, SocketFile)> {
    remove_left_over(path)?;
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, Permissions::from_mode(MODE))?;
    let inode = fs::symlink_metadata(path)?.ino();
    Ok((listener, SocketFile { path: path.to_owned(), inode }))
}

/// Removes the socket file of a process that has ended, and nothing else.
fn remove_left_over(path: &Path) -> io::Result<()> {
    let Ok(file) = fs::symlink_metadata(path) else { return Ok(()) };
    if !file.file_type().is_socket() {
        return Err(io::Error::new(ErrorKind::AlreadyExists, "is there and is no socket"));
    }
    match Probe::connect(path) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => fs::remove_file(path),
        Err(error) => Err(error),
        Ok(_) => Err(io::Error::new(ErrorKind::AddrInUse, "address already in use")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(path: &Path) -> Result<Listener, String> {
        Listener::open("--grpc-addr", &Address::Unix(path.to_owned()))
    }

    #[tokio::test]
    async fn a_socket_is_for_our_user_and_group_and_goes_with_its_listener() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.sock");
        let listener = open(&path).unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, MODE);
        drop(listener);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn what_a_process_left_is_replaced_and_what_is_in_use_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.sock");
        // The standard library does not remove the file.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let listener = open(&path).unwrap();
        let taken = open(&path).err().unwrap();
        assert!(taken.contains("another process listens there"), "{taken}");
        drop(listener);
        fs::write(&path, "precious").unwrap();
        let file = open(&path).err().unwrap();
        assert!(file.contains("is no socket"), "{file}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    }
}
