//! Programs that check files: they end, and print their findings.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::{io, thread};

use serde_json::Value;

use super::process;

/// The checkout.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A file of the checkout.
///
/// # Panics
/// When it is not there.
pub fn text(path: &str) -> String {
    let read = std::fs::read_to_string(root().join(path));
    read.unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Parses YAML as JSON.
///
/// # Panics
/// When it is invalid.
pub fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{error}:\n{text}"))
}

/// A program of `.servers/`, by folder and name.
///
/// # Panics
/// When it is not installed.
pub fn installed(path: &str) -> PathBuf {
    let program = root().join(".servers").join(path);
    let (name, _) = path.split_once('/').expect("folder and name");
    assert!(program.exists(), "{path} is not there: run tests/tools/install-servers {name}");
    program
}

/// The output of the program, which must succeed.
///
/// # Panics
/// When it fails; the message contains its output.
pub fn run_checked(program: impl AsRef<Path>, args: &[&str], stdin: &str) -> String {
    let output = run(program.as_ref(), args, stdin);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    let program = program.as_ref().display();
    assert!(output.status.success(), "{program} {args:?} does not agree:\n{out}{err}");
    out
}

/// The output of the program, and its exit status.
///
/// # Panics
/// When it does not start.
pub fn run(program: &Path, args: &[&str], stdin: &str) -> Output {
    let mut command = Command::new(program);
    command.args(args).current_dir(root());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = process::spawn(command).unwrap_or_else(|error| panic!("{program:?}: {error}"));
    let mut input = child.stdin.take().expect("its input is piped");
    let text = stdin.to_owned();
    // A program may end without reading its input, and then this may fail.
    thread::spawn(move || io::Write::write_all(&mut input, text.as_bytes()));
    child.wait_with_output().expect("a child can be waited for")
}
