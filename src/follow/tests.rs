//! Followers of real files, and of a file system that hangs.

use std::fs;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use super::*;

/// A deadline for steps that must not take for ever.
const SOME_TIME: Duration = Duration::from_secs(20);

const STILL: Duration = Duration::from_millis(100);

/// One file: its text, or the error.
struct OneFile(PathBuf);

impl Source for OneFile {
    type Contents = Result<String, String>;

    fn paths(&self) -> Vec<PathBuf> {
        vec![self.0.clone()]
    }

    fn read(&self) -> Self::Contents {
        fs::read_to_string(&self.0).map_err(|error| error.to_string())
    }

    fn fingerprint(contents: &Self::Contents) -> Fingerprint {
        match contents {
            Ok(text) => Fingerprint::complete([text.as_bytes()]),
            Err(error) => Fingerprint::incomplete([error.as_bytes()]),
        }
    }
}

fn follower(path: &Path) -> Follower<OneFile> {
    let source = OneFile(path.to_owned());
    let seen = OneFile::fingerprint(&source.read());
    Follower::new(source, seen, STILL)
}

/// The next read; `None` if `polls` polls lead to none.
fn next(follower: &mut Follower<OneFile>, polls: usize) -> Option<Result<String, String>> {
    for _ in 0..polls {
        match follower.next() {
            Next::Read(contents) => return Some(contents),
            Next::Unchanged => {}
            Next::Stopped => panic!("nobody stopped it"),
        }
    }
    None
}

#[test]
fn changed_contents_are_read_and_unchanged_ones_only_on_request() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    fs::write(&path, "one").unwrap();
    let mut follower = follower(&path);
    assert_eq!(next(&mut follower, 4), None);
    fs::write(&path, "two").unwrap();
    assert_eq!(next(&mut follower, 40), Some(Ok("two".to_owned())));
    fs::write(&path, "two").unwrap();
    assert_eq!(next(&mut follower, 6), None, "only touched");
    follower.control().read_now();
    assert_eq!(next(&mut follower, 40), Some(Ok("two".to_owned())));
}

#[test]
fn a_file_that_cannot_be_read_is_reported_once_until_it_is_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    fs::write(&path, "one").unwrap();
    let mut follower = follower(&path);
    fs::remove_file(&path).unwrap();
    let failed = next(&mut follower, 40).unwrap().unwrap_err();
    assert!(failed.contains("No such file"), "{failed}");
    assert_eq!(next(&mut follower, 10), None);
    fs::write(&path, "one").unwrap();
    assert_eq!(next(&mut follower, 40), Some(Ok("one".to_owned())));
}

/// Files whose metadata is blocked until the test releases it.
struct Hanging {
    began: Sender<()>,
    goes_on: Receiver<()>,
}

impl Source for Hanging {
    type Contents = ();

    fn paths(&self) -> Vec<PathBuf> {
        self.began.send(()).unwrap();
        // Ends when the test drops its side.
        let _ = self.goes_on.recv();
        vec![]
    }

    fn read(&self) {}

    fn fingerprint((): &()) -> Fingerprint {
        Fingerprint::complete([])
    }
}

#[test]
fn a_file_system_that_hangs_blocks_nothing_else() {
    let ((began, begins), (lets_go, goes_on)) = (channel(), channel());
    let mut follower = Follower::new(Hanging { began, goes_on }, Fingerprint::complete([]), STILL);
    let control = follower.control();
    let thread = thread::spawn(move || while !matches!(follower.next(), Next::Stopped) {});
    begins.recv_timeout(SOME_TIME).unwrap();
    // Both return while the poll hangs; otherwise, this test would hang.
    control.read_now();
    control.stop();
    assert!(!thread.is_finished());
    drop(lets_go);
    thread.join().unwrap();
}
