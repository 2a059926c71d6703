//! Accessors of a pod's spec.

pub(crate) use api_semantics::qos::compute_pod_qos;
use k8s_openapi::api::core::v1::{Container, EphemeralContainer, Pod, PodSpec};
use std::sync::LazyLock;

/// The role of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Runs to completion before the next.
    Init,
    /// An init container that keeps running (restartPolicy Always).
    Sidecar,
    /// A regular container.
    App,
    /// An ephemeral container, added for debugging.
    Ephemeral,
}

static EMPTY: LazyLock<PodSpec> = LazyLock::new(PodSpec::default);

/// Returns the spec, or an empty one.
pub(crate) fn read_spec(pod: &Pod) -> &PodSpec {
    pod.spec.as_ref().unwrap_or(&EMPTY)
}

pub(crate) fn role_of_init(container: &Container) -> Role {
    if api_semantics::resources::is_sidecar(container) {
        Role::Sidecar
    } else {
        Role::Init
    }
}

pub(crate) fn init_containers(pod: &Pod) -> impl Iterator<Item = (Role, &Container)> {
    read_spec(pod)
        .init_containers
        .iter()
        .flatten()
        .map(|c| (role_of_init(c), c))
}

pub(crate) fn app_containers(pod: &Pod) -> impl Iterator<Item = &Container> {
    read_spec(pod).containers.iter()
}

pub(crate) fn ephemeral_containers(pod: &Pod) -> impl Iterator<Item = &EphemeralContainer> {
    read_spec(pod).ephemeral_containers.iter().flatten()
}

/// Finds a container of any role by name; converts an ephemeral one to the common type.
pub(crate) fn find_container(pod: &Pod, name: &str) -> Option<(Role, Container)> {
    let init = init_containers(pod)
        .find(|(_, c)| c.name == name)
        .map(|(role, c)| (role, c.clone()));
    let app = || {
        app_containers(pod)
            .find(|c| c.name == name)
            .map(|c| (Role::App, c.clone()))
    };
    let debug = || {
        ephemeral_containers(pod)
            .find(|c| c.name == name)
            .map(|c| (Role::Ephemeral, convert_ephemeral(c)))
    };
    init.or_else(app).or_else(debug)
}

/// Returns all names with their roles, in starting order.
pub(crate) fn list_containers(pod: &Pod) -> Vec<(Role, String)> {
    let init = init_containers(pod).map(|(role, c)| (role, c.name.clone()));
    let app = app_containers(pod).map(|c| (Role::App, c.name.clone()));
    let debug = ephemeral_containers(pod).map(|c| (Role::Ephemeral, c.name.clone()));
    init.chain(app).chain(debug).collect()
}

fn convert_ephemeral(c: &EphemeralContainer) -> Container {
    Container {
        args: c.args.clone(),
        command: c.command.clone(),
        env: c.env.clone(),
        env_from: c.env_from.clone(),
        image: c.image.clone(),
        image_pull_policy: c.image_pull_policy.clone(),
        name: c.name.clone(),
        security_context: c.security_context.clone(),
        stdin: c.stdin,
        stdin_once: c.stdin_once,
        termination_message_path: c.termination_message_path.clone(),
        termination_message_policy: c.termination_message_policy.clone(),
        tty: c.tty,
        volume_mounts: c.volume_mounts.clone(),
        working_dir: c.working_dir.clone(),
        ..Container::default()
    }
}

pub(crate) fn restart_policy(pod: &Pod) -> &str {
    read_spec(pod).restart_policy.as_deref().unwrap_or("Always")
}

/// Returns whether a container that exited with `code` is restarted: by its rules, its policy, or
/// the pod's policy.
pub(crate) fn should_restart(pod: &Pod, role: Role, container: &Container, code: i32) -> bool {
    // KEP-277: ephemeral containers are never restarted.
    if role == Role::Ephemeral {
        return false;
    }
    for rule in container.restart_policy_rules.iter().flatten() {
        let Some(codes) = &rule.exit_codes else {
            continue;
        };
        // A rule that does not match says nothing; the next one is tried, and then the policies.
        let named = codes.values.iter().flatten().any(|v| *v == code);
        if named == (codes.operator == "In") && rule.action.starts_with("Restart") {
            return true;
        }
    }
    let own = container.restart_policy.as_deref();
    match (role, own.unwrap_or(restart_policy(pod))) {
        (Role::Sidecar, _) => true,
        (_, "Never") => false,
        (Role::Init, _) | (_, "OnFailure") => code != 0,
        _ => true,
    }
}

