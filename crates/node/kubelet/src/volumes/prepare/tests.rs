#![allow(clippy::unwrap_used, clippy::print_stdout)]
use super::*;
use crate::config::Settings;
use crate::testing;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use node_volumes::Mounter;
use serde_json::{Value, json};
use std::cell::Cell;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

const GROUP: u32 = 4_321;

fn pod_with(volume: Value) -> Arc<Pod> {
    testing::pod(
        json!({"containers": [], "securityContext": {"fsGroup": GROUP}, "volumes": [volume]}),
    )
}

fn volume_of(pod: &Pod) -> &Volume {
    &spec::read_spec(pod).volumes.as_ref().unwrap()[0]
}

#[test]
fn volume_is_set_up_again_after_a_failure_and_on_a_new_mount() {
    let dir = tempfile::tempdir().unwrap();
    let mark = dir.path().join("marks/v");
    let calls = Cell::new(0);
    let set = || {
        calls.set(calls.get() + 1);
        Ok(())
    };
    set_up_once(&mark, true, || Err("planted".into())).unwrap_err();
    set_up_once(&mark, false, set).unwrap();
    assert_eq!(calls.get(), 1, "the first try failed");
    set_up_once(&mark, false, set).unwrap();
    assert_eq!(calls.get(), 1, "containers use it");
    set_up_once(&mark, true, set).unwrap();
    assert_eq!(
        calls.get(),
        2,
        "the mount is another one, as after a reboot"
    );
}

/// Runs `test` on a thread with mounts of its own; prints why if that needs rights which are not
/// there.
fn with_own_mounts(test: impl FnOnce() + Send + 'static) {
    let thread = std::thread::spawn(move || {
        let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
        let apart = nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS)
            .and_then(|()| mount(None::<&str>, "/", None::<&str>, private, None::<&str>));
        match apart {
            Ok(()) => test(),
            Err(reason) => println!("skipped: {reason}"),
        }
    });
    thread.join().unwrap();
}

#[tokio::test]
async fn tmpfs_has_its_mode_and_group_after_a_reboot() {
    let dir = tempfile::tempdir().unwrap();
    let kubelet = testing::context(Settings {
        mounter: Mounter::Kernel,
        ..testing::settings(dir.path())
    });
    let pod = pod_with(json!({"name": "v", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}));
    with_own_mounts(move || {
        for boot in ["first", "second"] {
            let path = set_up_empty_dir(&kubelet, &pod, volume_of(&pod)).unwrap();
            let made = std::fs::metadata(&path).unwrap();
            assert_eq!(
                (made.mode() & 0o7777, made.gid()),
                (0o2777, GROUP),
                "{boot} boot"
            );
            // Mounts do not outlive the kernel, files on the disk do.
            umount2(&path, MntFlags::MNT_DETACH).unwrap();
        }
    });
}

#[tokio::test]
async fn group_of_a_volume_is_set_off_the_runtime() {
    let dir = tempfile::tempdir().unwrap();
    let kubelet = testing::context(testing::settings(dir.path()));
    let pod = pod_with(json!({"name": "v", "emptyDir": {}}));
    // `own` panics on a thread of the runtime.
    let made = set_up_empty_dir(&kubelet, &pod, volume_of(&pod));
    if rustix::process::geteuid().is_root() {
        assert_eq!(std::fs::metadata(made.unwrap()).unwrap().gid(), GROUP);
    }
}
