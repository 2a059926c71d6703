//! Merges the security contexts of pod and container into CRI's form.

use super::apparmor;
use crate::pod::spec;
use k8s_openapi::api::core::v1::{
    Container, Pod, PodSecurityContext, SELinuxOptions, SeccompProfile, SecurityContext,
};
use node_runtime::v1::{
    Capability, Int64Value, LinuxContainerSecurityContext, NamespaceMode, NamespaceOption,
    SeLinuxOption, SecurityProfile, SupplementalGroupsPolicy, security_profile::ProfileType,
};
use std::path::{Component, Path};

/// Paths of /proc and /sys that are hidden from containers.
const MASKED: &[&str] = &[
    "/proc/asound",
    "/proc/acpi",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
];
const READ_ONLY: &[&str] = &[
    "/proc/bus",
    "/proc/fs",
    "/proc/irq",
    "/proc/sys",
    "/proc/sysrq-trigger",
];

/// Sysctls that are limited to the pod's own namespaces.
const SAFE_SYSCTLS: &[&str] = &[
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.ping_group_range",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
];

/// Returns the first sysctl of the pod that is not allowed.
pub(crate) fn forbidden_sysctl(pod: &Pod, allowed: &[String]) -> Option<String> {
    let sysctls = spec::read_spec(pod)
        .security_context
        .iter()
        .flat_map(|c| c.sysctls.iter().flatten());
    // Only namespaced sysctls are safe: the others change the node.
    let fine = |name: &str| {
        let listed = |pattern: &String| match pattern.strip_suffix('*') {
            Some(prefix) => name.starts_with(prefix),
            None => pattern == name,
        };
        SAFE_SYSCTLS.contains(&name) || allowed.iter().any(listed)
    };
    sysctls
        .into_iter()
        .map(|s| s.name.replace('/', "."))
        .find(|name| !fine(name))
}

/// Returns the namespaces that the pod's containers share.
pub(crate) fn build_namespaces(pod: &Pod, target: Option<String>) -> NamespaceOption {
    let s = spec::read_spec(pod);
    let mode = |host: Option<bool>, else_: NamespaceMode| {
        (if host == Some(true) {
            NamespaceMode::Node
        } else {
            else_
        }) as i32
    };
    let shared = s.share_process_namespace == Some(true);
    let own = if shared {
        NamespaceMode::Pod
    } else {
        NamespaceMode::Container
    };
    NamespaceOption {
        network: mode(s.host_network, NamespaceMode::Pod),
        ipc: mode(s.host_ipc, NamespaceMode::Pod),
        pid: match &target {
            // With a shared namespace the target's processes are visible anyway.
            Some(_) if s.host_pid != Some(true) && !shared => NamespaceMode::Target as i32,
            _ => mode(s.host_pid, own),
        },
        target_id: target.unwrap_or_default(),
        ..NamespaceOption::default()
    }
}

/// The node's seccomp settings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seccomp<'a> {
    /// Directory of local profiles.
    pub(crate) profiles: &'a Path,
    /// Containers without a profile get the runtime's default profile (`seccompDefault`).
    pub(crate) default: bool,
}

/// Returns a seccomp profile; local ones are files beneath the node's profile directory.
///
/// # Errors
/// A path outside that directory.
fn choose_seccomp_profile(
    profile: Option<&SeccompProfile>,
    node: Seccomp<'_>,
) -> Result<Option<SecurityProfile>, String> {
    let profiles = node.profiles;
    let Some(profile) = profile else {
        let kind = if node.default {
            ProfileType::RuntimeDefault
        } else {
            ProfileType::Unconfined
        };
        return Ok(Some(SecurityProfile {
            profile_type: kind as i32,
            localhost_ref: String::new(),
        }));
    };
    Ok(Some(match profile.type_.as_str() {
        "RuntimeDefault" => SecurityProfile {
            profile_type: ProfileType::RuntimeDefault as i32,
            localhost_ref: String::new(),
        },
        "Localhost" => {
            let name = profile.localhost_profile.as_deref().unwrap_or_default();
            // The path reaches the runtime, which reads the file as root.
            let inside = !name.is_empty()
                && Path::new(name)
                    .components()
                    .all(|c| matches!(c, Component::Normal(_)));
            if !inside {
                return Err(format!(
                    "seccomp profile {name:?} must be a path within {}",
                    profiles.display()
                ));
            }
            let path = profiles.join(name).to_string_lossy().into_owned();
            SecurityProfile {
                profile_type: ProfileType::Localhost as i32,
                localhost_ref: path,
            }
        }
        _ => SecurityProfile {
            profile_type: ProfileType::Unconfined as i32,
            localhost_ref: String::new(),
        },
    }))
}

