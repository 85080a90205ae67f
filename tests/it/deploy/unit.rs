//! The systemd unit, by systemd-analyze.

use std::fs;

use crate::support::tools::{agreed, said, text};

/// What `systemd-analyze security` gives at most, of 10; ours is 1.2.
const EXPOSURE_MAX: &str = "15";

/// A folder with the unit, which starts the program of this build, and its drop-in.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let unit = text("deploy/systemd/tidegate.service");
    let unit = unit.replace("/usr/bin/tidegate", env!("CARGO_BIN_EXE_tidegate"));
    let drop_ins = folder.path().join("tidegate.service.d");
    fs::write(folder.path().join("tidegate.service"), unit).unwrap();
    fs::create_dir(&drop_ins).unwrap();
    fs::write(drop_ins.join("password.conf"), text("deploy/systemd/password.conf")).unwrap();
    folder
}

#[test]
fn systemd_accepts_the_unit_with_and_without_a_password() {
    let folder = folder();
    let unit = folder.path().join("tidegate.service");
    for with_password in [true, false] {
        if !with_password {
            fs::remove_dir_all(folder.path().join("tidegate.service.d")).unwrap();
        }
        let args = ["verify", "--man=no", "--recursive-errors=no", unit.to_str().unwrap()];
        let output = said("systemd-analyze".as_ref(), &args, "");
        // A warning, of an unknown setting for example, leaves the exit code as it is.
        let warnings = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && warnings.is_empty(), "{warnings}");
    }
}

#[test]
fn the_unit_stays_closed() {
    let folder = folder();
    let unit = folder.path().join("tidegate.service");
    let threshold = format!("--threshold={EXPOSURE_MAX}");
    let args = ["security", "--offline=true", "--no-pager", &threshold, unit.to_str().unwrap()];
    agreed("systemd-analyze", &args, "");
}
