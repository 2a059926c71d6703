//! Builds the CRI config of a container.

use super::env::Environment;
use super::resources;
use super::security::{self, ImageUser, Seccomp};
use crate::pod::spec;
use k8s_openapi::api::core::v1::{Container, Pod};
use node_runtime::labels;
use node_runtime::v1::{
    ContainerConfig, ContainerMetadata, ImageSpec, KeyValue, LinuxContainerConfig, Mount,
    MountPropagation, Signal,
};
use std::collections::HashMap;
use std::hash::Hasher;
use std::path::Path;

/// Inputs of a container's config in addition to its spec.
pub(crate) struct Parts<'a> {
    pub(crate) attempt: u32,
    pub(crate) environment: Environment,
    pub(crate) mounts: Vec<Mount>,
    pub(crate) image_ref: String,
    pub(crate) image_user: ImageUser,
    /// CRI container whose process namespace an ephemeral container shares.
    pub(crate) target: Option<String>,
    pub(crate) seccomp: Seccomp<'a>,
    pub(crate) memory_capacity: i64,
    pub(crate) least_oom_score: i64,
}

/// Returns the path of a container's log beneath the pod's log directory.
pub(crate) fn log_path(name: &str, attempt: u32) -> String {
    format!("{name}/{attempt}.log")
}

/// Builds the container's config.
///
/// # Errors
/// An unmet requirement, as the message of a CreateContainerConfigError.
pub(crate) fn build_container_config(
    pod: &Pod,
    container: &Container,
    parts: Parts<'_>,
) -> Result<ContainerConfig, String> {
    // First: the container must not even be created.
    security::check_non_root(pod, container, &parts.image_user)?;
    let expand = |words: &Option<Vec<String>>| -> Vec<String> {
        words
            .iter()
            .flatten()
            .map(|word| parts.environment.expand(word))
            .collect()
    };
    let (command, args) = (expand(&container.command), expand(&container.args));
    let linux = build_linux_config(pod, container, &parts)?;
    Ok(ContainerConfig {
        metadata: Some(ContainerMetadata {
            name: container.name.clone(),
            attempt: parts.attempt,
        }),
        image: Some(ImageSpec {
            // The id that was pulled or found, not the tag: the tag may name another image by now.
            image: parts.image_ref,
            user_specified_image: container.image.clone().unwrap_or_default(),
            ..ImageSpec::default()
        }),
        command,
        args,
        working_dir: container.working_dir.clone().unwrap_or_default(),
        envs: convert_environment(parts.environment),
        mounts: parts.mounts,
        labels: build_labels(pod, container),
        annotations: build_annotations(pod, container, parts.attempt),
        log_path: log_path(&container.name, parts.attempt),
        stdin: container.stdin.unwrap_or(false),
        stdin_once: container.stdin_once.unwrap_or(false),
        tty: container.tty.unwrap_or(false),
        linux: Some(linux),
        // 0 leaves the choice to the image's STOPSIGNAL.
        stop_signal: parse_stop_signal(container),
        ..ContainerConfig::default()
    })
}

fn build_linux_config(
    pod: &Pod,
    container: &Container,
    parts: &Parts<'_>,
) -> Result<LinuxContainerConfig, String> {
    let security = security::build_security_context(
        pod,
        container,
        &parts.image_user,
        parts.target.clone(),
        parts.seccomp,
        &[],
    )?;
    let resources = resources::build_container_resources(
        pod,
        container,
        parts.memory_capacity,
        parts.least_oom_score,
    );
    Ok(LinuxContainerConfig {
        resources: Some(resources),
        security_context: Some(security),
    })
}

fn convert_environment(environment: Environment) -> Vec<KeyValue> {
    environment
        .into_pairs()
        .into_iter()
        .map(|(key, value)| KeyValue {
            key,
            value: value.into_bytes(),
        })
        .collect()
}

fn parse_stop_signal(container: &Container) -> i32 {
    let name = container
        .lifecycle
        .as_ref()
        .and_then(|l| l.stop_signal.as_deref())
        .unwrap_or_default();
    Signal::from_str_name(name).map_or(0, |s| s as i32)
}

fn build_labels(pod: &Pod, container: &Container) -> HashMap<String, String> {
    let meta = &pod.metadata;
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    [
        (labels::POD_NAME, text(&meta.name)),
        (labels::POD_NAMESPACE, text(&meta.namespace)),
        (labels::POD_UID, text(&meta.uid)),
        (labels::CONTAINER_NAME, container.name.clone()),
    ]
    .map(|(k, v)| (k.to_owned(), v))
    .into()
}

