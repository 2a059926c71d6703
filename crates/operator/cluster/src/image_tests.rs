#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods)]
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use super::*;

#[test]
fn pause_waits_and_ends_on_term() {
    let Some(program) = pause::pause_program() else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pause");
    let mut tar = Tar::new();
    tar.add_file("pause", 0o755, &program);
    std::fs::write(dir.path().join("a.tar"), tar.finish()).unwrap();
    let done = Command::new("tar")
        .args(["xf", "a.tar"])
        .current_dir(dir.path())
        .status()
        .unwrap();
    assert!(done.success());
    let mut program = PauseProcess(Command::new(&path).spawn().unwrap());
    let child = &mut program.0;
    let deadline = Instant::now() + Duration::from_secs(60);
    while !waits_for_signals(child.id()) {
        assert!(child.try_wait().unwrap().is_none() && Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(10));
    }
    let pid = rustix::process::Pid::from_child(child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    while Instant::now() < deadline {
        if let Some(status) = child.try_wait().unwrap() {
            assert_eq!((status.code(), status.signal()), (Some(0), None));
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("pause did not end");
}

/// A process that is killed when the test ends.
struct PauseProcess(Child);

impl Drop for PauseProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns whether the program waits for signals: it has ignored SIGCHLD, and sleeps in no other
/// call.
fn waits_for_signals(id: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap();
    let find = |name| status.lines().find_map(|line| line.strip_prefix(name));
    let ignored = u64::from_str_radix(find("SigIgn:").unwrap().trim(), 16).unwrap();
    let child = 1 << (rustix::process::Signal::CHILD.as_raw() - 1);
    ignored & child != 0 && find("State:").unwrap().trim().starts_with('S')
}

#[test]
fn an_archive_has_the_parts_that_its_index_names() {
    let image = oci::image_archive(
        "a/b:1",
        b"layer",
        &Config {
            entrypoint: vec!["/x".into()],
            command: vec![],
        },
    );
    let text = String::from_utf8_lossy(&image);
    for part in [
        "oci-layout",
        "index.json",
        "io.containerd.image.name",
        &format!("blobs/sha256/{}", crate::files::digest_hex(b"layer")),
    ] {
        assert!(text.contains(part), "{part}");
    }
    assert_eq!(image.len() % 512, 0);
}

/// The header's checksum counts itself as blanks; `tar` rejects another one.
#[test]
fn archive_is_read_by_tar() {
    let dir = tempfile::tempdir().unwrap();
    let mut tar = Tar::new();
    tar.add_directory("bin", 0o755);
    tar.add_file("bin/program", 0o4755, &[7; 1000]);
    tar.add_link("bin/link", "/bin/program");
    std::fs::write(dir.path().join("a.tar"), tar.finish()).unwrap();
    let listing = Command::new("tar")
        .args(["tvf", "a.tar", "--numeric-owner"])
        .current_dir(dir.path())
        .output()
        .unwrap();
    assert!(listing.status.success(), "{listing:?}");
    let listing = String::from_utf8(listing.stdout).unwrap();
    let modes: Vec<&str> = listing
        .lines()
        .filter_map(|line| line.split(' ').next())
        .collect();
    assert_eq!(
        modes,
        ["drwxr-xr-x", "-rwsr-xr-x", "lrwxrwxrwx"],
        "{listing}"
    );
    assert!(listing.contains(" 1000 ") && listing.contains("bin/link -> /bin/program"));
}

#[test]
fn applet_is_renamed_in_place() {
    let program = b"x\0vi\0wc\0wget\0which\0y".to_vec();
    assert_eq!(rename_applet(program), b"x\0vi\0wc\0wgex\0which\0y");
    assert_eq!(rename_applet(b"other".to_vec()), b"other");
}
