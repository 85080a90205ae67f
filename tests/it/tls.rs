//! TLS on both ports: the accepted callers, and certificates that change.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Output;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use rustls::{ClientConnection, HandshakeKind, StreamOwned};
use tokio_rustls::TlsConnector;
use tonic::transport::{Channel, Endpoint};

use crate::support::client::{Caller, Request, Served, request};
use crate::support::process;
use crate::support::tidegate::Tidegate;
use crate::support::tls::{Certificates, client_by, client_of};

const EDGE: &str =
    "{domain: edge, descriptors: [{key: k, rate_limit: {limit: 4000000000, period: 36500d}}]}";

/// A deadline for steps that must not take for ever.
const SOME_TIME: Duration = Duration::from_secs(60);

/// Three times as long as changed certificates need to apply.
const A_WHILE: Duration = Duration::from_secs(3);

/// The flags of a port that requires certificates of the authority.
fn mutual(port: &str, made: &Certificates) -> Vec<String> {
    let flag = |of: &str| format!("--{port}-{of}");
    let mut args = vec![flag("cert-file"), made.file("server.pem")];
    args.extend([flag("key-file"), made.file("server.key")]);
    args.extend([flag("client-ca-file"), made.file("ca.pem")]);
    args
}

fn served(args: &[String]) -> Served {
    Served::with(&[EDGE], &args.iter().map(String::as_str).collect::<Vec<_>>())
}

/// `tidegate query` with the certificate `who`, trusting `trusted`.
fn query(addr: SocketAddr, trusted: &Certificates, who: Option<(&Certificates, &str)>) -> Output {
    let (addr, ca) = (addr.to_string(), trusted.file("ca.pem"));
    let mut args = vec!["query", "--addr", &addr, "--domain", "edge", "k=v", "--ca-file", &ca];
    let files =
        who.map(|(made, who)| (made.file(&format!("{who}.pem")), made.file(&format!("{who}.key"))));
    if let Some((cert, key)) = &files {
        args.extend(["--cert-file", cert, "--key-file", key]);
    }
    Tidegate::run(&args, "")
}

fn is_allowed(output: &Output) -> bool {
    output.status.code() == Some(0)
}

fn is_refused(output: &Output) -> bool {
    output.status.code() == Some(2)
}

fn metric(served: &Served, series: &str) -> f64 {
    let page = served.page("/metrics").body;
    let line = page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {series}: {page}")).parse().unwrap()
}

/// The number of reloads of the gRPC port's certificates with this result.
fn reloads(result: &str) -> String {
    format!("rate_limit_tls_certificate_reload_total{{port=\"grpc\",result=\"{result}\"}}")
}

#[test]
fn only_callers_of_the_authority_with_an_allowed_name_are_served() {
    let (made, others) = (Certificates::new(), Certificates::new());
    let mut args = mutual("grpc", &made);
    for name in ["tidegate", "spiffe://tests/proxy"] {
        args.extend(["--grpc-allow-client-san".to_owned(), name.to_owned()]);
    }
    let served = served(&args);
    let addr = served.tidegate.grpc;
    for who in ["client", "proxy"] {
        let output = query(addr, &made, Some((&made, who)));
        assert!(is_allowed(&output), "{who}: {output:?}");
    }
    assert!(is_refused(&query(addr, &made, None)), "without a certificate");
    assert!(is_refused(&query(addr, &made, Some((&made, "stranger")))), "of another name");
    assert!(is_refused(&query(addr, &made, Some((&others, "client")))), "of another authority");
    let failed = "rate_limit_tls_handshakes_failed_total{port=\"grpc\"}";
    let counted = || Some(()).filter(|()| metric(&served, failed) >= 3.0);
    process::wait_until(SOME_TIME, counted).expect("they are counted");
    let untrusting = query(addr, &others, Some((&made, "client")));
    let text = String::from_utf8_lossy(&untrusting.stderr).into_owned();
    assert!(is_refused(&untrusting) && text.contains("certificate"), "{text}");
}

#[test]
fn every_connection_of_a_caller_with_a_certificate_shows_it() {
    let made = Certificates::new();
    let served = served(&mutual("http", &made));
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let client = Arc::new(client_by(version, &made));
        for connection in ["the first", "one that could resume the session"] {
            let name = "localhost".try_into().unwrap();
            let tls = ClientConnection::new(Arc::clone(&client), name).unwrap();
            let wire = TcpStream::connect(served.tidegate.http).unwrap();
            wire.set_read_timeout(Some(SOME_TIME)).unwrap();
            let mut stream = StreamOwned::new(tls, wire);
            stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: t\r\n\r\n").unwrap();
            // Tickets come before the answer.
            assert!(stream.read(&mut [0; 100]).unwrap() > 0);
            let kind = stream.conn.handshake_kind().unwrap();
            assert_ne!(kind, HandshakeKind::Resumed, "{version:?}: {connection}");
        }
    }
}

