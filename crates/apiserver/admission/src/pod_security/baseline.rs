//! The baseline level: no known privilege escalation.

use super::finding::Finding;
use super::view::{View, choose_plural, containers_text, distinct_values, is_bool, quote_names};
use crate::context::{list_at, string_at};
use serde_json::Value;

// The default set of container runtimes without NET_RAW: with raw sockets a container could forge
// packets of other pods.
const CAPABILITIES: [&str; 13] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];
/// Safe sysctls and the minor version since which they are allowed.
// The kernel keeps each of them per namespace, so that a pod changes them for itself only.
const SYSCTLS: [(&str, u32); 12] = [
    ("kernel.shm_rmid_forced", 0),
    ("net.ipv4.ip_local_port_range", 0),
    ("net.ipv4.tcp_syncookies", 0),
    ("net.ipv4.ping_group_range", 0),
    ("net.ipv4.ip_unprivileged_port_start", 0),
    ("net.ipv4.ip_local_reserved_ports", 27),
    ("net.ipv4.tcp_keepalive_time", 29),
    ("net.ipv4.tcp_fin_timeout", 29),
    ("net.ipv4.tcp_keepalive_intvl", 29),
    ("net.ipv4.tcp_keepalive_probes", 29),
    ("net.ipv4.tcp_rmem", 32),
    ("net.ipv4.tcp_wmem", 32),
];

fn some_finding(reason: impl Into<String>, detail: impl Into<String>) -> Option<Finding> {
    Some(Finding {
        reason: reason.into(),
        detail: detail.into(),
    })
}

/// Returns all violations. With `restricted`, its stricter checks replace some.
pub fn check_baseline(view: &View<'_>, restricted: bool) -> Vec<Finding> {
    // Sorted by the id of the check, as upstream does: this is the order of the message.
    let own = [
        app_armor(view),
        // A check that a stricter one replaces does not run, or the message would report the field
        // twice.
        if restricted && view.version.is_at_least(22) {
            None
        } else {
            check_capabilities(view)
        },
        host_namespaces(view),
        if restricted { None } else { host_paths(view) },
        host_ports(view),
        probe_hosts(view),
        check_privileged(view),
        if restricted && view.version.is_at_least(35) {
            None
        } else {
            proc_mount(view)
        },
        se_linux(view),
        if restricted && view.version.is_at_least(19) {
            None
        } else {
            check_seccomp(view)
        },
        check_sysctls(view),
        host_process(view),
    ];
    own.into_iter().flatten().collect()
}

fn app_armor(view: &View<'_>) -> Option<Finding> {
    const TYPE: &str = "/securityContext/appArmorProfile/type";
    let forbidden = |v: &Value| !matches!(string_at(v, TYPE), "" | "RuntimeDefault" | "Localhost");
    let mut setters: Vec<String> = Vec::new();
    let mut values: Vec<String> = Vec::new();
    if forbidden(view.spec) {
        setters.push("pod".into());
        values.push(string_at(view.spec, TYPE).into());
    }
    let names = view.container_names(forbidden);
    if !names.is_empty() {
        setters.push(containers_text(&names));
        values.extend(
            view.containers()
                .filter(|c| forbidden(c))
                .map(|c| string_at(c, TYPE).to_owned()),
        );
    }
    let mut details = Vec::new();
    if !setters.is_empty() {
        let values = distinct_values(values);
        let what = choose_plural("type", "types", values.len());
        details.push(format!(
            "{} must not set AppArmor profile {what} to {}",
            setters.join(" and "),
            quote_names(&values)
        ));
    }
    let prefix = "container.apparmor.security.beta.kubernetes.io/";
    for (key, value) in view
        .metadata
        .get("annotations")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        let value = value.as_str().unwrap_or_default();
        // The annotation is older than the field; both are honored by container runtimes.
        let known =
            // An empty annotation selects no profile of its own, so it cannot weaken the runtime's
            // default.
            value.is_empty() || value == "runtime/default" || value.starts_with("localhost/");
        if key.starts_with(prefix) && !known {
            details.push(format!("annotation {:?}", format!("{key}={value}")));
        }
    }
    if details.is_empty() {
        return None;
    }
    some_finding(
        choose_plural(
            "forbidden AppArmor profile",
            "forbidden AppArmor profiles",
            details.len(),
        ),
        details.join(", "),
    )
}

/// Returns capabilities added in addition to `allowed`, with the containers that add them.
pub fn added_capabilities<'a>(view: &View<'a>, allowed: &[&str]) -> (Vec<&'a str>, Vec<String>) {
    let extra = |c: &Value| -> Vec<String> {
        let all = list_at(c, "/securityContext/capabilities/add")
            .iter()
            .filter_map(Value::as_str);
        all.filter(|a| !allowed.contains(a))
            .map(str::to_owned)
            .collect()
    };
    (
        view.container_names(|c| !extra(c).is_empty()),
        distinct_values(view.containers().flat_map(extra)),
    )
}

