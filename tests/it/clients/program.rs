//! Builds the programs in folders of their own, and runs them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use super::stubs;
use crate::support::process;
use crate::support::tools::{installed, root};

/// How long a build may take on a busy machine, with its downloads.
const BUILD_MAX: Duration = Duration::from_secs(600);

/// How long a program may take that does a few calls.
const RUN_MAX: Duration = Duration::from_secs(120);

/// A program, ready to run.
pub(super) struct Program {
    command: PathBuf,
    args: Vec<String>,
    variables: Vec<(&'static str, String)>,
    // Removed when dropped.
    _folder: TempDir,
}

/// What a program printed.
#[derive(Debug)]
pub(super) struct Output {
    pub(super) succeeds: bool,
    pub(super) out: String,
    pub(super) err: String,
}

impl Program {
    pub(super) fn python() -> Self {
        Self::of_python("limiter.py")
    }

    /// Lists the services of a server.
    pub(super) fn python_reflection() -> Self {
        Self::of_python("list_services.py")
    }

    fn of_python(program: &str) -> Self {
        let packages = installed("python-client/grpc_tools");
        let packages = packages.parent().expect("a folder").display().to_string();
        let folder = stubs::python(&packages);
        let stubs = folder.path().display();
        Self {
            command: "python3".into(),
            args: vec![source("python").join(program).display().to_string()],
            variables: vec![("PYTHONPATH", format!("{packages}:{stubs}"))],
            _folder: folder,
        }
    }

    pub(super) fn node() -> Self {
        let folder = copied("node", &["limiter.js", "package.json"]);
        let packages = installed("node-client/node_modules");
        std::os::unix::fs::symlink(packages, folder.path().join("node_modules")).unwrap();
        let program = folder.path().join("limiter.js").display().to_string();
        let protos = root().join("proto").display().to_string();
        Self {
            command: "node".into(),
            args: vec![program, protos],
            variables: vec![],
            _folder: folder,
        }
    }

    pub(super) fn go() -> Self {
        let folder = copied("go", &["limiter.go", "go.mod", "go.sum"]);
        stubs::go(folder.path());
        let mut build = Command::new("go");
        build.args(["build", "-o", "limiter", "."]).current_dir(folder.path());
        checked(build);
        let command = folder.path().join("limiter");
        Self { command, args: vec![], variables: vec![], _folder: folder }
    }

    pub(super) fn java() -> Self {
        let program = "src/main/java/Limiter.java";
        let folder = copied("java", &["pom.xml", program]);
        let mut build = Command::new("mvn");
        let protos = format!("-Dprotos={}", root().join("proto").display());
        build.args(["--quiet", "--batch-mode", &protos, "compile"]).current_dir(folder.path());
        checked(build);
        let target = folder.path().join("target");
        let classes = target.join("classes").display().to_string();
        let path = format!("{classes}:{}/*", target.join("dependency").display());
        let args = vec!["-cp".to_owned(), path, "Limiter".to_owned()];
        Self { command: "java".into(), args, variables: vec![], _folder: folder }
    }

    /// Runs the program with this deadline for its calls.
    pub(super) fn run(&self, deadline_ms: &str, args: &[&str]) -> Output {
        let mut command = Command::new(&self.command);
        command.args(&self.args).args(args).env("TIDEGATE_DEADLINE_MS", deadline_ms);
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        run_within(RUN_MAX, command)
    }
}

fn source(language: &str) -> PathBuf {
    root().join("tests/clients").join(language)
}

/// A new folder with copies of a program's files.
fn copied(language: &str, files: &[&str]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for file in files {
        let copy = folder.path().join(file);
        fs::create_dir_all(copy.parent().expect("a folder")).unwrap();
        fs::copy(source(language).join(file), copy).unwrap();
    }
    folder
}

/// Runs a command that must succeed. Returns all that it printed.
pub(super) fn checked(command: Command) -> String {
    let shown = format!("{command:?}");
    let output = run_within(BUILD_MAX, command);
    assert!(output.succeeds, "{shown} fails:\n{}{}", output.out, output.err);
    output.out + &output.err
}

fn run_within(deadline: Duration, mut command: Command) -> Output {
    let shown = format!("{command:?}");
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| fs::File::create(folder.path().join(name)).unwrap();
    // Files, because a pipe that nobody reads may fill up.
    command.stdin(Stdio::null()).stdout(file("out")).stderr(file("err"));
    let mut child = process::spawn(command).unwrap_or_else(|error| panic!("{shown}: {error}"));
    let Some(status) = process::wait_for_exit(&mut child, deadline) else {
        process::kill(&mut child);
        panic!("{shown} still runs after {deadline:?}: {}", read(&folder.path().join("err")));
    };
    let (out, err) = (read(&folder.path().join("out")), read(&folder.path().join("err")));
    Output { succeeds: status.success(), out, err }
}

fn read(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned()
}
