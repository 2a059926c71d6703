//! An OCI image layout with one image of one layer, in a tar archive.

use serde_json::json;

use super::tar::Tar;
use crate::files::digest_hex;

/// Entry point and command of the image.
pub struct Config {
    /// The entry point.
    pub entrypoint: Vec<String>,
    /// The default command.
    pub command: Vec<String>,
}

/// Builds the archive.
pub fn image_archive(reference: &str, layer: &[u8], config: &Config) -> Vec<u8> {
    let layer_digest = digest_hex(layer);
    let mut run =
        json!({ "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"] });
    for (name, words) in [("Entrypoint", &config.entrypoint), ("Cmd", &config.command)] {
        if !words.is_empty() {
            run[name] = json!(words);
        }
    }
    let config = json!({
        "architecture": oci_architecture(),
        "os": "linux",
        "config": run,
        // The layer is not compressed, so that its digest is its diff ID, too.
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{layer_digest}")] },
        // No time of creation, so that equal contents give the same digest.
        "history": [{ "created_by": "ironclad" }],
    })
    .to_string();
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": blob_descriptor("application/vnd.oci.image.config.v1+json", config.as_bytes()),
        "layers": [blob_descriptor("application/vnd.oci.image.layer.v1.tar", layer)],
    })
    .to_string();
    let mut entry = blob_descriptor(
        "application/vnd.oci.image.manifest.v1+json",
        manifest.as_bytes(),
    );
    let tag = reference.rsplit(':').next().unwrap_or_default();
    entry["platform"] = json!({ "architecture": oci_architecture(), "os": "linux" });
    entry["annotations"] =
        // ctr names an imported image by the first annotation; other tools use the second.
        json!({ "io.containerd.image.name": reference, "org.opencontainers.image.ref.name": tag });
    let index = json!({ "schemaVersion": 2, "manifests": [entry] }).to_string();

    let mut tar = Tar::new();
    tar.add_file("oci-layout", 0o644, br#"{"imageLayoutVersion":"1.0.0"}"#);
    tar.add_file("index.json", 0o644, index.as_bytes());
    tar.add_directory("blobs", 0o755);
    tar.add_directory("blobs/sha256", 0o755);
    for blob in [layer, config.as_bytes(), manifest.as_bytes()] {
        tar.add_file(&format!("blobs/sha256/{}", digest_hex(blob)), 0o644, blob);
    }
    tar.finish()
}

fn blob_descriptor(media_type: &str, blob: &[u8]) -> serde_json::Value {
    json!({ "mediaType": media_type, "digest": format!("sha256:{}", digest_hex(blob)), "size": blob.len() })
}

/// Returns the processor's name in OCI's spelling.
fn oci_architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
