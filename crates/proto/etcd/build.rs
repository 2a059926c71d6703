//! Generates the messages and services of `/proto/etcd`; no `protoc` is needed.
#![allow(clippy::expect_used)]

use std::path::Path;

fn main() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../proto/etcd");
    let files = ["kv", "auth", "rpc", "lock", "election"].map(|name| folder.join(format!("{name}.proto")));
    println!("cargo::rerun-if-changed={}", folder.display());
    let descriptors = protox::compile(&files, [&folder]).expect("the proto files are valid");
    tonic_prost_build::configure()
        .bytes(".")
        .emit_rerun_if_changed(false)
        .compile_fds(descriptors)
        .expect("code generation writes to OUT_DIR");
}
