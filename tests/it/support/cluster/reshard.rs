//! `redis-cli --cluster reshard`, as operators move slots.

use std::process::{Child, Stdio};
use std::time::Duration;

use super::Cluster;
use crate::support::process;

/// The deadline of redis-cli.
const DEADLINE: Duration = Duration::from_secs(300);

/// A running reshard, killed on drop.
pub struct Reshard(Child);

impl Cluster {
    /// Moves the `slots` lowest slots of the node `from` to the node `to`, `keys_at_once` keys with
    /// one MIGRATE.
    ///
    /// # Panics
    /// When there is no redis-cli.
    pub fn reshard(&self, from: usize, to: usize, slots: u16, keys_at_once: u32) -> Reshard {
        let mut command = process::bound_to_this_process("redis-cli");
        command.args(["--cluster", "reshard", &self.addresses()[from].to_string()]);
        command.args(["--cluster-from", &self.nodes[from].id, "--cluster-to", &self.nodes[to].id]);
        command.args(["--cluster-slots", &slots.to_string(), "--cluster-yes"]);
        command.args(["--cluster-pipeline", &keys_at_once.to_string()]);
        // Its report would fill a pipe: one dot per key.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::inherit());
        Reshard(process::spawn(command).expect("redis-cli, of the same package as redis-7.0"))
    }
}

impl Reshard {
    /// Whether it has ended.
    pub fn has_ended(&mut self) -> bool {
        self.0.try_wait().expect("a child can be waited for").is_some()
    }

    /// Stops moving keys, until [`Reshard::resume`].
    pub fn pause(&mut self) {
        self.signal("STOP");
    }

    /// Resumes after [`Reshard::pause`].
    pub fn resume(&mut self) {
        self.signal("CONT");
    }

    fn signal(&mut self, name: &str) {
        if !self.has_ended() {
            process::signal(&self.0, name);
        }
    }

    /// Waits for the end; returns whether all slots were moved.
    ///
    /// # Panics
    /// When it does not end in time.
    pub fn succeeds(mut self) -> bool {
        process::wait_for_exit(&mut self.0, DEADLINE).expect("the reshard ends in time").success()
    }
}

impl Drop for Reshard {
    fn drop(&mut self) {
        process::kill(&mut self.0);
    }
}
