//! Dropping root affects the whole process, so this test has its own.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};

use client::{Config, Source};

const NOBODY: u32 = 65534;

fn line(status: &str, name: &str) -> String {
    let found = status.lines().find_map(|line| line.strip_prefix(name));
    found
        .unwrap_or_default()
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}

/// Returns a configuration with a file that only root can read. The folder is the other user's, who
/// deletes it.
fn make_private_file() -> (tempfile::TempDir, Config) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ca.crt");
    fs::write(&path, "").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    chown(folder.path(), Some(NOBODY), None).unwrap();
    let config = Config::builder("http://127.0.0.1:1").with_ca(Source::File(path));
    (folder, config)
}

#[test]
fn all_threads_lose_root_and_cannot_get_it_back() {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: not root");
        return;
    }
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let other = std::thread::spawn(move || wait.recv());
    let (folder, config) = make_private_file();
    config.check_files().unwrap();
    net_dns::drop_privileges(NOBODY).unwrap();
    let error = config.check_files().unwrap_err().to_string();
    assert!(error.contains("ca.crt: Permission denied"), "{error}");
    drop(folder);
    for task in fs::read_dir("/proc/self/task").unwrap() {
        let status = fs::read_to_string(task.unwrap().path().join("status")).unwrap();
        assert_eq!(line(&status, "Uid:"), "65534 65534 65534 65534");
        assert_eq!(line(&status, "Gid:"), "65534 65534 65534 65534");
        assert_eq!(line(&status, "Groups:"), "");
        assert_eq!(line(&status, "CapEff:"), "0000000000000000");
        assert_eq!(line(&status, "CapPrm:"), "0000000000000000");
    }
    assert!(nix::unistd::setuid(nix::unistd::Uid::from_raw(0)).is_err());
    go.send(()).unwrap();
    other.join().unwrap().unwrap();
}