fn check_capabilities(view: &View<'_>) -> Option<Finding> {
    let (names, extra) = added_capabilities(view, &CAPABILITIES);
    if names.is_empty() {
        return None;
    }
    let detail = format!(
        "{} must not include {} in securityContext.capabilities.add",
        containers_text(&names),
        quote_names(&extra)
    );
    some_finding("non-default capabilities", detail)
}

fn host_namespaces(view: &View<'_>) -> Option<Finding> {
    // Each of these shares a namespace with processes of the node, which the pod could then observe
    // or attack.
    let fields = ["hostNetwork", "hostPID", "hostIPC"];
    let set: Vec<String> = fields
        .iter()
        .filter(|f| is_bool(view.spec, &format!("/{f}"), true))
        .map(|f| format!("{f}=true"))
        .collect();
    if set.is_empty() {
        None
    } else {
        some_finding("host namespaces", set.join(", "))
    }
}

fn host_paths(view: &View<'_>) -> Option<Finding> {
    let volumes = list_at(view.spec, "/volumes")
        .iter()
        .filter(|v| v.get("hostPath").is_some_and(|h| !h.is_null()));
    let names: Vec<&str> = volumes.map(|v| string_at(v, "/name")).collect();
    if names.is_empty() {
        return None;
    }
    some_finding(
        "hostPath volumes",
        format!(
            "{} {}",
            choose_plural("volume", "volumes", names.len()),
            quote_names(&names)
        ),
    )
}

fn host_ports(view: &View<'_>) -> Option<Finding> {
    let ports = |c: &Value| -> Vec<String> {
        let all = list_at(c, "/ports")
            .iter()
            .filter_map(|p| p.get("hostPort").and_then(Value::as_i64));
        // 0 means that no host port is used.
        all.filter(|n| *n != 0).map(|n| n.to_string()).collect()
    };
    let names = view.container_names(|c| !ports(c).is_empty());
    if names.is_empty() {
        return None;
    }
    let numbers = distinct_values(view.containers().flat_map(ports));
    let (uses, what) = (
        choose_plural("uses", "use", names.len()),
        choose_plural("hostPort", "hostPorts", numbers.len()),
    );
    some_finding(
        what,
        format!(
            "{} {uses} {what} {}",
            containers_text(&names),
            numbers.join(", ")
        ),
    )
}

fn probe_hosts(view: &View<'_>) -> Option<Finding> {
    // The control exists since 1.34: a probe host makes the kubelet connect to any address.
    if !view.version.is_at_least(34) {
        return None;
    }
    const PLACES: [&str; 5] = [
        "livenessProbe",
        "readinessProbe",
        "startupProbe",
        "lifecycle/postStart",
        "lifecycle/preStop",
    ];
    let hosts = |c: &Value| -> Vec<String> {
        let at = |place: &&str| {
            ["httpGet", "tcpSocket"].map(|h| string_at(c, &format!("/{place}/{h}/host")).to_owned())
        };
        PLACES
            .iter()
            .flat_map(at)
            // Loopback is the node's: what listens there often trusts every caller.
            .filter(|h| !h.is_empty())
            .collect()
    };
    let names = view.container_names(|c| !hosts(c).is_empty());
    if names.is_empty() {
        return None;
    }
    let all = distinct_values(view.containers().flat_map(hosts));
    let (uses, what) = (
        choose_plural("uses", "use", names.len()),
        choose_plural(
            "probe or lifecycle host",
            "probe or lifecycle hosts",
            all.len(),
        ),
    );
    some_finding(
        what,
        format!(
            "{} {uses} {what} {}",
            containers_text(&names),
            quote_names(&all)
        ),
    )
}

fn check_privileged(view: &View<'_>) -> Option<Finding> {
    let names = view.container_names(|c| is_bool(c, "/securityContext/privileged", true));
    if names.is_empty() {
        return None;
    }
    some_finding(
        "privileged",
        format!(
            "{} must not set securityContext.privileged=true",
            containers_text(&names)
        ),
    )
}

/// Checks `procMount`. Since 1.35, a pod with a user namespace may unmask /proc: its root has no
/// rights over the node.
fn proc_mount(view: &View<'_>) -> Option<Finding> {
    // Kubelets without user namespaces refuse such pods, and mask /proc all the same.
    if view.version.is_at_least(35) && is_bool(view.spec, "/hostUsers", false) {
        None
    } else {
        unmasked_proc(view)
    }
}

