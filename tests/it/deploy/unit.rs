//! The systemd unit, checked by systemd-analyze.

use std::fs;

use crate::support::tools::{run, run_checked, text};

/// The highest score of `systemd-analyze security`, of 10; ours is 1.2.
const EXPOSURE_MAX: &str = "15";

/// A folder with the unit, which starts this build, and its drop-in.
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
        let output = run("systemd-analyze".as_ref(), &args, "");
        // A warning, such as one about an unknown setting, does not change the exit code.
        let warnings = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && warnings.is_empty(), "{warnings}");
    }
}

#[test]
fn the_unit_stays_locked_down() {
    let folder = folder();
    let unit = folder.path().join("tidegate.service");
    let threshold = format!("--threshold={EXPOSURE_MAX}");
    let args = ["security", "--offline=true", "--no-pager", &threshold, unit.to_str().unwrap()];
    run_checked("systemd-analyze", &args, "");
}
