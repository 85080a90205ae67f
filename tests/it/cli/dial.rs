//! Commands that call the wrong port say what it is, and what to type.

use std::net::SocketAddr;

use super::{EDGE, run};
use crate::support::client::Served;
use crate::support::tls::Certificates;

/// Runs `query`, `bench`, `reset` or `top` and returns what it says about its failure.
fn failure(command: &str, addr: &str, args: &[&str]) -> String {
    let request: &[&str] = match command {
        "top" => &[],
        "bench" => &["--domain", "edge", "user=1", "--requests", "10"],
        _ => &["--domain", "edge", "user=1"],
    };
    let printed = run(&[&[command, "--addr", addr], request, args].concat());
    assert!(printed.code != 0 && printed.out.is_empty(), "{command} {addr}: {}", printed.out);
    assert_eq!(printed.err.lines().count(), 1, "{command} {addr}: {}", printed.err);
    let text = printed.err.strip_prefix("error: ").unwrap_or_else(|| panic!("{}", printed.err));
    text.trim_end().to_owned()
}

fn with_tls(made: &Certificates, more: &[&str]) -> Served {
    let (cert, key) = (made.file("server.pem"), made.file("server.key"));
    let grpc = ["--grpc-cert-file", &cert, "--grpc-key-file", &key];
    let http = ["--http-cert-file", &cert, "--http-key-file", &key];
    Served::with(&[EDGE], &[&grpc[..], &http, more].concat())
}

fn ports(served: &Served) -> [SocketAddr; 2] {
    [served.tidegate.grpc, served.tidegate.http]
}

#[test]
fn a_wrong_port_is_told_with_the_right_one() {
    let served = Served::with(&[EDGE], &["--admin-addr", "127.0.0.1:0"]);
    let [grpc, http] = ports(&served).map(|addr| addr.to_string());
    for command in ["query", "bench"] {
        let expected = format!(
            "{http} speaks HTTP/1, so it is not the gRPC port: name that one with --addr; `tidegate serve` \
             has it at --grpc-addr, by default port 8081"
        );
        assert_eq!(failure(command, &http, &[]), expected, "{command}");
    }
    let expected = format!(
        "{grpc} speaks HTTP/2, so it is not the HTTP port: name that one with --addr; `tidegate serve` has \
         it at --http-addr, by default port 8080"
    );
    assert_eq!(failure("top", &grpc, &[]), expected);
    let log = served.tidegate.log();
    let admin = log.split("admin on ").nth(1).unwrap().split_whitespace().next().unwrap();
    for (command, addr) in [("query", admin), ("reset", &grpc)] {
        let said = failure(command, addr, &[]);
        let expected = format!("{addr} does not offer this call (Unimplemented");
        assert!(said.starts_with(&expected), "{command}: {said}");
    }
}

#[test]
fn tls_on_one_side_only_is_told_with_the_remedy() {
    let made = Certificates::new();
    let (plain, secure) = (Served::with_limits(EDGE), with_tls(&made, &[]));
    let ca = made.file("ca.pem");
    let [grpc, http] = ports(&secure).map(|addr| addr.to_string());
    for (command, addr) in [("query", &grpc), ("bench", &grpc), ("top", &http), ("query", &http)] {
        let said = failure(command, addr, &[]);
        let expected = format!("{addr} uses TLS: write --addr https://{addr}, with --ca-file if ");
        assert!(said.starts_with(&expected), "{command}: {said}");
    }
    let [grpc, http] = ports(&plain).map(|addr| addr.to_string());
    for (command, addr) in [("query", &grpc), ("bench", &grpc), ("top", &http), ("query", &http)] {
        let said = failure(command, &format!("https://{addr}"), &["--ca-file", &ca]);
        let expected = format!("{addr} does not use TLS: write --addr {addr}, without https://");
        assert!(said.starts_with(&expected), "{command}: {said}");
    }
}

#[test]
fn what_is_missing_for_tls_is_named() {
    let (made, others) = (Certificates::new(), Certificates::new());
    let (ca, other_ca) = (made.file("ca.pem"), others.file("ca.pem"));
    let secure = with_tls(&made, &["--grpc-client-ca-file", &ca]);
    let [grpc, http] = ports(&secure).map(|addr| addr.to_string());
    let said = failure("query", &grpc, &["--ca-file", &ca]);
    assert!(said.contains("name one with --cert-file and --key-file"), "{said}");
    let said = failure("query", &grpc, &["--ca-file", &other_ca]);
    assert!(said.contains("invalid peer certificate"), "{said}");
    assert!(said.ends_with("name its file with --ca-file"), "{said}");
    let said = failure("query", &http, &["--ca-file", &ca]);
    let expected = format!("{http} speaks another protocol over TLS, so it is not the gRPC port");
    assert!(said.starts_with(&expected), "{said}");
}

#[test]
fn an_address_that_is_none_is_told_with_the_way_to_write_one() {
    for command in ["query", "bench", "reset"] {
        let said = failure(command, "8081", &[]);
        assert_eq!(said, "--addr 8081: names no host: write 127.0.0.1:8081", "{command}");
        let said = failure(command, "host:grpc", &[]);
        assert!(said.ends_with("the port \"grpc\" is not a number from 1 to 65535"), "{said}");
    }
    assert!(failure("top", "no address", &[]).contains("is not an address; write HOST:8080"));
    // A name that no resolver has: RFC 6761.
    let said = failure("query", "tidegate.invalid", &[]);
    assert!(said.starts_with("no service at tidegate.invalid:8081: "), "{said}");
    assert!(said.ends_with("start one with `tidegate serve`, or name another address with --addr"));
}

#[test]
fn bench_calls_over_tls_and_over_a_unix_socket() {
    let made = Certificates::new();
    let secure = with_tls(&made, &[]);
    let (addr, ca) = (format!("https://{}", secure.tidegate.grpc), made.file("ca.pem"));
    let folder = tempfile::tempdir().unwrap();
    let socket = format!("unix:{}", folder.path().join("grpc.sock").display());
    let limits = secure.limits().to_str().unwrap();
    let _plain =
        crate::support::tidegate::Tidegate::serve_at(&socket, "127.0.0.1:0", &["--limits", limits]);
    for args in [&["--addr", &addr, "--ca-file", &ca][..], &["--addr", &socket]] {
        let rest = ["--domain", "edge", "user={seq}", "--requests", "50"];
        let printed = run(&[&["bench"], args, &rest].concat());
        assert_eq!((printed.code, printed.err.as_str()), (0, ""), "{args:?}");
        assert!(printed.out.contains("allowed     50\n"), "{args:?}: {}", printed.out);
    }
}