/// Returns the containers that set `procMount` to something else than the default.
pub fn unmasked_proc(view: &View<'_>) -> Option<Finding> {
    let other = |c: &Value| !matches!(string_at(c, "/securityContext/procMount"), "" | "Default");
    let names = view.container_names(other);
    if names.is_empty() {
        return None;
    }
    let values = view
        .containers()
        .filter(|c| other(c))
        .map(|c| string_at(c, "/securityContext/procMount").to_owned());
    let detail = format!(
        "{} must not set securityContext.procMount to {}",
        containers_text(&names),
        quote_names(&distinct_values(values))
    );
    some_finding("procMount", detail)
}

fn se_linux(view: &View<'_>) -> Option<Finding> {
    let mut types = vec!["", "container_t", "container_init_t", "container_kvm_t"];
    // Added to the allowed types in 1.31.
    if view.version.is_at_least(31) {
        types.push("container_engine_t");
    }
    let options = |v: &Value, field: &str| {
        string_at(v, &format!("/securityContext/seLinuxOptions/{field}")).to_owned()
    };
    // The policy permits a custom type from a fixed list, but no value of user and role at all.
    let bad = |v: &Value| {
        !types.contains(&options(v, "type").as_str())
            || !options(v, "user").is_empty()
            || !options(v, "role").is_empty()
    };
    let mut setters = Vec::new();
    if bad(view.spec) {
        setters.push("pod".to_owned());
    }
    let names = view.container_names(bad);
    if !names.is_empty() {
        setters.push(containers_text(&names));
    }
    if setters.is_empty() {
        return None;
    }
    let everywhere: Vec<&Value> = std::iter::once(view.spec)
        .chain(view.containers())
        .collect();
    let found = distinct_values(
        everywhere
            .iter()
            .map(|v| options(v, "type"))
            .filter(|t| !types.contains(&t.as_str())),
    );
    let mut what = Vec::new();
    if !found.is_empty() {
        what.push(format!(
            "{} {}",
            choose_plural("type", "types", found.len()),
            quote_names(&found)
        ));
    }
    for field in ["user", "role"] {
        if everywhere.iter().any(|v| !options(v, field).is_empty()) {
            what.push(format!("{field} may not be set"));
        }
    }
    let detail = format!(
        "{} set forbidden securityContext.seLinuxOptions: {}",
        setters.join(" and "),
        what.join("; ")
    );
    some_finding("seLinuxOptions", detail)
}

fn check_seccomp(view: &View<'_>) -> Option<Finding> {
    explicit_seccomp(view).and_then(|detail| some_finding("seccompProfile", detail))
}

/// Describes the pod or containers that set a seccomp profile which is not allowed.
pub fn explicit_seccomp(view: &View<'_>) -> Option<String> {
    const TYPE: &str = "/securityContext/seccompProfile/type";
    // An absent profile is no finding at this level; only the restricted level demands one.
    let bad = |v: &Value| !matches!(string_at(v, TYPE), "" | "RuntimeDefault" | "Localhost");
    let mut setters = Vec::new();
    let mut values: Vec<String> = Vec::new();
    if bad(view.spec) {
        setters.push("pod".to_owned());
        values.push(string_at(view.spec, TYPE).to_owned());
    }
    let names = view.container_names(bad);
    if !names.is_empty() {
        setters.push(containers_text(&names));
        values.extend(
            view.containers()
                .filter(|c| bad(c))
                .map(|c| string_at(c, TYPE).to_owned()),
        );
    }
    if setters.is_empty() {
        return None;
    }
    let values = distinct_values(values);
    Some(format!(
        "{} must not set securityContext.seccompProfile.type to {}",
        setters.join(" and "),
        quote_names(&values)
    ))
}

fn check_sysctls(view: &View<'_>) -> Option<Finding> {
    let safe = |name: &str| {
        SYSCTLS
            .iter()
            .any(|(n, since)| *n == name && view.version.is_at_least(*since))
    };
    let all = list_at(view.spec, "/securityContext/sysctls")
        .iter()
        .map(|s| string_at(s, "/name"));
    let bad: Vec<&str> = all.filter(|n| !safe(n)).collect();
    if bad.is_empty() {
        None
    } else {
        some_finding("forbidden sysctls", bad.join(", "))
    }
}

fn host_process(view: &View<'_>) -> Option<Finding> {
    // Such a container runs directly on a Windows node, without isolation from its other processes.
    const FIELD: &str = "/securityContext/windowsOptions/hostProcess";
    let mut setters = Vec::new();
    if is_bool(view.spec, FIELD, true) {
        setters.push("pod".to_owned());
    }
    let names = view.container_names(|c| is_bool(c, FIELD, true));
    if !names.is_empty() {
        setters.push(containers_text(&names));
    }
    if setters.is_empty() {
        return None;
    }
    some_finding(
        "hostProcess",
        format!(
            "{} must not set securityContext.windowsOptions.hostProcess=true",
            setters.join(" and ")
        ),
    )
}
