//! Sentinels promote a replica when the master is lost.

use std::time::Instant;

use fred::types::config::{Config, ServerConfig};

use super::FAILOVER_DEADLINE;
use crate::support::process;
use crate::support::sentinels::{SERVICE, Sentinels};
use crate::support::servers::Reply;

#[test]
fn a_killed_master_is_replaced_by_one_that_takes_writes() {
    let start = Instant::now();
    let mut sentinels = Sentinels::start();
    eprintln!("sentinels start in {:?}", start.elapsed());
    let kept = sentinels.server(0).replicated(2, &["SET", "kept", "1"]);
    assert_eq!(kept, Reply::Status("OK".to_owned()));
    let start = Instant::now();
    let lost = sentinels.kill_master();
    let master = sentinels.wait_for_failover(lost, FAILOVER_DEADLINE);
    eprintln!("a killed master is replaced in {:?}", start.elapsed());
    assert_eq!(lost, 0);
    assert_eq!(sentinels.server(master).command(&["GET", "kept"]).into_bytes(), b"1");
    let written = sentinels.server(master).command(&["SET", "new", "1"]);
    assert_eq!(written, Reply::Status("OK".to_owned()));
}

#[test]
fn a_paused_master_is_replaced_and_becomes_a_replica_when_it_resumes() {
    let sentinels = Sentinels::start();
    let start = Instant::now();
    let lost = sentinels.pause_master();
    let master = sentinels.wait_for_failover(lost, FAILOVER_DEADLINE);
    eprintln!("a paused master is replaced in {:?}", start.elapsed());
    sentinels.server(lost).resume();
    sentinels.wait_for_replica(lost, FAILOVER_DEADLINE);
    assert_eq!(sentinels.announced(), Some(master));
    // Each sentinel may still make it a replica and close its connections.
    let set = || sentinels.server(lost).try_command(&["SET", "new", "1"]).ok();
    let refused = process::wait_until(FAILOVER_DEADLINE, set).expect("an answer");
    assert!(
        matches!(&refused, Reply::Error(error) if error.starts_with("READONLY")),
        "{refused:?}"
    );
}

#[test]
fn two_sentinels_of_three_are_enough() {
    let mut sentinels = Sentinels::start();
    sentinels.kill_sentinel(0);
    let lost = sentinels.kill_master();
    assert_ne!(sentinels.wait_for_failover(lost, FAILOVER_DEADLINE), lost);
}

#[test]
fn the_url_of_sentinels_names_them_and_the_service() {
    let sentinels = Sentinels::start();
    let config = Config::from_url(&sentinels.url()).unwrap();
    let ServerConfig::Sentinel { hosts, service_name, .. } = config.server else {
        panic!("{config:?}")
    };
    assert_eq!((hosts.len(), service_name.as_str()), (3, SERVICE));
    for addr in sentinels.addresses() {
        assert!(hosts.iter().any(|host| host.port == addr.port()), "{addr} in {hosts:?}");
    }
}
