//! Tests of parsing URLs, and of the errors for malformed ones.

use proptest::prelude::*;

use super::*;

fn parsed(url: &str) -> Address {
    url.parse().unwrap_or_else(|error| panic!("{url} {error}"))
}

fn node(host: &str, port: u16) -> HostPort {
    HostPort { host: host.to_owned(), port }
}

fn credentials(user: &str, password: &str) -> Credentials {
    let user = Some(user.to_owned()).filter(|user| !user.is_empty());
    Credentials { user, password: Password::Text(Secret::new(password)) }
}

fn server(node: HostPort, credentials: Credentials, database: Option<u8>) -> Server {
    Server { node, credentials, database }
}

#[test]
fn one_server() {
    let none = Credentials::default;
    for (url, expected) in [
        ("redis://redis-1.svc:6380", server(node("redis-1.svc", 6_380), none(), None)),
        ("redis://REDIS", server(node("redis", 6_379), none(), None)),
        ("redis://10.0.0.1:1/", server(node("10.0.0.1", 1), none(), None)),
        ("redis://a:1/15", server(node("a", 1), none(), Some(15))),
        ("redis://a:1/0", server(node("a", 1), none(), None)),
        ("redis://[::1]:7000/2", server(node("::1", 7_000), none(), Some(2))),
        ("redis://:pw@a:1", server(node("a", 1), credentials("", "pw"), None)),
        ("redis://tide:pw@a", server(node("a", 6_379), credentials("tide", "pw"), None)),
        (
            "redis://t%2Cd:p%40%2f:%25+x@a",
            server(node("a", 6_379), credentials("t,d", "p@/:%+x"), None),
        ),
        ("redis://u:p@ss@a", server(node("a", 6_379), credentials("u", "p@ss"), None)),
    ] {
        let endpoints = Endpoints::Standalone(expected);
        assert_eq!(parsed(url), Address { endpoints: endpoints.clone(), tls: false }, "{url}");
        let encrypted = url.replacen("redis", "rediss", 1);
        assert_eq!(parsed(&encrypted), Address { endpoints, tls: true }, "{encrypted}");
    }
}

#[test]
fn several_servers_keep_their_own_credentials_and_databases() {
    let address = parsed("rediss://u:p@b:1/3,rediss://a,rediss://:q@[fe80:0:0::1]:2");
    let servers = vec![
        server(node("b", 1), credentials("u", "p"), Some(3)),
        server(node("a", 6_379), Credentials::default(), None),
        server(node("fe80::1", 2), credentials("", "q"), None),
    ];
    assert_eq!(address, Address { endpoints: Endpoints::Sharded(servers), tls: true });
}

#[test]
fn sentinels() {
    let expected = Sentinel {
        sentinels: vec![node("a", 26_379), node("b", 5_000), node("::1", 5_001)],
        sentinel_credentials: credentials("s", "q&r"),
        service: "my master".to_owned(),
        credentials: credentials("u", "p"),
        database: Some(1),
    };
    let rest = "sentinelUsername=s&sentinelPassword=q%26r";
    for url in [
        format!("redis-sentinel://u:p@a,b:5000,[::1]:5001/1?service=my%20master&{rest}"),
        format!(
            "redis-sentinel://u:p@a/1?{rest}&node=b:5000&node=[::1]:5001&sentinelServiceName=my%20master"
        ),
    ] {
        let endpoints = Endpoints::Sentinel(expected.clone());
        assert_eq!(parsed(&url), Address { endpoints, tls: false }, "{url}");
    }
    let shortest = parsed("rediss-sentinel://a?service=m");
    let Endpoints::Sentinel(sentinel) = &shortest.endpoints else { panic!("{shortest:?}") };
    assert!(shortest.tls && sentinel.credentials.is_empty());
    assert!(sentinel.sentinel_credentials.is_empty() && sentinel.database.is_none());
}

#[test]
fn clusters() {
    for (url, tls) in [
        ("redis-cluster://u:p@a:7000,b,c:7002", false),
        ("rediss-cluster://u:p@a:7000,b:6379,C:7002/", true),
        ("redis-cluster://u:p@a:7000?node=b&node=c:7002", false),
    ] {
        let seeds = vec![node("a", 7_000), node("b", 6_379), node("c", 7_002)];
        let endpoints = Endpoints::Cluster(Cluster { seeds, credentials: credentials("u", "p") });
        assert_eq!(parsed(url), Address { endpoints, tls }, "{url}");
    }
}

#[test]
fn a_node_prints_as_its_name_on_the_ring() {
    assert_eq!(node("a.b", 1).to_string(), "a.b:1");
    assert_eq!(node("::1", 6_379).to_string(), "[::1]:6379");
}