pub(crate) fn host_network(pod: &Pod) -> bool {
    read_spec(pod).host_network.unwrap_or(false)
}

pub(crate) fn grace_seconds(pod: &Pod) -> i64 {
    read_spec(pod)
        .termination_grace_period_seconds
        .unwrap_or(30)
        .max(0)
}

pub(crate) fn parse_quantity(text: &str) -> Option<api_meta::Quantity> {
    text.parse().ok()
}

/// Returns `name_namespace(uid)`, the format of upstream's messages.
pub(crate) fn full_name(pod: &Pod) -> String {
    let meta = &pod.metadata;
    let text = |s: &Option<String>| s.clone().unwrap_or_default();
    format!(
        "{}_{}({})",
        text(&meta.name),
        text(&meta.namespace),
        text(&meta.uid)
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::{Value, json};

    fn pod(spec: Value) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).unwrap()
    }

    #[test]
    fn restart_is_decided_by_rules_then_by_the_container_then_by_the_pod() {
        let rule = |operator: &str| json!([{"action": "Restart", "exitCodes": {"operator": operator, "values": [3]}}]);
        for (policy, container, code, expected) in [
            ("Never", json!({"restartPolicy": "Always"}), 0, true),
            ("Always", json!({"restartPolicy": "Never"}), 1, false),
            ("Always", json!({"restartPolicy": "OnFailure"}), 0, false),
            ("Never", json!({"restartPolicyRules": rule("In")}), 3, true),
            ("Never", json!({"restartPolicyRules": rule("In")}), 4, false),
            (
                "Never",
                json!({"restartPolicyRules": rule("NotIn")}),
                4,
                true,
            ),
            (
                "Never",
                json!({"restartPolicyRules": rule("NotIn")}),
                3,
                false,
            ),
        ] {
            let mut whole = container.clone();
            whole["name"] = json!("c");
            let pod = pod(json!({"restartPolicy": policy, "containers": [whole]}));
            let c = app_containers(&pod).next().unwrap();
            let restarts = should_restart(&pod, Role::App, c, code);
            assert_eq!(restarts, expected, "{policy} {container} {code}");
        }
    }

    #[test]
    fn role_decides_whether_a_container_that_completed_is_restarted() {
        let always = pod(json!({"containers": [{"name": "c"}]}));
        let c = app_containers(&always).next().unwrap();
        for (role, after_success, after_failure) in [
            (Role::App, true, true),
            (Role::Sidecar, true, true),
            (Role::Init, false, true),
            (Role::Ephemeral, false, false),
        ] {
            let found = [0, 1].map(|code| should_restart(&always, role, c, code));
            assert_eq!(found, [after_success, after_failure], "{role:?}");
        }
    }

    #[test]
    fn containers_are_listed_in_starting_order() {
        let pod = pod(
            json!({"containers": [{"name": "a"}], "ephemeralContainers": [{"name": "e", "tty": true}],
            "initContainers": [{"name": "i"}, {"name": "s", "restartPolicy": "Always"}]}),
        );
        let expected = [
            (Role::Init, "i"),
            (Role::Sidecar, "s"),
            (Role::App, "a"),
            (Role::Ephemeral, "e"),
        ];
        let expected = expected.map(|(role, name)| (role, name.to_owned()));
        assert_eq!(list_containers(&pod), expected);
        let (role, debug) = find_container(&pod, "e").unwrap();
        assert_eq!((role, debug.tty), (Role::Ephemeral, Some(true)));
        assert_eq!(find_container(&pod, "x"), None);
    }

    #[test]
    fn grace_period_is_thirty_seconds_by_default_and_never_negative() {
        for (given, expected) in [
            (json!(null), 30),
            (json!(0), 0),
            (json!(-5), 0),
            (json!(90), 90),
        ] {
            let pod = pod(json!({"containers": [], "terminationGracePeriodSeconds": given}));
            assert_eq!(grace_seconds(&pod), expected, "{given}");
        }
    }
}
