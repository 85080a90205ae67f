//! A TLS server accepts exactly the clients that its certificates allow.

use std::time::Instant;

use crate::support::servers::RedisServer;
use crate::support::servers::Reply;
use crate::support::tls::Certificates;
use crate::support::tls::ClientCertificates::{NotAsked, Required};

#[test]
fn a_client_that_trusts_the_authority_is_answered_by_tls() {
    let start = Instant::now();
    let made = Certificates::new();
    eprintln!("certificates are made in {:?}", start.elapsed());
    let server = RedisServer::start_tls(&made, NotAsked);
    assert_eq!(server.command(&["SET", "a", "1"]), Reply::Status("OK".to_owned()));
    for shown in [NotAsked, Required] {
        let value = server.command_by_tls(&made, shown, &["GET", "a"]).unwrap();
        assert_eq!(value.into_bytes(), b"1", "{shown:?}");
    }
    assert_eq!(server.tls_url(), format!("rediss://localhost:{}", server.tls_port()));
}

#[test]
fn a_server_that_requires_certificates_refuses_missing_and_foreign_ones() {
    let (made, others) = (Certificates::new(), Certificates::new());
    let server = RedisServer::start_tls(&made, Required);
    let pong = server.command_by_tls(&made, Required, &["PING"]).unwrap();
    assert_eq!(pong, Reply::Status("PONG".to_owned()));
    assert!(server.command_by_tls(&made, NotAsked, &["PING"]).is_err());
    // Trusts the server, but presents a certificate of another authority.
    let mixed = made.with_client_of(&others);
    assert!(server.command_by_tls(&mixed, Required, &["PING"]).is_err());
}

#[test]
fn a_client_that_trusts_another_authority_refuses_the_server() {
    let server = RedisServer::start_tls(&Certificates::new(), NotAsked);
    let refused = server.command_by_tls(&Certificates::new(), NotAsked, &["PING"]).unwrap_err();
    assert!(refused.to_string().contains("invalid peer certificate"), "{refused}");
}
