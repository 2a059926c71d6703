//! Generates the messages and the service of `proto/peer.proto`.
#![allow(clippy::expect_used)]

use std::path::Path;

fn main() {
    let folder = Path::new("proto");
    println!("cargo::rerun-if-changed={}", folder.display());
    let descriptors =
        protox::compile([folder.join("peer.proto")], [folder]).expect("the proto file is valid");
    tonic_prost_build::configure()
        .bytes(".")
        .emit_rerun_if_changed(false)
        .compile_fds(descriptors)
        .expect("code generation writes to OUT_DIR");
}
