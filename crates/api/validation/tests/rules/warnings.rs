//! Warnings about valid objects.

use super::{Name, build, kind};
use api_validation::object_warnings;
use serde_json::{Value, json};

/// Checks the warnings about new pods whose spec has these fields beside a container: they begin
/// with the expected texts.
fn check_pods(rows: &[(Value, &[&str])]) {
    for (fields, expected) in rows {
        let mut spec = json!({"containers": [{"name": "c", "image": "i:1"}]});
        for (field, value) in fields.as_object().unwrap() {
            spec[field.as_str()] = value.clone();
        }
        check(("", "Pod"), json!({"spec": spec}), expected);
    }
}

fn check(name: Name, fields: Value, expected: &[&str]) {
    let object = build(name, fields);
    let found = object_warnings(kind(name), "", &object, None);
    let matches =
        found.len() == expected.len() && found.iter().zip(expected).all(|(f, e)| f.starts_with(e));
    assert!(
        matches,
        "found: {found:#?}\nexpected: {expected:#?}\nobject: {object}"
    );
}

#[test]
fn deprecated_labels_and_plugins_are_warned_about() {
    check_pods(&[
        (json!({}), &[]),
        (
            json!({"nodeSelector": {"beta.kubernetes.io/os": "linux"}}),
            &[
                "spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use \"kubernetes.io/os\" instead",
            ],
        ),
        (
            json!({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "failure-domain.beta.kubernetes.io/zone"}]}),
            &[
                "spec.topologySpreadConstraints[0].topologyKey: failure-domain.beta.kubernetes.io/zone is deprecated since v1.17",
                "spec.topologySpreadConstraints[0].labelSelector: a null labelSelector results in matching no pod",
            ],
        ),
        (
            json!({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference":
                {"matchExpressions": [{"key": "a", "operator": "In", "values": ["-"]}]}}]}}}),
            &[
                "spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].preference.matchExpressions[0].values[0]: - is invalid, a valid label",
            ],
        ),
        (
            json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "z"}]}}}),
            &[
                "spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].labelSelector: a null labelSelector",
            ],
        ),
        (
            json!({"volumes": [{"name": "v", "gitRepo": {"repository": "r"}}, {"name": "w", "storageos": {}}]}),
            &[
                "spec.volumes[0].gitRepo: deprecated in v1.11, and disabled by default in v1.33+",
                "spec.volumes[1].storageOS: deprecated in v1.22, non-functional in v1.25+",
            ],
        ),
    ]);
}

