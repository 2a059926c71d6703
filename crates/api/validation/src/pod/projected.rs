//! Projected volumes, and the files of the sources that they share with other volumes.

use super::field_ref::{validate_resource_field_ref, validate_volume_field_ref};
use super::options::PodOptions;
use super::projected_files::ProjectedFiles;
use super::relative_path::validate_non_reserved_path;
use super::trust;
use crate::field::{Errors, Path};
use api_meta::tree::{get, has, int, list, text};
use serde_json::Value;

const FILE_MODE: &str = "must be a number between 0 and 0777 (octal), both inclusive";
const PROJECTIONS: [&str; 6] = [
    "secret",
    "configMap",
    "downwardAPI",
    "serviceAccountToken",
    "clusterTrustBundle",
    "podCertificate",
];

/// Validates a file mode.
pub fn validate_file_mode(source: &Value, field: &str, path: &Path<'_>, errors: &mut Errors) {
    if let Some(n) = int(source, field).filter(|n| !(0..=0o777).contains(n)) {
        errors.invalid(&path.child(field), n, FILE_MODE);
    }
}

/// Validates the files of a Secret or ConfigMap. The keys need not exist: the pod waits for them
/// unless the source is optional.
pub fn validate_key_paths(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    let at = path.child("items");
    for (i, item) in list(source, "items").iter().enumerate() {
        let at = at.index(i);
        for field in ["key", "path"] {
            if text(item, field).is_empty() {
                errors.required(&at.child(field), "");
            }
        }
        // The kubelet creates the file with this name below the volume's directory, as root.
        validate_non_reserved_path(text(item, "path"), &at.child("path"), errors);
        validate_file_mode(item, "mode", &at, errors);
    }
}

/// Validates the files of a downward API source. Upstream names the source in all paths, not the
/// file.
pub fn validate_downward_files(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    for item in list(source, "items") {
        let at = path.child("path");
        if text(item, "path").is_empty() {
            errors.required(&at, "");
        }
        validate_non_reserved_path(text(item, "path"), &at, errors);
        let (field, resource) = (get(item, "fieldRef"), get(item, "resourceFieldRef"));
        match (has(item, "fieldRef"), has(item, "resourceFieldRef")) {
            (true, is_double) => {
                validate_volume_field_ref(field, &path.child("fieldRef"), errors);
                // Each file has one content: a field of the pod or an amount of a container.
                if is_double {
                    let detail =
                        "fieldRef and resourceFieldRef can not be specified simultaneously";
                    errors.invalid(path, "resource", detail);
                }
            }
            (false, true) => {
                let at = path.child("resourceFieldRef");
                validate_resource_field_ref(resource, true, &at, errors);
            }
            (false, false) => {
                errors.required(path, "one of fieldRef and resourceFieldRef is required");
            }
        }
        validate_file_mode(item, "mode", path, errors);
    }
}

/// Validates a projected volume.
pub fn validate_projected(
    source: &Value,
    options: &PodOptions,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    validate_file_mode(source, "defaultMode", path, errors);
    let mut files = ProjectedFiles::default();
    let at = path.child("sources");
    for (i, one) in list(source, "sources").iter().enumerate() {
        let at = at.index(i);
        let mut count = 0;
        for kind in PROJECTIONS.into_iter().filter(|kind| has(one, kind)) {
            count += 1;
            let (part, at) = (get(one, kind), at.child(kind));
            match kind {
                "secret" | "configMap" => {
                    validate_key_projection(part, &mut files, path, &at, errors);
                }
                "downwardAPI" => {
                    validate_downward_files(part, &at, errors);
                    for file in list(part, "items").iter().map(|item| text(item, "path")) {
                        if !file.is_empty() {
                            files.add(file, file, path, errors);
                        }
                    }
                }
                "serviceAccountToken" => {
                    validate_token_projection(part, options, path, &at, errors);
                }
                "clusterTrustBundle" => {
                    trust::validate_trust_bundle(part, &mut files, path, &at, errors);
                }
                _ => trust::validate_pod_certificate(part, &mut files, path, &at, errors),
            }
        }
        // Each element of `sources` is a union; the volume is the union of the elements.
        if count > 1 {
            errors.forbidden(&at, "may not specify more than 1 volume type per source");
        }
    }
}

fn validate_key_projection<'a>(
    source: &'a Value,
    files: &mut ProjectedFiles<'a>,
    volume: &Path<'_>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let name = text(source, "name");
    if name.is_empty() {
        errors.required(&path.child("name"), "");
    }
    validate_key_paths(source, path, errors);
    for file in list(source, "items").iter().map(|item| text(item, "path")) {
        if !file.is_empty() {
            files.add(file, name, volume, errors);
        }
    }
}

fn validate_token_projection(
    source: &Value,
    options: &PodOptions,
    volume: &Path<'_>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let seconds = int(source, "expirationSeconds").unwrap_or(0);
    let at = path.child("expirationSeconds");
    // The kubelet renews a token after 80 % of its life. Shorter tokens would load the API server
    // with every pod that has one.
    if seconds < 600 {
        errors.invalid(
            &at,
            seconds,
            "may not specify a duration less than 10 minutes",
        );
    } else if seconds > 1 << 32 {
        let detail = "may not specify a duration larger than 2^32 seconds";
        errors.invalid(&at, seconds, detail);
    }
    let (file, at) = (text(source, "path"), volume.child("path"));
    if file.is_empty() {
        errors.required(&at, "");
    } else if !options.non_local_token_paths {
        validate_non_reserved_path(file, &at, errors);
    }
}

/// Returns whether a volume has a projected token outside of the volume's directory.
pub fn has_non_local_token(spec: &Value) -> bool {
    let sources = list(spec, "volumes")
        .iter()
        .flat_map(|volume| list(get(volume, "projected"), "sources"));
    let mut errors = Errors::default();
    for source in sources {
        let token = get(source, "serviceAccountToken");
        validate_non_reserved_path(text(token, "path"), &Path::ROOT, &mut errors);
    }
    !errors.is_empty()
}
