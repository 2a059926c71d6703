//! Rejects pods that need a feature which this node lacks. Running such a pod without it would fail
//! in silence, and for security settings open a hole.

use crate::context::Features;
use crate::cri_config::apparmor;
use crate::pod::spec;
use crate::worker::admit::rejection::Rejection;
use k8s_openapi::api::core::v1::{Container, Pod};

/// Upstream's reason for an unsupported feature.
const UNSUPPORTED: &str = "PodFeatureUnsupported";

/// Returns why the pod can't run on a node with these features; None if it can.
pub(crate) fn check_features(pod: &Pod, features: &Features) -> Option<Rejection> {
    let missing = find_unsupported_security(pod)
        .or_else(|| find_unsupported_volume(pod))
        .or_else(|| find_unsupported_container(pod));
    missing
        .map(|what| Rejection {
            reason: UNSUPPORTED.into(),
            message: format!("Pod requires node features that are not available: {what}"),
        })
        .or_else(|| check_groups(pod, features))
        .or_else(|| check_profiles(pod, features))
}

fn list_containers(pod: &Pod) -> impl Iterator<Item = Container> {
    spec::list_containers(pod)
        .into_iter()
        .filter_map(move |(_, name)| spec::find_container(pod, &name))
        .map(|(_, c)| c)
}

fn find_unsupported_security(pod: &Pod) -> Option<&'static str> {
    if spec::read_spec(pod).host_users == Some(false) {
        return Some("user namespaces (hostUsers: false)");
    }
    // An unmasked /proc in the node's user namespace gives the container root on the node.
    let unmasked = |c: &Container| {
        let context = c.security_context.as_ref();
        context.is_some_and(|s| {
            s.proc_mount.as_deref() == Some("Unmasked") && s.privileged != Some(true)
        })
    };
    list_containers(pod)
        .any(|c| unmasked(&c))
        .then_some("procMount Unmasked without a user namespace")
}

fn find_unsupported_volume(pod: &Pod) -> Option<&'static str> {
    for volume in spec::read_spec(pod).volumes.iter().flatten() {
        let medium = volume
            .empty_dir
            .as_ref()
            .and_then(|e| e.medium.as_deref())
            .unwrap_or_default();
        if medium.starts_with("HugePages") {
            return Some("emptyDir volumes on huge pages");
        }
        for source in volume
            .projected
            .iter()
            .flat_map(|p| p.sources.iter().flatten())
        {
            if source.cluster_trust_bundle.is_some() {
                return Some("projected cluster trust bundles");
            }
            if source.pod_certificate.is_some() {
                return Some("projected pod certificates");
            }
        }
    }
    None
}

fn find_unsupported_container(pod: &Pod) -> Option<&'static str> {
    if list_containers(pod).any(|c| c.volume_devices.is_some_and(|d| !d.is_empty())) {
        return Some("raw block volumes (volumeDevices)");
    }
    let all = |c: &Container| {
        c.restart_policy_rules
            .iter()
            .flatten()
            .any(|r| r.action == "RestartAllContainers")
    };
    list_containers(pod)
        .any(|c| all(&c))
        .then_some("the restart action RestartAllContainers")
}

fn check_groups(pod: &Pod, features: &Features) -> Option<Rejection> {
    let policy = spec::read_spec(pod)
        .security_context
        .as_ref()
        .and_then(|c| c.supplemental_groups_policy.as_deref());
    (policy == Some("Strict") && !features.strict_groups).then(|| Rejection {
        reason: "SupplementalGroupsPolicyNotSupported".into(),
        message: "SupplementalGroupsPolicy=Strict is not supported in this node".into(),
    })
}

