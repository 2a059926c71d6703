//! Warnings about volumes: plugins that upstream removed, and files that hide each other.

use crate::field::{Path, go_quote};
use crate::rules::read_quantity;
use api_meta::tree::{get, has, list, opt_text, text};
use serde_json::Value;

const REMOVED: [(&str, &str, &str); 9] = [
    (
        "photonPersistentDisk",
        "photonPersistentDisk",
        "deprecated in v1.11, non-functional in v1.16+",
    ),
    (
        "gitRepo",
        "gitRepo",
        "deprecated in v1.11, and disabled by default in v1.33+",
    ),
    (
        "scaleIO",
        "scaleIO",
        "deprecated in v1.16, non-functional in v1.22+",
    ),
    (
        "flocker",
        "flocker",
        "deprecated in v1.22, non-functional in v1.25+",
    ),
    (
        "storageos",
        "storageOS",
        "deprecated in v1.22, non-functional in v1.25+",
    ),
    (
        "quobyte",
        "quobyte",
        "deprecated in v1.22, non-functional in v1.25+",
    ),
    (
        "glusterfs",
        "glusterfs",
        "deprecated in v1.25, non-functional in v1.26+",
    ),
    (
        "cephfs",
        "cephfs",
        "deprecated in v1.28, non-functional in v1.31+",
    ),
    (
        "rbd",
        "rbd",
        "deprecated in v1.28, non-functional in v1.31+",
    ),
];

/// Warns about the volumes of a pod.
pub(super) fn warn_about_volumes(spec: &Value, path: &Path<'_>, warnings: &mut Vec<String>) {
    let at = path.child("volumes");
    for (i, volume) in list(spec, "volumes").iter().enumerate() {
        let at = at.index(i);
        for (field, shown, message) in REMOVED {
            if has(volume, field) {
                warnings.push(format!("{}: {message}", at.child(shown)));
            }
        }
        let template = get(get(volume, "ephemeral"), "volumeClaimTemplate");
        if !template.is_null() {
            let at = at.child("ephemeral");
            let at = at.child("volumeClaimTemplate");
            warn_about_claim(get(template, "spec"), &at.child("spec"), warnings);
        }
    }
    for volume in list(spec, "volumes") {
        warn_about_files(volume, warnings);
    }
}

/// Warns about a size of a claim that is no number of bytes.
pub(super) fn warn_about_claim(spec: &Value, path: &Path<'_>, warnings: &mut Vec<String>) {
    let path = path.child("resources");
    for part in ["requests", "limits"] {
        let amounts = get(get(spec, "resources"), part);
        warn_about_fraction(amounts, "storage", &path.child(part), warnings);
    }
}

/// Warns about an amount in bytes that has a fraction.
pub(super) fn warn_about_fraction(
    amounts: &Value,
    name: &str,
    path: &Path<'_>,
    warnings: &mut Vec<String>,
) {
    if let Some(amount) = read_quantity(amounts, name).filter(|q| q.milli_value() % 1000 != 0) {
        let shown = go_quote(&amount.to_string());
        let at = path.key(name);
        warnings.push(format!(
            "{at}: fractional byte value {shown} is invalid, must be an integer"
        ));
    }
}

/// A file in a volume, and the source that it comes from.
#[derive(PartialEq, Eq)]
struct File {
    path: String,
    source: String,
}

impl std::fmt::Display for File {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&go_quote(&self.path))?;
        match self.source.as_str() {
            "" => Ok(()),
            source => write!(f, " ({source})"),
        }
    }
}

fn list_files(source: &Value, shown: &str) -> Vec<File> {
    list(source, "items")
        .iter()
        .map(|item| new_file(text(item, "path"), shown))
        .collect()
}

fn new_file(path: &str, source: &str) -> File {
    File {
        path: path.trim_end_matches('/').to_owned(),
        source: source.to_owned(),
    }
}

fn warn_about_files(volume: &Value, warnings: &mut Vec<String>) {
    let name = text(volume, "name");
    let config_map = get(volume, "configMap");
    let secret = get(volume, "secret");
    for (source, shown) in [
        (
            config_map,
            format!("ConfigMap {}", go_quote(text(config_map, "name"))),
        ),
        (
            secret,
            format!("Secret {}", go_quote(text(secret, "secretName"))),
        ),
        (get(volume, "downwardAPI"), "DownwardAPI".to_owned()),
    ] {
        warn_about_overlaps(name, &shown, list_files(source, ""), warnings);
    }
    let mut files = Vec::new();
    for source in list(get(volume, "projected"), "sources") {
        if source
            .as_object()
            .is_none_or(|map| map.values().all(Value::is_null))
        {
            let name = go_quote(name);
            warnings.push(format!("volume {name} (Projected) has no sources provided"));
        }
        files.extend(list_projected_files(source));
    }
    warn_about_overlaps(name, "Projected", files, warnings);
}

fn list_projected_files(source: &Value) -> Vec<File> {
    for (field, kind) in [("configMap", "ConfigMap"), ("secret", "Secret")] {
        let part = get(source, field);
        if has(part, "items") {
            return list_files(part, &format!("{kind} {}", go_quote(text(part, "name"))));
        }
    }
    if has(get(source, "downwardAPI"), "items") {
        return list_files(get(source, "downwardAPI"), "DownwardAPI");
    }
    if has(source, "serviceAccountToken") {
        let path = text(get(source, "serviceAccountToken"), "path");
        return vec![new_file(path, "ServiceAccountToken")];
    }
    let bundle = get(source, "clusterTrustBundle");
    if !bundle.is_null() {
        let name = opt_text(bundle, "name").unwrap_or_else(|| text(bundle, "signerName"));
        let shown = format!("ClusterTrustBundle {}", go_quote(name));
        return vec![new_file(text(bundle, "path"), &shown)];
    }
    let certificate = get(source, "podCertificate");
    [
        ("certificateChainPath", "PodCertificate chain"),
        ("keyPath", "PodCertificate key"),
        ("credentialBundlePath", "PodCertificate credential bundle"),
    ]
    .into_iter()
    .map(|(field, shown)| new_file(text(certificate, field), shown))
    .filter(|file| !file.path.is_empty())
    .collect()
}

/// Limits the comparisons of a volume's files, each with each: the size of an object would allow
/// tens of thousands of files.
const COMPARED_FILES: usize = 256;

fn warn_about_overlaps(volume: &str, what: &str, files: Vec<File>, warnings: &mut Vec<String>) {
    let all: Vec<File> = files.into_iter().take(COMPARED_FILES).collect();
    let is_below = |a: &File, b: &File| format!("{}/", a.path).starts_with(&format!("{}/", b.path));
    for (i, file) in all
        .iter()
        .enumerate()
        .filter(|(_, file)| !file.path.is_empty())
    {
        for other in all.iter().take(i).filter(|other| !other.path.is_empty()) {
            if is_below(file, other) || is_below(other, file) {
                let volume = go_quote(volume);
                warnings.push(format!(
                    "volume {volume} ({what}): overlapping paths: {file} with {other}"
                ));
            }
        }
    }
}
