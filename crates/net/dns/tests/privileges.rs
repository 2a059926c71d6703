//! Dropping root affects the whole process, so this test has its own.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::fs;

const NOBODY: u32 = 65534;

fn line(status: &str, name: &str) -> String {
    let found = status.lines().find_map(|line| line.strip_prefix(name));
    found
        .unwrap_or_default()
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}

#[test]
fn all_threads_lose_root_and_cannot_get_it_back() {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: not root");
        return;
    }
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let other = std::thread::spawn(move || wait.recv());
    net_dns::drop_privileges(NOBODY).unwrap();
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
