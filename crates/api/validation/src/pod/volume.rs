//! Volumes and their mounts.

use super::source;
use crate::field::{Errors, Path};
use crate::pod::relative_path::validate_descending_path;
use crate::rules;
use api_meta::names;
use api_meta::tree::{flag, get, has, list as items, opt_text, text};
use serde_json::Value;
use std::collections::{HashMap, HashSet};

/// The volumes of a pod by name.
pub struct Volumes<'a>(HashMap<&'a str, &'a Value>);

/// Validates the list of volumes.
pub fn validate_volumes<'a>(spec: &'a Value, path: &Path<'_>, errors: &mut Errors) -> Volumes<'a> {
    let mut known: HashMap<&str, &Value> = HashMap::new();
    for (i, volume) in items(spec, "volumes").iter().enumerate() {
        let at = path.index(i);
        let name = text(volume, "name");
        source::validate_pod_volume(volume, &at, errors);
        if name.is_empty() {
            // A volume without a name is not added to the known ones, since no mount could name it.
            errors.required(&at.child("name"), "");
            continue;
        }
        let problems = names::dns1123_label(name);
        let good = problems.is_empty();
        errors.invalid_each(&at.child("name"), name, problems);
        if good && known.insert(name, volume).is_some() {
            errors.duplicate(&at.child("name"), name);
        }
    }
    Volumes(known)
}

impl Volumes<'_> {
    /// Returns whether a volume of that name exists.
    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Validates `volumeMounts` and `volumeDevices` of a container.
    pub fn validate_mounts(&self, container: &Value, path: &Path<'_>, errors: &mut Errors) {
        let devices = items(container, "volumeDevices");
        let device_paths: HashSet<&str> = devices.iter().map(|d| text(d, "devicePath")).collect();
        let device_names: HashSet<&str> = devices.iter().map(|d| text(d, "name")).collect();
        let mut paths: HashSet<&str> = HashSet::new();
        let mut names: HashSet<&str> = HashSet::new();
        let at = path.child("volumeMounts");
        for (i, mount) in items(container, "volumeMounts").iter().enumerate() {
            let one = at.index(i);
            self.validate_known_volume(mount, &one, errors);
            let name = text(mount, "name");
            if device_names.contains(name) {
                errors.invalid(
                    &one.child("name"),
                    name,
                    "must not already exist in volumeDevices",
                );
            }
            names.insert(name);
            let target = text(mount, "mountPath");
            if target.is_empty() {
                errors.required(&one.child("mountPath"), "");
            }
            if !paths.insert(target) {
                // The runtime would mount one over the other, in an order that is not defined.
                errors.invalid(&one.child("mountPath"), target, "must be unique");
            }
            if !target.is_empty() && device_paths.contains(target) {
                errors.invalid(
                    &one.child("mountPath"),
                    target,
                    "must not already exist as a path in volumeDevices",
                );
            }
            validate_sub_paths(mount, container, &at, &one, errors);
        }
        self.validate_devices(
            devices,
            &paths,
            &names,
            &path.child("volumeDevices"),
            errors,
        );
    }

    fn validate_known_volume(&self, mount: &Value, path: &Path<'_>, errors: &mut Errors) {
        let name = text(mount, "name");
        if name.is_empty() {
            errors.required(&path.child("name"), "");
        } else if !self.0.contains_key(name) {
            errors.not_found(&path.child("name"), name);
        }
    }

    fn validate_devices(
        &self,
        devices: &[Value],
        mounts: &HashSet<&str>,
        mounted: &HashSet<&str>,
        path: &Path<'_>,
        errors: &mut Errors,
    ) {
        let mut seen: HashSet<&str> = HashSet::new();
        for (i, device) in devices.iter().enumerate() {
            let at = path.index(i);
            let (name, target) = (text(device, "name"), text(device, "devicePath"));
            if name.is_empty() {
                errors.required(&at.child("name"), "");
            } else {
                match self.0.get(name) {
                    None => errors.not_found(&at.child("name"), name),
                    Some(volume)
                        // Only claims can be in block mode; all other sources are directories.
                        if !has(volume, "persistentVolumeClaim") && !has(volume, "ephemeral") =>
                    {
                        errors.invalid(
                            &at.child("name"),
                            name,
                            "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode",
                        );
                    }
                    Some(_) => {}
                }
            }
            if mounted.contains(name) {
                errors.invalid(
                    &at.child("name"),
                    name,
                    "must not already exist in volumeMounts",
                );
            }
            if target.is_empty() {
                errors.required(&at.child("devicePath"), "");
            } else if !seen.insert(target) {
                errors.invalid(&at.child("devicePath"), target, "must be unique");
            } else if mounts.contains(target) {
                errors.invalid(
                    &at.child("devicePath"),
                    target,
                    "must not already exist as a path in volumeMounts",
                );
            } else if target.split('/').any(|p| p == "..") {
                errors.invalid(
                    &at.child("devicePath"),
                    target,
                    "can not contain backsteps ('..')",
                );
            }
        }
    }
}

fn validate_sub_paths(
    mount: &Value,
    container: &Value,
    list: &Path<'_>,
    one: &Path<'_>,
    errors: &mut Errors,
) {
    let (sub_path, expression) = (text(mount, "subPath"), text(mount, "subPathExpr"));
    // Upstream names the list instead of the mount in these two paths.
    // The kubelet resolves the path in a volume that the container can write to. It checks links
    // again when it opens the path.
    validate_descending_path(sub_path, &list.child("subPath"), errors);
    if !expression.is_empty() {
        if !sub_path.is_empty() {
            errors.invalid(
                &one.child("subPathExpr"),
                expression,
                "subPathExpr and subPath are mutually exclusive",
            );
        }
        validate_descending_path(expression, &list.child("subPathExpr"), errors);
    }
    if let Some(propagation) = opt_text(mount, "mountPropagation") {
        let at = list.child("mountPropagation");
        let privileged = flag(get(container, "securityContext"), "privileged");
        match propagation {
            // Mounts of the container become visible on the host and in all pods that share the
            // volume.
            "Bidirectional" if !privileged => {
                errors.forbidden(
                    &at,
                    "Bidirectional mount propagation is available only to privileged containers",
                );
            }
            "Bidirectional" | "None" | "HostToContainer" => {}
            other => {
                errors.not_supported(&at, other, &["Bidirectional", "HostToContainer", "None"])
            }
        }
    }
    rules::validate_one_of(
        mount,
        "recursiveReadOnly",
        &["Disabled", "Enabled", "IfPossible"],
        list,
        errors,
    );
}