#[test]
fn errors_name_the_fault_without_repeating_the_url() {
    let many: Vec<_> = (1..=65).map(|port| format!("redis://a:{port}")).collect();
    for (url, part) in [
        ("redis//:hunter2@a:1", "is neither `memory` nor a URL that starts with redis://"),
        ("mysql://:hunter2@a", "is neither `memory` nor"),
        ("redisx://:hunter2@a", "is neither `memory` nor"),
        ("redis-sentinels://:hunter2@a", "is neither `memory` nor"),
        ("REDIS://:hunter2@a", "is neither `memory` nor"),
        ("", "is neither `memory` nor"),
        ("redis://:hunter2 @a", "has a space or a character that is not ASCII"),
        ("redis://:hunter2é@a", "has a space or a character that is not ASCII"),
        ("redis://:hunter2#@a", "has a `#`; in a password write it as %23"),
        ("redis://:hunter2/x@a", "has an `@` after a `/`; in a password write `/` as %2F"),
        ("redis://:hunter2?x@a", "has parameters (after a `?`)"),
        ("redis://:hunter2%ff@a", "does not decode to UTF-8"),
        ("redis://:hunter2,x@a", "must have the whole URL of each server"),
        ("redis://hunter2:1,b:1", "must have the whole URL of each server"),
        ("redis://hunter2:1,rediss://b:1", "all with one scheme"),
        ("redis://a:1,redis://:hunter2@b:x", "(server 2) has a port that is not a number"),
        ("redis://a:1,redis://:hunter2@A:1", "names a server twice"),
        ("redis://a,redis://a:6379", "names a server twice"),
        ("redis://a,", "must have the whole URL"),
        (&many.join(","), "names more than 64 servers"),
        ("redis://:hunter2@", "has a host that is not a name"),
        ("redis://", "has a host that is not a name"),
        ("redis://:hunter2@[::1", "has a host that is not a name"),
        ("redis://:hunter2@[::1]x", "has a port that is not a number"),
        ("redis://:hunter2@::1", "has a host that is not a name"),
        ("redis://:hunter2@a*b", "has a host that is not a name"),
        ("redis://hunter2:", "has a port that is not a number from 1 to 65535"),
        ("redis://hunter2:0", "has a port that is not a number from 1 to 65535"),
        ("redis://hunter2:+1", "has a port that is not a number from 1 to 65535"),
        ("redis://hunter2:65536", "has a port that is not a number from 1 to 65535"),
        ("redis://:hunter2@a/256", "not a database number from 0 to 255"),
        ("redis://:hunter2@a/+1", "not a database number from 0 to 255"),
        ("redis://:hunter2@a/1/", "not a database number from 0 to 255"),
        ("redis-cluster://:hunter2@a/1", "has a database, and a cluster has only one"),
        ("redis-cluster://:hunter2@a?service=m", "not one of node, each with a value"),
        ("redis-cluster://:hunter2@a,a", "names a server twice"),
        ("redis-cluster://:hunter2@a,", "has a host that is not a name"),
        ("redis-sentinel://:hunter2@a", "must name the service"),
        ("redis-sentinel://:hunter2@a?service=", "each with a value"),
        ("redis-sentinel://:hunter2@a?service", "each with a value"),
        ("redis-sentinel://:hunter2@a?service=m&service=n", "must name the service"),
        ("redis-sentinel://a?service=m&sentinelPass=hunter2", "that is not one of service,"),
        (
            "redis-sentinel://a?service=m&sentinelPassword=hunter2&sentinelPassword=x",
            "has the parameter sentinelPassword twice",
        ),
    ] {
        let Err(error) = url.parse::<Address>() else { panic!("{url} is accepted") };
        assert!(error.contains(part), "{url}: {error}");
        assert!(!error.contains("hunter2"), "{url}: {error}");
    }
}

#[test]
fn a_printed_address_shows_no_password() {
    let url = "redis-sentinel://u:hunter2@a?service=m&sentinelUsername=u&sentinelPassword=hunter2";
    for url in [url, "redis://u:hunter2@a", "redis-cluster://u:hunter2@a"] {
        let address = parsed(url);
        assert!(!format!("{address:?} {address:#?}").contains("hunter2"));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn parsing_any_text_ends_and_repeats_none_of_it(
        scheme in "(redis(s)?(-sentinel|-cluster)?://)?",
        rest in "(hunter2|[ab1]|[\\[\\]@:/?#,%&=+*é ]|redis://|node=|service=|sentinelPassword=|%40){0,12}",
    ) {
        if let Err(error) = format!("{scheme}{rest}").parse::<Address>() {
            prop_assert!(!error.contains("hunter2"), "{}", error);
        }
    }

    #[test]
    fn any_user_and_password_can_be_written(user in "[^:]{1,9}", password in ".{1,9}") {
        let escape = |text: &str| -> String { text.bytes().map(|byte| format!("%{byte:02x}")).collect() };
        let url = format!("redis://{}:{}@a", escape(&user), escape(&password));
        let expected = server(node("a", 6_379), credentials(&user, &password), None);
        prop_assert_eq!(parsed(&url).endpoints, Endpoints::Standalone(expected));
    }
}