pub(crate) fn to_int64(value: Option<i64>) -> Option<Int64Value> {
    value.map(|value| Int64Value { value })
}

/// User of the image's config.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ImageUser {
    pub(crate) uid: Option<i64>,
    pub(crate) name: String,
}

/// Rejects root if the container has runAsNonRoot.
pub(crate) fn check_non_root(
    pod: &Pod,
    container: &Container,
    image: &ImageUser,
) -> Result<(), String> {
    let of_pod = spec::read_spec(pod)
        .security_context
        .clone()
        .unwrap_or_default();
    let own = container.security_context.clone().unwrap_or_default();
    if own.run_as_non_root.or(of_pod.run_as_non_root) != Some(true) {
        return Ok(());
    }
    let which = format!(
        "(pod: {:?}, container: {})",
        spec::full_name(pod),
        container.name
    );
    match own.run_as_user.or(of_pod.run_as_user) {
        Some(0) => Err(format!(
            "container's runAsUser breaks non-root policy {which}"
        )),
        Some(_) => Ok(()),
        // The name is resolved in the image's passwd file, which the kubelet does not read: it may
        // be an alias of root.
        None if !image.name.is_empty() => Err(format!(
            "container has runAsNonRoot and image has non-numeric user ({}), cannot verify user is non-root {which}",
            image.name
        )),
        None if image.uid.unwrap_or(0) == 0 => Err(format!(
            "container has runAsNonRoot and image will run as root {which}"
        )),
        None => Ok(()),
    }
}

/// Builds a container's security context.
///
/// # Errors
/// An unmet requirement, as the message of a CreateContainerConfigError.
pub(crate) fn build_security_context(
    pod: &Pod,
    container: &Container,
    image: &ImageUser,
    target: Option<String>,
    node: Seccomp<'_>,
    extra_groups: &[i64],
) -> Result<LinuxContainerSecurityContext, String> {
    let of_pod = spec::read_spec(pod)
        .security_context
        .clone()
        .unwrap_or_default();
    let own = container.security_context.clone().unwrap_or_default();
    let user = own.run_as_user.or(of_pod.run_as_user);
    let privileged = own.privileged == Some(true);
    let (apparmor, old_apparmor) = apparmor::choose_profile(pod, container)
        .map(apparmor::Profile::for_runtime)
        .unzip();
    let mut groups = of_pod.supplemental_groups.clone().unwrap_or_default();
    groups.extend(of_pod.fs_group);
    groups.extend(extra_groups);
    Ok(LinuxContainerSecurityContext {
        capabilities: convert_capabilities(&own),
        privileged,
        namespace_options: Some(build_namespaces(pod, target)),
        // The user that runAsNonRoot was checked against, so that the runtime does not choose
        // another.
        run_as_user: to_int64(user.or(image.uid)),
        run_as_username: if user.is_none() && image.uid.is_none() {
            image.name.clone()
        } else {
            String::new()
        },
        run_as_group: to_int64(own.run_as_group.or(of_pod.run_as_group)),
        readonly_rootfs: own.read_only_root_filesystem == Some(true),
        supplemental_groups: groups,
        supplemental_groups_policy: convert_groups_policy(&of_pod),
        no_new_privs: own.allow_privilege_escalation == Some(false),
        masked_paths: protect_paths(MASKED, privileged),
        readonly_paths: protect_paths(READ_ONLY, privileged),
        seccomp: choose_seccomp_profile(
            own.seccomp_profile
                .as_ref()
                .or(of_pod.seccomp_profile.as_ref()),
            node,
        )?,
        selinux_options: own
            .se_linux_options
            .as_ref()
            .or(of_pod.se_linux_options.as_ref())
            .map(convert_selinux),
        apparmor,
        apparmor_profile: old_apparmor.unwrap_or_default(),
        ..LinuxContainerSecurityContext::default()
    })
}

/// Returns the paths unless the container is privileged, which may change the kernel anyway.
///
/// `procMount` is ignored: without a user namespace, an unmasked /proc gives a container root on
/// the node.
fn protect_paths(paths: &[&str], privileged: bool) -> Vec<String> {
    if privileged {
        return Vec::new();
    }
    paths.iter().map(|p| (*p).to_owned()).collect()
}

fn convert_groups_policy(of_pod: &PodSecurityContext) -> i32 {
    if of_pod.supplemental_groups_policy.as_deref() == Some("Strict") {
        SupplementalGroupsPolicy::Strict as i32
    } else {
        0
    }
}

