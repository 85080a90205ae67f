//! Moves a slot from one master to another, in steps between which a test can act.

use super::super::servers::Reply;
use super::Cluster;

/// Keys moved by one command of a migration.
const KEYS_MOVED_AT_ONCE: &str = "100";

/// A slot between two masters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Migration {
    pub slot: u16,
    pub from: usize,
    pub to: usize,
}

impl Cluster {
    /// Moves a slot and its keys.
    ///
    /// # Panics
    /// When a node refuses.
    pub fn migrate_slot(&self, slot: u16, to: usize) {
        let migration = self.begin_migration(slot, to);
        self.move_keys(migration);
        self.finish_migration(migration);
    }

    /// Starts a migration: keys that the slot's master does not have are answered with ASK.
    ///
    /// # Panics
    /// When a node refuses.
    pub fn begin_migration(&self, slot: u16, to: usize) -> Migration {
        let migration = Migration { slot, from: self.master_of(slot), to };
        let [from_id, to_id] = [migration.from, to].map(|node| self.nodes[node].id.as_str());
        self.set_slot(to, slot, &["IMPORTING", from_id]);
        self.set_slot(migration.from, slot, &["MIGRATING", to_id]);
        migration
    }

    /// Moves the keys that exist now; new keys of the slot are created on its new master.
    ///
    /// # Panics
    /// When a node refuses.
    pub fn move_keys(&self, migration: Migration) {
        let slot = migration.slot.to_string();
        loop {
            let list = ["CLUSTER", "GETKEYSINSLOT", &slot, KEYS_MOVED_AT_ONCE];
            let keys = self.command(migration.from, &list).into_array();
            if keys.is_empty() {
                return;
            }
            self.move_some(migration, keys.into_iter().map(Reply::into_bytes));
        }
    }

    /// Moves these keys and no others.
    ///
    /// # Panics
    /// When a node refuses.
    pub fn move_some(&self, migration: Migration, keys: impl IntoIterator<Item = Vec<u8>>) {
        let port = self.nodes[migration.to].server.port().to_string();
        let command = ["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
        let mut command: Vec<_> = command.map(|arg| arg.as_bytes().to_vec()).into();
        command.extend(keys);
        let moved = self.command(migration.from, &command);
        // A key may expire between the list and the move.
        let is_moved = matches!(&moved, Reply::Status(word) if word == "OK" || word == "NOKEY");
        assert!(is_moved, "{migration:?}: keys were not moved: {moved:?}");
    }

    /// The number of keys of a slot on a node.
    pub fn keys_in(&self, node: usize, slot: u16) -> u64 {
        self.command(node, &["CLUSTER", "COUNTKEYSINSLOT", &slot.to_string()]).into_count()
    }

    /// Ends a migration: the new master owns the slot, and all running nodes are notified.
    ///
    /// # Panics
    /// When a node refuses.
    pub fn finish_migration(&self, migration: Migration) {
        let id = self.nodes[migration.to].id.as_str();
        // In this order no client is redirected to a node that refuses.
        let mut notified = vec![migration.to, migration.from];
        for node in notified.clone() {
            self.set_slot(node, migration.slot, &["NODE", id]);
        }
        for node in self.running() {
            let is_master = self.view(node).iter().any(|range| range.ids[0] == self.nodes[node].id);
            if is_master && !notified.contains(&node) {
                self.set_slot(node, migration.slot, &["NODE", id]);
                notified.push(node);
            }
        }
    }

    fn set_slot(&self, node: usize, slot: u16, state: &[&str]) {
        let slot = slot.to_string();
        self.expect_ok(node, &[&["CLUSTER", "SETSLOT", &slot], state].concat());
    }
}
