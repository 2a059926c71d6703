//! AppArmor profiles, in upstream's order: the container's field, its annotation, the pod's field.

use crate::pod::spec;
use k8s_openapi::api::core::v1::{AppArmorProfile, Container, Pod};
use node_runtime::v1::{SecurityProfile, security_profile::ProfileType};

/// Prefix of the annotations that older manifests use instead of the field; the container's name
/// follows.
const ANNOTATION: &str = "container.apparmor.security.beta.kubernetes.io/";

/// The profile that a container requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Profile {
    RuntimeDefault,
    Unconfined,
    /// A profile loaded on the node.
    Localhost(String),
}

/// Returns the profile that a container requests; None leaves the choice to the runtime.
pub(crate) fn choose_profile(pod: &Pod, container: &Container) -> Option<Profile> {
    let own = container
        .security_context
        .as_ref()
        .and_then(|s| s.app_armor_profile.as_ref());
    let annotation = pod
        .metadata
        .annotations
        .as_ref()
        .and_then(|a| a.get(&format!("{ANNOTATION}{}", container.name)));
    let of_pod = spec::read_spec(pod)
        .security_context
        .as_ref()
        .and_then(|s| s.app_armor_profile.as_ref());
    // A field has precedence over the annotation of the same container: the API server copies
    // annotations of old manifests to the field.
    own.map(parse_field)
        .or_else(|| annotation.and_then(|a| parse_annotation(a)))
        .or_else(|| of_pod.map(parse_field))
}

fn parse_field(profile: &AppArmorProfile) -> Profile {
    match profile.type_.as_str() {
        "Unconfined" => Profile::Unconfined,
        "Localhost" => Profile::Localhost(profile.localhost_profile.clone().unwrap_or_default()),
        _ => Profile::RuntimeDefault,
    }
}

fn parse_annotation(text: &str) -> Option<Profile> {
    match text {
        "" => None,
        "unconfined" => Some(Profile::Unconfined),
        "runtime/default" => Some(Profile::RuntimeDefault),
        // An unknown form must not weaken the confinement: it becomes a Localhost profile without a
        // name.
        other => Some(Profile::Localhost(
            other
                .strip_prefix("localhost/")
                .unwrap_or_default()
                .to_owned(),
        )),
    }
}

impl Profile {
    /// Returns the profile as CRI's message, and as the older string for runtimes that know only
    /// that.
    pub(crate) fn for_runtime(self) -> (SecurityProfile, String) {
        let (kind, name, old) = match self {
            Profile::RuntimeDefault => (
                ProfileType::RuntimeDefault,
                String::new(),
                "runtime/default".to_owned(),
            ),
            Profile::Unconfined => (
                ProfileType::Unconfined,
                String::new(),
                "unconfined".to_owned(),
            ),
            Profile::Localhost(name) => (
                ProfileType::Localhost,
                name.clone(),
                format!("localhost/{name}"),
            ),
        };
        (
            SecurityProfile {
                profile_type: kind as i32,
                localhost_ref: name,
            },
            old,
        )
    }
}

/// Returns whether the kernel enforces AppArmor profiles.
pub(crate) fn is_enabled() -> bool {
    let parameter = std::fs::read_to_string("/sys/module/apparmor/parameters/enabled");
    parameter.is_ok_and(|text| text.starts_with('Y'))
        && std::path::Path::new("/sys/kernel/security/apparmor").exists()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn profile_of_the_container_comes_first() {
        let local = json!({"type": "Localhost", "localhostProfile": "l"});
        for (container, annotation, pod, want) in [
            (Value::Null, "", Value::Null, None),
            (
                Value::Null,
                "",
                json!({"type": "RuntimeDefault"}),
                Some(Profile::RuntimeDefault),
            ),
            (
                Value::Null,
                "unconfined",
                json!({"type": "RuntimeDefault"}),
                Some(Profile::Unconfined),
            ),
            (
                local,
                "unconfined",
                Value::Null,
                Some(Profile::Localhost("l".into())),
            ),
            (
                Value::Null,
                "localhost/a",
                Value::Null,
                Some(Profile::Localhost("a".into())),
            ),
            (
                Value::Null,
                "nonsense",
                Value::Null,
                Some(Profile::Localhost(String::new())),
            ),
        ] {
            let pod: Pod = serde_json::from_value(json!({
                "metadata": {"annotations": {format!("{ANNOTATION}c"): annotation}},
                "spec": {"securityContext": {"appArmorProfile": pod},
                    "containers": [{"name": "c", "securityContext": {"appArmorProfile": container}}]}}))
            .unwrap();
            let container = spec::app_containers(&pod).next().unwrap();
            assert_eq!(choose_profile(&pod, container), want, "{annotation:?}");
        }
    }
}