fn build_annotations(pod: &Pod, container: &Container, attempt: u32) -> HashMap<String, String> {
    let policy = container
        .termination_message_policy
        .clone()
        .unwrap_or_else(|| "File".into());
    let json = |value: serde_json::Result<String>| value.unwrap_or_default();
    let mut all: HashMap<String, String> = [
        (labels::HASH, hash_container(container)),
        (labels::RESTART_COUNT, attempt.to_string()),
        (labels::MESSAGE_PATH, message_path(container).to_owned()),
        (labels::MESSAGE_POLICY, policy),
        (labels::POD_GRACE, spec::grace_seconds(pod).to_string()),
    ]
    .map(|(k, v)| (k.to_owned(), v))
    .into();
    if let Some(hook) = container
        .lifecycle
        .as_ref()
        .and_then(|l| l.pre_stop.as_ref())
    {
        all.insert(
            labels::PRE_STOP.to_owned(),
            json(serde_json::to_string(hook)),
        );
    }
    if let Some(ports) = &container.ports {
        all.insert(labels::PORTS.to_owned(), json(serde_json::to_string(ports)));
    }
    all
}

/// Returns the path of the termination message inside the container.
pub(crate) fn message_path(container: &Container) -> &str {
    container
        .termination_message_path
        .as_deref()
        .filter(|p| !p.is_empty())
        .unwrap_or("/dev/termination-log")
}

/// Hashes the fields that can't change without a new container: name and image.
pub(crate) fn hash_container(container: &Container) -> String {
    let mut hasher = fnv::FnvHasher::default();
    hasher.write(container.name.as_bytes());
    // Separates the fields: name "ab" with image "c" is not "a" with "bc".
    hasher.write(&[0]);
    hasher.write(container.image.as_deref().unwrap_or_default().as_bytes());
    format!("{:016x}", hasher.finish())
}

/// Returns whether the container's spec differs from the `recorded` hash. Hashes of stock kubelets
/// have at most eight digits and another algorithm, so they count as unchanged.
pub(crate) fn is_changed(recorded: &str, container: &Container) -> bool {
    recorded.len() > 8 && recorded != hash_container(container)
}

/// Builds a mount of a host path.
pub(crate) fn build_mount(
    host: &Path,
    inside: &str,
    readonly: bool,
    propagation: Option<&str>,
) -> Mount {
    let propagation = match propagation {
        Some("HostToContainer") => MountPropagation::PropagationHostToContainer,
        Some("Bidirectional") => MountPropagation::PropagationBidirectional,
        _ => MountPropagation::PropagationPrivate,
    };
    Mount {
        container_path: inside.to_owned(),
        host_path: host.to_string_lossy().into_owned(),
        readonly,
        propagation: propagation as i32,
        ..Mount::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn container_is_changed_by_its_image_and_not_by_what_another_kubelet_recorded() {
        let of = |image: &str| Container {
            name: "c".into(),
            image: Some(image.into()),
            ..Container::default()
        };
        let recorded = hash_container(&of("i:1"));
        assert!(!is_changed(&recorded, &of("i:1")));
        assert!(is_changed(&recorded, &of("i:2")));
        for foreign in ["", "8f3a2b10"] {
            assert!(!is_changed(foreign, &of("i:2")), "{foreign:?}");
        }
    }

    #[test]
    fn mount_propagation_is_private_by_default() {
        for (given, expected) in [
            (None, MountPropagation::PropagationPrivate),
            (Some("None"), MountPropagation::PropagationPrivate),
            (
                Some("HostToContainer"),
                MountPropagation::PropagationHostToContainer,
            ),
            (
                Some("Bidirectional"),
                MountPropagation::PropagationBidirectional,
            ),
        ] {
            let mount = build_mount(Path::new("/v"), "/data", true, given);
            assert_eq!(mount.propagation, expected as i32, "{given:?}");
            assert!(mount.readonly && mount.host_path == "/v" && mount.container_path == "/data");
        }
    }

    /// A later kubelet, ours or a stock one, reads these to recover the container.
    #[test]
    fn container_carries_what_a_later_kubelet_needs() {
        let spec = serde_json::json!({"containers": [{"name": "c", "image": "i",
            "lifecycle": {"preStop": {"exec": {"command": ["x"]}}, "stopSignal": "SIGUSR1"}}],
            "terminationGracePeriodSeconds": 45});
        let pod = crate::testing::pod(spec);
        let container = crate::pod::spec::app_containers(&pod).next();
        let Some(container) = container else {
            unreachable!("the pod has a container");
        };
        let annotations = build_annotations(&pod, container, 3);
        for (name, value) in [
            (labels::RESTART_COUNT, "3"),
            (labels::MESSAGE_PATH, "/dev/termination-log"),
            (labels::MESSAGE_POLICY, "File"),
            (labels::POD_GRACE, "45"),
            (labels::PRE_STOP, r#"{"exec":{"command":["x"]}}"#),
        ] {
            assert_eq!(
                annotations.get(name).map(String::as_str),
                Some(value),
                "{name}"
            );
        }
        let labels = build_labels(&pod, container);
        assert_eq!(labels.get(labels::POD_UID).map(String::as_str), Some("u"));
        assert_eq!(
            labels.get(labels::CONTAINER_NAME).map(String::as_str),
            Some("c")
        );
        assert_eq!(parse_stop_signal(container), Signal::Sigusr1 as i32);
    }
}