#[test]
fn entries_that_hide_each_other_are_warned_about() {
    check_pods(&[
        (
            json!({"hostAliases": [{"ip": "10.0.0.1"}, {"ip": "10.0.0.1"}]}),
            &["spec.hostAliases[1].ip: duplicate ip \"10.0.0.1\""],
        ),
        (
            json!({"imagePullSecrets": [{"name": "a"}, {"name": "a"}, {}]}),
            &[
                "spec.imagePullSecrets[1].name: duplicate name \"a\"",
                "spec.imagePullSecrets[2].name: invalid empty name \"\"",
            ],
        ),
        (
            json!({"volumes": [{"name": "v", "configMap": {"name": "m", "items": [{"key": "a", "path": "x"}, {"key": "b", "path": "x/y"}]}}]}),
            &["volume \"v\" (ConfigMap \"m\"): overlapping paths: \"x/y\" with \"x\""],
        ),
        (
            json!({"volumes": [{"name": "v", "projected": {"sources": [{}, {"secret": {"name": "s", "items": [{"key": "a", "path": "t"}]}}, {"serviceAccountToken": {"path": "t"}}]}}]}),
            &[
                "volume \"v\" (Projected) has no sources provided",
                "volume \"v\" (Projected): overlapping paths: \"t\" (ServiceAccountToken) with \"t\" (Secret \"s\")",
            ],
        ),
    ]);
    let container = |change: Value, expected: &[&str]| {
        let mut container = json!({"name": "c", "image": "i:1"});
        for (field, value) in change.as_object().unwrap() {
            container[field.as_str()] = value.clone();
        }
        check(
            ("", "Pod"),
            json!({"spec": {"containers": [container]}}),
            expected,
        );
    };
    container(
        json!({"env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]}),
        &[
            "spec.containers[0].env[1]: hides previous definition of \"A\", which may be dropped when using apply",
        ],
    );
    container(
        json!({"env": [{"name": "A", "value": "1"}, {"name": "A", "value": "$(A):2"}]}),
        &[],
    );
    container(
        json!({"ports": [{"containerPort": 80, "name": "a"}, {"containerPort": 80, "name": "b"}]}),
        &[
            "spec.containers[0].ports[1]: duplicate port definition with spec.containers[0].ports[0]",
        ],
    );
    container(
        json!({"ports": [{"containerPort": 80, "hostIP": "10.0.0.1"}]}),
        &[
            "spec.containers[0].ports[0]: hostIP set without hostPort: {Name: HostPort:0 ContainerPort:80 Protocol:TCP HostIP:10.0.0.1}",
        ],
    );
    container(
        json!({"ports": [{"containerPort": 80, "hostPort": 1}, {"containerPort": 80, "hostPort": 1, "hostIP": "10.0.0.1"}]}),
        &[
            "spec.containers[0].ports[1]: dangerously ambiguous port definition with spec.containers[0].ports[0]",
        ],
    );
    container(
        json!({"resources": {"requests": {"memory": "1500m"}}}),
        &[
            "spec.containers[0].resources.requests[memory]: fractional byte value \"1500m\" is invalid, must be an integer",
        ],
    );
}

#[test]
fn names_annotations_and_addresses_are_warned_about() {
    check(
        ("", "Pod"),
        json!({"metadata": {"name": "a.b"}, "spec": {"containers": []}}),
        &[
            "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is recommended: [must not contain dots]",
        ],
    );
    let key = "container.apparmor.security.beta.kubernetes.io/c";
    check(
        ("", "Pod"),
        json!({"metadata": {"annotations": {key: "unconfined", "seccomp.security.alpha.kubernetes.io/pod": "unconfined"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]}}),
        &[
            "metadata.annotations[seccomp.security.alpha.kubernetes.io/pod]: non-functional in v1.27+",
            "metadata.annotations[container.apparmor.security.beta.kubernetes.io/c]: deprecated since v1.30",
        ],
    );
    check_pods(&[
        (
            json!({"terminationGracePeriodSeconds": -1}),
            &[
                "spec.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1",
            ],
        ),
        (
            json!({"dnsConfig": {"nameservers": ["FD00::1"]}}),
            &[
                "spec.dnsConfig.nameservers[0]: IPv6 address \"FD00::1\" should be in RFC 5952 canonical format (\"fd00::1\")",
            ],
        ),
    ]);
}

#[test]
fn templates_are_warned_about_when_they_change() {
    let template = json!({"metadata": {"labels": {"a": "b"}},
        "spec": {"nodeSelector": {"beta.kubernetes.io/os": "linux"}, "containers": [{"name": "c", "image": "i"}]}});
    let fields = json!({"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}});
    for name in ["Deployment", "ReplicaSet", "DaemonSet", "StatefulSet"] {
        let name = ("apps", name);
        check(
            name,
            fields.clone(),
            &["spec.template.spec.nodeSelector[beta.kubernetes.io/os]: deprecated"],
        );
        let object = build(name, fields.clone());
        let none = object_warnings(kind(name), "", &object, Some(&object));
        assert!(none.is_empty(), "{name:?}: {none:?}");
    }
}

#[test]
fn sizes_and_limits_of_workloads_are_warned_about() {
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"restartPolicy": "Never", "containers": []}});
    check(
        ("batch", "Job"),
        json!({"spec": {"completionMode": "Indexed", "completions": 100_001, "parallelism": 10_001, "template": template}}),
        &["spec: In Indexed Jobs with a number of completions higher than 10^5"],
    );
    check(
        ("apps", "StatefulSet"),
        json!({"spec": {"revisionHistoryLimit": -1, "template": template,
            "volumeClaimTemplates": [{"spec": {"resources": {"requests": {"storage": "1500m"}}}}]}}),
        &[
            "spec.volumeClaimTemplates[0].resources.requests[storage]: fractional byte value",
            "spec.revisionHistoryLimit: a negative value retains all historical revisions",
        ],
    );
}