#[test]
fn the_http_port_has_its_own_tls() {
    let made = Certificates::new();
    let served = served(&mutual("http", &made));
    let addr = format!("https://localhost:{}", served.tidegate.http.port());
    let (ca, cert, key) = (made.file("ca.pem"), made.file("client.pem"), made.file("client.key"));
    let top = ["top", "--addr", &addr, "--ca-file", &ca];
    let shown = ["--cert-file", &cert, "--key-file", &key];
    let output = Tidegate::run(&[&top[..], &shown].concat(), "");
    assert!(output.status.success(), "{output:?}");
    assert!(!Tidegate::run(&top, "").status.success(), "without a certificate");
    let plain = Tidegate::run(
        &["query", "--addr", &served.tidegate.grpc.to_string(), "--domain", "edge", "k=v"],
        "",
    );
    assert!(is_allowed(&plain), "the other port is as it was: {plain:?}");
}

#[test]
fn silent_and_non_tls_connections_delay_no_other() {
    let made = Certificates::new();
    let served = served(&mutual("grpc", &made));
    let addr = served.tidegate.grpc;
    let silent: Vec<_> = (0..50).map(|_| TcpStream::connect(addr).unwrap()).collect();
    let mut garbage = TcpStream::connect(addr).unwrap();
    garbage.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
    let output = query(addr, &made, Some((&made, "client")));
    assert!(is_allowed(&output), "{output:?}");
    for mut stream in silent.into_iter().chain([garbage]) {
        stream.set_read_timeout(Some(SOME_TIME)).unwrap();
        let end = stream.read_to_end(&mut vec![]);
        let timed_out = end.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock);
        assert!(!timed_out, "it is still open");
    }
}

#[test]
fn callers_without_tls_are_not_logged() {
    let made = Certificates::new();
    let served = served(&mutual("grpc", &made));
    for _ in 0..20 {
        let mut stream = TcpStream::connect(served.tidegate.grpc).unwrap();
        // Warnings that the connection is closed, and unrelated ones.
        stream.write_all(&b"\x15\x03\x01\0\x02\x01\0".repeat(10)).unwrap();
        stream.write_all(b"nothing").unwrap();
        stream.set_read_timeout(Some(SOME_TIME)).unwrap();
        let _ = stream.read_to_end(&mut vec![]);
    }
    let output = query(served.tidegate.grpc, &made, Some((&made, "client")));
    assert!(is_allowed(&output), "{output:?}");
    assert!(!served.tidegate.log().contains("rustls"), "{}", served.tidegate.log());
}

#[test]
fn versions_before_1_2_are_refused() {
    let made = Certificates::new();
    let served = served(&mutual("grpc", &made));
    let mut stream = TcpStream::connect(served.tidegate.grpc).unwrap();
    // A ClientHello of TLS 1.1: its version, 32 bytes, no session, one cipher, no compression, and
    // a signature algorithm.
    let mut hello = vec![3, 2];
    hello.extend([7; 32]);
    hello.extend([0, 0, 2, 0xc0, 0x13, 1, 0, 0, 8, 0, 13, 0, 4, 0, 2, 4, 3]);
    let length = u8::try_from(hello.len()).unwrap();
    let record = [&[22, 3, 1, 0, length + 4, 1, 0, 0, length][..], &hello].concat();
    stream.write_all(&record).unwrap();
    stream.set_read_timeout(Some(SOME_TIME)).unwrap();
    let mut alert = [0; 7];
    stream.read_exact(&mut alert).unwrap();
    // An alert that ends the connection: protocol_version.
    assert_eq!((alert[0], &alert[5..]), (21, &[2, 70][..]));
}

/// A connection that records the presented certificate.
async fn connect(addr: SocketAddr, tls: &TlsConnector) -> (Channel, Vec<u8>) {
    let stream = tokio::net::TcpStream::connect(addr).await.unwrap();
    let stream = tls.connect("127.0.0.1".try_into().unwrap(), stream).await.unwrap();
    let shown = stream.get_ref().1.peer_certificates().unwrap()[0].to_vec();
    let mut stream = Some(TokioIo::new(stream));
    let connector = tower::service_fn(move |_| {
        let stream = stream.take().ok_or(std::io::ErrorKind::NotConnected);
        async move { stream.map_err(std::io::Error::from) }
    });
    let endpoint = Endpoint::from_static("http://tidegate").timeout(SOME_TIME);
    (endpoint.connect_with_connector(connector).await.unwrap(), shown)
}

async fn check(channel: Channel, asked: &Request) {
    Caller::over(channel).check(asked).await.expect("no call is lost");
}

#[tokio::test]
async fn certificates_change_under_a_load_and_no_call_is_lost() {
    let (made, newer) = (Certificates::new(), Certificates::new());
    let mut config = client_of(&[&made, &newer]);
    config.alpn_protocols = vec![b"h2".to_vec()];
    let tls = TlsConnector::from(Arc::new(config));
    let served = served(&mutual("grpc", &made));
    let addr = served.tidegate.grpc;
    let asked = request("edge").about("k", "v");
    let (lasting, old) = connect(addr, &tls).await;
    // The authority of callers stays.
    made.replace(&newer, &["server.pem", "server.key"]);
    let changes = async {
        loop {
            check(lasting.clone(), &asked).await;
            let (channel, shown) = connect(addr, &tls).await;
            check(channel, &asked).await;
            if shown != old {
                break;
            }
        }
    };
    tokio::time::timeout(SOME_TIME, changes).await.expect("the new certificate is shown");
    check(lasting, &asked).await;
}

