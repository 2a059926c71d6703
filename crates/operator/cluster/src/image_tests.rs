#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods)]
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
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
    let mut child = Command::new(&path).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(100));
    assert!(child.try_wait().unwrap().is_none());
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let deadline = Instant::now() + Duration::from_secs(5);
    while Instant::now() < deadline {
        if let Some(status) = child.try_wait().unwrap() {
            assert_eq!((status.code(), status.signal()), (Some(0), None));
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.kill().unwrap();
    panic!("pause did not end");
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