fn check_profiles(pod: &Pod, features: &Features) -> Option<Rejection> {
    let profiles: Vec<_> = list_containers(pod)
        .filter_map(|c| apparmor::choose_profile(pod, &c))
        .collect();
    let nameless = |p: &apparmor::Profile| matches!(p, apparmor::Profile::Localhost(name) if name.trim().is_empty());
    let required = profiles.iter().any(|p| *p != apparmor::Profile::Unconfined);
    let why = if required && !features.apparmor {
        "AppArmor is not enabled on the host"
    } else if profiles.iter().any(nameless) {
        "invalid empty AppArmor profile name"
    } else {
        return None;
    };
    Some(Rejection {
        reason: "AppArmor".into(),
        message: format!("Cannot enforce AppArmor: {why}"),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::{Value, json};

    fn reason(spec: Value, features: &Features) -> Option<String> {
        let pod = serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).unwrap();
        check_features(&pod, features).map(|r| r.reason)
    }

    #[test]
    fn pod_that_needs_a_missing_feature_is_rejected() {
        let none = Features::default();
        let c = |more: Value| {
            let mut c = json!({"name": "c"});
            c.as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
            json!([c])
        };
        let plain = c(json!({}));
        let unsupported = Some(UNSUPPORTED);
        for (spec, want) in [
            (json!({"containers": plain}), None),
            (json!({"containers": plain, "hostUsers": true}), None),
            (
                json!({"containers": plain, "hostUsers": false}),
                unsupported,
            ),
            (
                json!({"containers": c(json!({"securityContext": {"procMount": "Unmasked"}}))}),
                unsupported,
            ),
            (
                json!({"containers": plain, "initContainers": c(json!({"securityContext": {"procMount": "Unmasked"}}))}),
                unsupported,
            ),
            (
                json!({"containers": plain, "ephemeralContainers": [{"name": "d", "securityContext": {"procMount": "Unmasked"}}]}),
                unsupported,
            ),
            (
                json!({"containers": c(json!({"securityContext": {"procMount": "Unmasked", "privileged": true}}))}),
                None,
            ),
            (
                json!({"containers": c(json!({"securityContext": {"procMount": "Unmasked", "privileged": true}})), "hostUsers": false}),
                unsupported,
            ),
            (
                json!({"containers": c(json!({"volumeDevices": [{"name": "v", "devicePath": "/dev/x"}]}))}),
                unsupported,
            ),
            (
                json!({"containers": plain, "volumes": [{"name": "v", "emptyDir": {"medium": "HugePages-2Mi"}}]}),
                unsupported,
            ),
            (
                json!({"containers": plain, "resourceClaims": [{"name": "gpu"}]}),
                None,
            ),
            (
                json!({"containers": plain, "securityContext": {"supplementalGroupsPolicy": "Strict"}}),
                Some("SupplementalGroupsPolicyNotSupported"),
            ),
            (
                json!({"containers": plain, "securityContext": {"appArmorProfile": {"type": "RuntimeDefault"}}}),
                Some("AppArmor"),
            ),
            (
                json!({"containers": c(json!({"securityContext":
                {"appArmorProfile": {"type": "Localhost", "localhostProfile": "x"}}}))}),
                Some("AppArmor"),
            ),
            (
                json!({"containers": plain, "securityContext": {"appArmorProfile": {"type": "Unconfined"}}}),
                None,
            ),
        ] {
            assert_eq!(reason(spec.clone(), &none).as_deref(), want, "{spec}");
        }
    }

    #[test]
    fn pod_is_admitted_with_the_features_of_host_and_runtime() {
        let all = Features {
            apparmor: true,
            strict_groups: true,
            ..Features::default()
        };
        let context = json!({"supplementalGroupsPolicy": "Strict", "appArmorProfile": {"type": "RuntimeDefault"}});
        assert_eq!(
            reason(
                json!({"containers": [{"name": "c"}], "securityContext": context}),
                &all
            ),
            None
        );
        let nameless = json!({"appArmorProfile": {"type": "Localhost", "localhostProfile": " "}});
        let spec = json!({"containers": [{"name": "c"}], "securityContext": nameless});
        assert_eq!(reason(spec, &all).as_deref(), Some("AppArmor"));
    }
}
