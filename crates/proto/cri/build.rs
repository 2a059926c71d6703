//! Generates the CRI and containerd event services from `/proto/cri`.

use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = Path::new("../../../proto/cri");
    println!("cargo::rerun-if-changed={}", folder.display());
    let files = protox::compile(["api.proto", "containerd_events.proto"], [folder])?;
    tonic_prost_build::configure().compile_fds(files)?;
    Ok(())
}
