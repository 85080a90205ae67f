//! The proxy applies its mode to connections, and nothing else.

use std::io;
use std::time::{Duration, Instant};

use crate::support::proxy::{Mode, Proxy};
use crate::support::resp::Connection;
use crate::support::servers::{RedisServer, Reply, Version};

/// The time within which nothing may arrive; data would arrive in less than a hundredth of it.
const SILENCE: Duration = Duration::from_millis(200);

const DEADLINE: Duration = Duration::from_secs(20);

fn started() -> (RedisServer, Proxy) {
    let server = RedisServer::start(Version::Redis70);
    let proxy = Proxy::before(server.addr());
    (server, proxy)
}

fn connect(proxy: &Proxy) -> Connection<std::net::TcpStream> {
    Connection::open(proxy.addr().port()).unwrap()
}

fn is_silent(reply: &io::Result<Reply>) -> bool {
    let silent = [io::ErrorKind::WouldBlock, io::ErrorKind::TimedOut];
    matches!(reply, Err(error) if silent.contains(&error.kind()))
}

fn pong() -> Reply {
    Reply::Status("PONG".to_owned())
}

#[test]
fn data_of_any_size_passes_both_ways_and_connections_are_counted() {
    let (_server, proxy) = started();
    let large = "x".repeat(10_000_000);
    let mut one = connect(&proxy);
    one.command(&["SET", "large", &large]).unwrap();
    assert_eq!(one.command(&["GET", "large"]).unwrap().into_text(), large);
    assert_eq!(connect(&proxy).command(&["PING"]).unwrap(), pong());
    assert_eq!(proxy.accepted(), 2);
    assert!(proxy.request_bytes() > 10_000_000);
}

#[test]
fn replies_are_delayed_each_by_itself() {
    let (_server, proxy) = started();
    let mut one = connect(&proxy);
    let delay = Duration::from_millis(400);
    proxy.set(Mode::DelayReplies(delay));
    let start = Instant::now();
    for at in 0..10 {
        one.send(&["ECHO", &at.to_string()]).unwrap();
    }
    for at in 0..10 {
        assert_eq!(one.reply().unwrap().into_text(), at.to_string());
    }
    assert!(start.elapsed() >= delay);
    assert!(start.elapsed() < 5 * delay, "in a row they would take ten times the delay");
    proxy.set(Mode::Pass);
    let start = Instant::now();
    assert_eq!(one.command(&["PING"]).unwrap(), pong());
    assert!(start.elapsed() < delay);
}

#[test]
fn a_stalled_network_accepts_and_buffers_until_it_resumes() {
    let (server, proxy) = started();
    let mut old = connect(&proxy);
    assert_eq!(old.command(&["PING"]).unwrap(), pong());
    proxy.set(Mode::Stall);
    let mut new = connect(&proxy);
    for connection in [&mut old, &mut new] {
        connection.wait_at_most(SILENCE);
        assert!(is_silent(&connection.command(&["INCR", "hits"])));
    }
    assert_eq!(server.command(&["GET", "hits"]), Reply::Nil, "nothing arrived");
    proxy.set(Mode::Pass);
    for connection in [&mut old, &mut new] {
        connection.wait_at_most(DEADLINE);
        assert!(matches!(connection.reply().unwrap(), Reply::Int(1 | 2)));
    }
    assert_eq!(proxy.accepted(), 2);
}

#[test]
fn a_stalled_network_can_be_cut_and_restored() {
    let (_server, proxy) = started();
    let mut one = connect(&proxy);
    proxy.set(Mode::Stall);
    one.send(&["PING"]).unwrap();
    proxy.set(Mode::Cut);
    assert!(one.reply().is_err_and(|error| !is_silent(&Err(error))));
    assert_eq!(proxy.open(), 0);
    // Accepted, and closed at once.
    let new = connect(&proxy).command(&["PING"]);
    assert!(new.is_err() && !is_silent(&new), "{new:?}");
    proxy.wait_for_accepted(2, DEADLINE);
    proxy.set(Mode::Pass);
    assert_eq!(connect(&proxy).command(&["PING"]).unwrap(), pong());
}

#[test]
fn a_refusing_network_accepts_no_connection_until_it_listens_again() {
    let (_server, proxy) = started();
    for round in 1..=5 {
        let mut one = connect(&proxy);
        assert_eq!(one.command(&["PING"]).unwrap(), pong());
        proxy.set(Mode::Refuse);
        assert!(one.command(&["PING"]).is_err());
        let refused = Connection::open(proxy.addr().port()).map(drop).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        assert_eq!(proxy.accepted(), round, "a refused one is none");
        proxy.set(Mode::Pass);
    }
}

#[test]
fn one_reply_is_halved_and_its_connection_closed_and_all_others_pass() {
    let (_server, proxy) = started();
    let (mut one, mut other) = (connect(&proxy), connect(&proxy));
    assert_eq!(other.command(&["PING"]).unwrap(), pong());
    proxy.set(Mode::HalveReply);
    let half = one.command(&["ECHO", "a reply of some length"]);
    assert_eq!(half.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    assert_eq!(other.command(&["PING"]).unwrap(), pong());
    assert_eq!(connect(&proxy).command(&["PING"]).unwrap(), pong());
}

#[test]
fn dropped_replies_never_arrive_and_their_requests_did() {
    let (server, proxy) = started();
    let (mut one, mut idle) = (connect(&proxy), connect(&proxy));
    assert_eq!(idle.command(&["PING"]).unwrap(), pong());
    proxy.set(Mode::DropReplies);
    one.wait_at_most(SILENCE);
    for _ in 0..3 {
        assert!(is_silent(&one.command(&["INCR", "hits"])));
    }
    assert_eq!(server.command(&["GET", "hits"]).into_text(), "3");
    proxy.set(Mode::Pass);
    // Its next reply would be read as the answer to the first request.
    one.wait_at_most(DEADLINE);
    assert!(one.reply().is_err_and(|error| !is_silent(&Err(error))));
    assert_eq!(idle.command(&["PING"]).unwrap(), pong(), "nothing of it was lost");
}

#[test]
fn connections_to_a_stopped_server_close_and_a_restarted_one_is_reached() {
    let (mut server, proxy) = started();
    let mut one = connect(&proxy);
    assert_eq!(one.command(&["PING"]).unwrap(), pong());
    server.stop();
    assert!(one.command(&["PING"]).is_err());
    server.restart();
    assert_eq!(connect(&proxy).command(&["PING"]).unwrap(), pong());
}

#[test]
fn a_dropped_proxy_frees_its_port_and_its_connections() {
    let (_server, proxy) = started();
    let mut one = connect(&proxy);
    assert_eq!(one.command(&["PING"]).unwrap(), pong());
    let addr = proxy.addr();
    drop(proxy);
    assert!(one.command(&["PING"]).is_err());
    assert!(std::net::TcpListener::bind(addr).is_ok());
}