/// Converts SELinux options. On a host without SELinux the runtime ignores them, as upstream
/// documents.
pub(crate) fn convert_selinux(options: &SELinuxOptions) -> SeLinuxOption {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    SeLinuxOption {
        user: text(&options.user),
        role: text(&options.role),
        r#type: text(&options.type_),
        level: text(&options.level),
    }
}

/// Returns whether the kernel enforces SELinux labels.
pub(crate) fn selinux_is_enabled() -> bool {
    Path::new("/sys/fs/selinux/enforce").exists()
}

fn convert_capabilities(own: &SecurityContext) -> Option<Capability> {
    own.capabilities.as_ref().map(|c| Capability {
        add_capabilities: c.add.clone().unwrap_or_default(),
        drop_capabilities: c.drop.clone().unwrap_or_default(),
        ..Capability::default()
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::{Value, json};

    fn context(security: Value, default: bool) -> LinuxContainerSecurityContext {
        context_of("containers", security, default)
    }

    /// Builds the context of the container of one of the three lists.
    fn context_of(list: &str, security: Value, default: bool) -> LinuxContainerSecurityContext {
        let pod = pod_of(json!({"hostUsers": false,
            "securityContext": {"seLinuxOptions": {"level": "s0:c1"}},
            "containers": [], list: [{"name": "c", "securityContext": security}]}));
        let (_, container) = spec::find_container(&pod, "c").unwrap();
        let node = Seccomp {
            profiles: Path::new("/profiles"),
            default,
        };
        build_security_context(&pod, &container, &ImageUser::default(), None, node, &[]).unwrap()
    }

    #[test]
    fn proc_is_masked_unless_the_container_is_privileged() {
        let lists = ["initContainers", "containers", "ephemeralContainers"];
        for (security, masked) in [
            (json!({}), true),
            (json!({"procMount": "Unmasked"}), true),
            (json!({"privileged": true}), false),
            (json!({"privileged": true, "procMount": "Unmasked"}), false),
        ] {
            for list in lists {
                let made = context_of(list, security.clone(), false);
                let found = (
                    !made.masked_paths.is_empty(),
                    made.readonly_paths.iter().any(|p| p == "/proc/sys"),
                );
                assert_eq!(found, (masked, masked), "{list} {security}");
            }
        }
    }

    #[test]
    fn profiles_and_labels_reach_the_runtime() {
        let local = json!({"appArmorProfile": {"type": "Localhost", "localhostProfile": "tight"},
            "seLinuxOptions": {"type": "web_t"}});
        let made = context(local, false);
        assert_eq!(made.apparmor.unwrap().localhost_ref, "tight");
        assert_eq!(made.apparmor_profile, "localhost/tight");
        assert_eq!(made.selinux_options.unwrap().r#type, "web_t");
        assert_eq!(
            context(json!({}), false).selinux_options.unwrap().level,
            "s0:c1"
        );
    }

    #[test]
    fn seccomp_default_is_for_containers_without_a_profile() {
        let unconfined = json!({"seccompProfile": {"type": "Unconfined"}});
        for (security, default, want) in [
            (json!({}), false, ProfileType::Unconfined),
            (json!({}), true, ProfileType::RuntimeDefault),
            (unconfined, true, ProfileType::Unconfined),
        ] {
            let made = context(security.clone(), default).seccomp.unwrap();
            assert_eq!(made.profile_type, want as i32, "{security} {default}");
        }
    }

    fn pod_of(spec: Value) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).unwrap()
    }

    #[test]
    fn sysctl_must_be_safe_or_allowed() {
        let allowed = ["kernel.msg*".to_owned(), "net.core.somaxconn".to_owned()];
        for (name, forbidden) in [
            ("net.ipv4.tcp_syncookies", None),
            ("net/ipv4/tcp_syncookies", None),
            ("kernel.msgmax", None),
            ("net.core.somaxconn", None),
            ("net.core.somaxconn2", Some("net.core.somaxconn2")),
            ("kernel/panic", Some("kernel.panic")),
        ] {
            let sysctls = json!([{"name": name, "value": "1"}]);
            let pod = pod_of(json!({"containers": [], "securityContext": {"sysctls": sysctls}}));
            assert_eq!(
                forbidden_sysctl(&pod, &allowed).as_deref(),
                forbidden,
                "{name}"
            );
        }
    }

    #[test]
    fn namespaces_are_those_of_the_host_of_the_pod_or_of_the_container() {
        use NamespaceMode::{Container, Node, Pod, Target};
        for (spec, target, network, pid) in [
            (json!({}), None, Pod, Container),
            (
                json!({"hostNetwork": true, "hostPID": true}),
                None,
                Node,
                Node,
            ),
            (json!({"shareProcessNamespace": true}), None, Pod, Pod),
            (json!({}), Some("id"), Pod, Target),
            (json!({"shareProcessNamespace": true}), Some("id"), Pod, Pod),
            (json!({"hostPID": true}), Some("id"), Pod, Node),
        ] {
            let mut whole = spec.clone();
            whole["containers"] = json!([]);
            let built = build_namespaces(&pod_of(whole), target.map(str::to_owned));
            let found = (built.network, built.pid);
            assert_eq!(found, (network as i32, pid as i32), "{spec} {target:?}");
        }
    }

    #[test]
    fn run_as_non_root_is_checked_against_spec_and_image() {
        let image = |uid: Option<i64>, name: &str| ImageUser {
            uid,
            name: name.into(),
        };
        for (security, image, allowed) in [
            (json!({}), image(None, ""), true),
            (json!({"runAsNonRoot": true}), image(None, ""), false),
            (json!({"runAsNonRoot": true}), image(Some(0), ""), false),
            (json!({"runAsNonRoot": true}), image(Some(7), ""), true),
            // A name may map to root in the image's own passwd file.
            (json!({"runAsNonRoot": true}), image(None, "app"), false),
            (
                json!({"runAsNonRoot": true, "runAsUser": 0}),
                image(Some(7), ""),
                false,
            ),
            (
                json!({"runAsNonRoot": true, "runAsUser": 5}),
                image(None, "app"),
                true,
            ),
        ] {
            let pod = pod_of(json!({"containers": [{"name": "c", "securityContext": security}]}));
            let container = spec::app_containers(&pod).next().unwrap();
            let checked = check_non_root(&pod, container, &image);
            assert_eq!(checked.is_ok(), allowed, "{security} {image:?}");
        }
    }

    #[test]
    fn seccomp_profile_outside_of_the_profile_directory_is_rejected() {
        let node = Seccomp {
            profiles: Path::new("/var/lib/kubelet/seccomp"),
            default: false,
        };
        for (name, expected) in [
            ("tight.json", Some("/var/lib/kubelet/seccomp/tight.json")),
            (
                "team/tight.json",
                Some("/var/lib/kubelet/seccomp/team/tight.json"),
            ),
            ("../tight.json", None),
            ("/etc/passwd", None),
            ("", None),
        ] {
            let profile = json!({"type": "Localhost", "localhostProfile": name});
            let profile: SeccompProfile = serde_json::from_value(profile).unwrap();
            let chosen = choose_seccomp_profile(Some(&profile), node).ok().flatten();
            assert_eq!(
                chosen.map(|p| p.localhost_ref).as_deref(),
                expected,
                "{name}"
            );
        }
    }

    #[test]
    fn security_context_of_the_container_has_precedence() {
        let pod = pod_of(json!({
            "securityContext": {"runAsUser": 1, "runAsGroup": 2, "fsGroup": 9, "supplementalGroups": [8]},
            "containers": [{"name": "c", "securityContext": {"runAsUser": 5, "readOnlyRootFilesystem": true,
                "allowPrivilegeEscalation": false, "capabilities": {"add": ["NET_ADMIN"], "drop": ["ALL"]}}}]}));
        let container = spec::app_containers(&pod).next().unwrap();
        let node = Seccomp {
            profiles: Path::new("/profiles"),
            default: false,
        };
        let image = ImageUser::default();
        let made = build_security_context(&pod, container, &image, None, node, &[]).unwrap();
        let value = |v: Option<Int64Value>| v.map(|v| v.value);
        assert_eq!(
            (value(made.run_as_user), value(made.run_as_group)),
            (Some(5), Some(2))
        );
        assert_eq!(made.supplemental_groups, [8, 9]);
        assert!(made.readonly_rootfs && made.no_new_privs);
        let capabilities = made.capabilities.unwrap();
        assert_eq!(capabilities.add_capabilities, ["NET_ADMIN"]);
        assert_eq!(capabilities.drop_capabilities, ["ALL"]);
    }

    #[test]
    fn user_of_the_image_is_used_without_one_of_the_spec() {
        let pod = pod_of(json!({"containers": [{"name": "c"}]}));
        let container = spec::app_containers(&pod).next().unwrap();
        let node = Seccomp {
            profiles: Path::new("/profiles"),
            default: false,
        };
        for (uid, name) in [(Some(7), ""), (None, "app")] {
            let image = ImageUser {
                uid,
                name: name.into(),
            };
            let made = build_security_context(&pod, container, &image, None, node, &[]).unwrap();
            assert_eq!(made.run_as_user.map(|v| v.value), uid);
            assert_eq!(made.run_as_username, name);
        }
    }
}
