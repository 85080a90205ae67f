//! A cluster is formed, fails over, and moves slots.

use std::net::TcpListener;
use std::time::Instant;

use fred::types::config::{Config, ServerConfig};

use super::FAILOVER_DEADLINE;
use crate::support::cluster::{Cluster, SHARDS, SLOTS};
use crate::support::servers::Reply;

fn ok() -> Reply {
    Reply::Status("OK".to_owned())
}

fn error(reply: Reply) -> String {
    let Reply::Error(error) = reply else { panic!("an error expected: {reply:?}") };
    error
}

#[test]
fn a_cluster_takes_writes_on_every_shard_and_redirects_other_keys() {
    let start = Instant::now();
    let cluster = Cluster::start();
    eprintln!("a cluster starts in {:?}", start.elapsed());
    for (slot, master) in [(0, 0), (5_460, 0), (5_461, 1), (10_923, 2), (SLOTS - 1, 2)] {
        assert_eq!(cluster.master_of(slot), master, "slot {slot}");
    }
    for key in ["a", "b", "c", "d"] {
        let slot = cluster.slot_of(key.as_bytes());
        let master = cluster.master_of(slot);
        assert_eq!(cluster.server(master).replicated(1, &["SET", key, "1"]), ok());
        let other = (master + 1) % SHARDS;
        let moved = error(cluster.command(other, &["SET", key, "1"]));
        assert_eq!(moved, format!("MOVED {slot} {}", cluster.addresses()[master]));
    }
}

#[test]
fn the_url_of_a_cluster_names_all_nodes() {
    let cluster = Cluster::start();
    let config = Config::from_url(&cluster.url()).unwrap();
    let ServerConfig::Clustered { hosts, .. } = config.server else { panic!("{config:?}") };
    let mut ports: Vec<_> = hosts.iter().map(|host| host.port).collect();
    let mut wanted: Vec<_> = cluster.addresses().iter().map(std::net::SocketAddr::port).collect();
    ports.sort_unstable();
    wanted.sort_unstable();
    assert_eq!(ports, wanted);
}

#[test]
fn a_killed_master_is_replaced_and_comes_back_as_a_replica() {
    let mut cluster = Cluster::start();
    assert_eq!(cluster.server(0).replicated(1, &["SET", "{b}kept", "1"]), ok());
    let start = Instant::now();
    cluster.kill(0);
    let master = cluster.wait_for_failover(0, FAILOVER_DEADLINE);
    eprintln!("a killed master is replaced in {:?}", start.elapsed());
    assert_eq!((master, cluster.master_of(0)), (3, 3));
    assert_eq!(cluster.command(master, &["GET", "{b}kept"]).into_bytes(), b"1");
    let start = Instant::now();
    cluster.restart(0);
    cluster.wait_until_whole(FAILOVER_DEADLINE);
    eprintln!("it is a replica again in {:?}", start.elapsed());
    assert_eq!(cluster.master_of(0), 3);
}

#[test]
fn a_paused_master_is_replaced_and_steps_down_when_it_resumes() {
    let mut cluster = Cluster::start();
    let start = Instant::now();
    cluster.pause(1);
    let master = cluster.wait_for_failover(1, FAILOVER_DEADLINE);
    eprintln!("a paused master is replaced in {:?}", start.elapsed());
    assert_eq!(master, 4);
    cluster.resume(1);
    cluster.wait_until_whole(FAILOVER_DEADLINE);
    assert_eq!(cluster.master_of(5_461), 4);
}

#[test]
fn a_half_migrated_slot_serves_old_keys_and_redirects_new_ones() {
    let cluster = Cluster::start();
    let slot = cluster.slot_of(b"{b}");
    let (from, to) = (cluster.master_of(slot), 2);
    assert_eq!(cluster.command(from, &["SET", "{b}old", "1"]), ok());
    let migration = cluster.begin_migration(slot, to);
    assert_eq!((migration.from, cluster.master_of(slot)), (from, from));
    assert_eq!(cluster.command(from, &["GET", "{b}old"]).into_bytes(), b"1");
    let ask = format!("ASK {slot} {}", cluster.addresses()[to]);
    assert_eq!(error(cluster.command(from, &["SET", "{b}new", "1"])), ask);
    let both = error(cluster.command(from, &["MGET", "{b}old", "{b}new"]));
    assert!(both.starts_with("TRYAGAIN"), "{both}");
    cluster.move_keys(migration);
    assert_eq!(error(cluster.command(from, &["GET", "{b}old"])), ask);
    cluster.finish_migration(migration);
    assert_eq!(cluster.master_of(slot), to);
    assert_eq!(cluster.command(to, &["GET", "{b}old"]).into_bytes(), b"1");
    let moved = format!("MOVED {slot} {}", cluster.addresses()[to]);
    for node in [from, 1] {
        assert_eq!(error(cluster.command(node, &["GET", "{b}old"])), moved, "node {node}");
    }
}

#[test]
fn a_slot_migrates_with_all_its_keys_and_back() {
    let cluster = Cluster::start();
    let slot = cluster.slot_of(b"{b}");
    let from = cluster.master_of(slot);
    for at in 0..250 {
        assert_eq!(cluster.command(from, &["SET", &format!("{{b}}{at}"), "1"]), ok());
    }
    for to in [1, from] {
        cluster.migrate_slot(slot, to);
        let count = ["CLUSTER", "COUNTKEYSINSLOT", &slot.to_string()];
        assert_eq!(cluster.command(to, &count), Reply::Int(250));
    }
}

#[test]
fn dropping_a_cluster_ends_its_processes_even_in_a_panic() {
    let (ports, reported) = std::sync::mpsc::channel();
    let failed = std::thread::spawn(move || {
        let mut cluster = Cluster::start();
        cluster.pause(2);
        ports.send(cluster.addresses()).unwrap();
        panic!("as a test does that fails");
    });
    assert!(failed.join().is_err());
    for addr in reported.recv().unwrap() {
        assert!(TcpListener::bind(addr).is_ok(), "{addr} is still in use");
    }
}
