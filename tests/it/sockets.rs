//! Unix sockets instead of ports.

use crate::support::client::limits_folder;
use crate::support::tidegate::Tidegate;

const EDGE: &str =
    "{domain: edge, descriptors: [{key: k, rate_limit: {limit: 10, period: 36500d}}]}";

#[test]
fn both_ports_can_be_sockets_that_are_removed_at_shutdown() {
    let limits = limits_folder(&[EDGE]);
    let folder = tempfile::tempdir().unwrap();
    let address = |name| format!("unix:{}", folder.path().join(name).display());
    let (grpc, http) = (address("grpc.sock"), address("http.sock"));
    let args = ["--limits", limits.path().to_str().unwrap()];
    let mut tidegate = Tidegate::serve_at(&grpc, &http, &args);
    let query = Tidegate::run(&["query", "--addr", &grpc, "--domain", "edge", "k=v"], "");
    assert!(query.status.success(), "{query:?}");
    let top = Tidegate::run(&["top", "--addr", &http], "");
    assert!(top.status.success(), "{top:?}");
    let serve = ["serve", "--grpc-addr", &grpc, "--http-addr", "127.0.0.1:0"];
    let second = Tidegate::run(&[&serve[..], &args].concat(), "");
    let printed = String::from_utf8_lossy(&second.stderr);
    assert!(printed.contains("another process listens there"), "{printed}");
    assert!(tidegate.terminate().success());
    assert_eq!(folder.path().read_dir().unwrap().count(), 0, "both are removed");
}

#[test]
fn the_socket_of_a_killed_service_is_replaced() {
    let limits = limits_folder(&[EDGE]);
    let folder = tempfile::tempdir().unwrap();
    let grpc = format!("unix:{}", folder.path().join("grpc.sock").display());
    let args = ["--limits", limits.path().to_str().unwrap()];
    Tidegate::serve_at(&grpc, "127.0.0.1:0", &args).kill();
    let _second = Tidegate::serve_at(&grpc, "127.0.0.1:0", &args);
    let query = Tidegate::run(&["query", "--addr", &grpc, "--domain", "edge", "k=v"], "");
    assert!(query.status.success(), "{query:?}");
}