#[test]
fn an_invalid_pair_is_refused_and_the_old_one_stays() {
    let (made, newer) = (Certificates::new(), Certificates::new());
    let served = served(&mutual("grpc", &made));
    // A certificate without its key.
    made.replace(&newer, &["server.pem"]);
    let refused = "rate_limit_tls_certificate_reload_total{port=\"grpc\",result=\"failure\"}";
    let noticed = || Some(()).filter(|()| metric(&served, refused) == 1.0);
    process::wait_until(SOME_TIME, noticed).expect("it is noticed");
    let well = "rate_limit_tls_certificate_last_reload_successful{port=\"grpc\"}";
    assert_eq!(metric(&served, well), 0.0);
    served.tidegate.wait_for_log("--grpc-cert-file");
    let output = query(served.tidegate.grpc, &made, Some((&made, "client")));
    assert!(is_allowed(&output), "{output:?}");
    made.replace(&newer, &["server.key"]);
    let noticed = || Some(()).filter(|()| metric(&served, well) == 1.0);
    process::wait_until(SOME_TIME, noticed).expect("the key came");
}

#[test]
fn a_certificate_that_is_still_being_written_is_not_read() {
    let (made, newer) = (Certificates::new(), Certificates::new());
    let served = served(&mutual("grpc", &made));
    let new = fs::read(newer.file("server.pem")).unwrap();
    let (first, rest) = new.split_at(new.len() / 2);
    let mut file = fs::File::create(made.file("server.pem")).unwrap();
    file.write_all(first).unwrap();
    made.replace(&newer, &["server.key"]);
    let refused = || Some(()).filter(|()| metric(&served, &reloads("failure")) > 0.0);
    assert!(process::wait_until(A_WHILE, refused).is_none(), "half of a file was read");
    file.write_all(rest).unwrap();
    drop(file);
    let read = || Some(()).filter(|()| metric(&served, &reloads("success")) == 2.0);
    process::wait_until(SOME_TIME, read).expect("the whole file is read");
    assert_eq!(metric(&served, &reloads("failure")), 0.0);
}

#[test]
fn touched_certificates_are_not_loaded_again() {
    let (made, newer) = (Certificates::new(), Certificates::new());
    let served = served(&mutual("grpc", &made));
    let same = fs::read(made.file("server.pem")).unwrap();
    fs::write(made.file("server.pem"), same).unwrap();
    let read = || Some(()).filter(|()| metric(&served, &reloads("success")) > 1.0);
    assert!(process::wait_until(A_WHILE, read).is_none(), "the same certificate was read");
    made.replace(&newer, &["server.pem", "server.key"]);
    process::wait_until(SOME_TIME, read).expect("another one is read");
}

#[test]
fn the_expiry_of_a_certificate_is_reported() {
    let made = Certificates::new();
    let (cert, key) = (made.file("ended.pem"), made.file("ended.key"));
    let served = served(&["--grpc-cert-file", &cert, "--grpc-key-file", &key].map(str::to_owned));
    let second = |which| {
        metric(&served, &format!("rate_limit_tls_certificate_not_{which}_seconds{{port=\"grpc\"}}"))
    };
    assert_eq!((second("before"), second("after")), (978_307_200.0, 1_009_843_200.0));
    served.tidegate.wait_for_log("the certificate has expired");
    for (old, new) in [(&key, "server.key"), (&cert, "server.pem")] {
        fs::copy(made.file(new), old).unwrap();
    }
    let noticed = || Some(()).filter(|()| second("after") > 1_009_843_200.0);
    process::wait_until(SOME_TIME, noticed).expect("the new one lasts longer");
}

#[test]
fn invalid_files_end_the_service_at_once_with_the_flag() {
    let (made, others) = (Certificates::new(), Certificates::new());
    let limits = crate::support::client::limits_folder(&[EDGE]);
    let limits = limits.path().to_str().unwrap();
    let printed = |args: &[&str]| {
        let output = Tidegate::run(&[&["serve", "--limits", limits], args].concat(), "");
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let (cert, key) = (made.file("server.pem"), made.file("server.key"));
    let half = printed(&["--grpc-cert-file", &cert]);
    assert!(half.contains("--grpc-cert-file and --grpc-key-file need each other"), "{half}");
    let other = others.file("server.key");
    let unfit = printed(&["--http-cert-file", &cert, "--http-key-file", &other]);
    assert!(unfit.contains("--http-cert-file") && unfit.contains(&other), "{unfit}");
    let missing = printed(&["--grpc-cert-file", "/none", "--grpc-key-file", &key]);
    assert!(missing.contains("--grpc-cert-file /none: No such file"), "{missing}");
}
