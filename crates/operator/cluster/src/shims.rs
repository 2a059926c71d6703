//! Ends the shims of a containerd, and with them its containers.

use std::fs;
use std::path::Path;

/// Kills shims that a containerd started but no longer knows: a sandbox that was interrupted during
/// its creation has a shim and no entry. The shim's command line names the socket of its
/// containerd.
pub fn end_shims(socket: &Path) {
    let socket = socket.as_os_str().as_encoded_bytes();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    for process in processes {
        let Some(pid) = process
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        let line = fs::read(process.path().join("cmdline")).unwrap_or_default();
        let mut words = line.split(|byte| *byte == 0);
        // The program first, so that an editor with the socket in its arguments is not killed.
        let shim = words
            .next()
            .is_some_and(|program| program.ends_with(b"/containerd-shim-runc-v2"));
        if shim && words.any(|word| word == socket) {
            end_tree(pid);
        }
    }
}

/// Kills a shim and its children, the containers' first processes.
fn end_tree(pid: i32) {
    // Read before the shim is killed, because the children get another parent then.
    let children =
        fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let children = children
        .split_whitespace()
        .filter_map(|word| word.parse().ok());
    std::iter::once(pid).chain(children).for_each(kill_process);
}

/// Kills a process.
pub fn kill_process(pid: i32) {
    if let Some(pid) = rustix::process::Pid::from_raw(pid) {
        // It may have ended since its id was read.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}
