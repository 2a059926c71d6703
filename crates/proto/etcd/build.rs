//! Generates the messages and services of `/proto/etcd`; no `protoc` is needed.
#![allow(clippy::expect_used)]

use std::path::Path;

fn main() {
    // Relative to the package, which is the working directory of the script. An absolute path would
    // be another clone's if both share a target directory.
    let folder = Path::new("../../../proto/etcd");
    let files =
        ["kv", "auth", "rpc", "lock", "election"].map(|name| folder.join(format!("{name}.proto")));
    println!("cargo::rerun-if-changed={}", folder.display());
    let descriptors = protox::compile(&files, [folder]).expect("the proto files are valid");
    tonic_prost_build::configure()
        .bytes(".")
        .emit_rerun_if_changed(false)
        .compile_fds(descriptors)
        .expect("code generation writes to OUT_DIR");
}
