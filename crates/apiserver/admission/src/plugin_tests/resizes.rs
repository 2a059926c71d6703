use super::*;
use crate::pod_resize::{NodeDeclaredFeatureValidator, PodResizeValidator};

fn node(features: &[&str], labels: Value) -> Context {
    let node = json!({"metadata": {"name": "n1", "labels": labels}, "status": {
        "declaredFeatures": features, "allocatable": {"cpu": "2", "memory": "1Gi"}}});
    context(&[("nodes", node)])
}

/// A pod with requests of its own and of an init container.
fn pod(cpu: &str, of_init: &str, policy: &str, node: &str) -> Value {
    json!({"spec": {"nodeName": node, "resources": {"requests": {"cpu": cpu}},
        "initContainers": [{"name": "i", "restartPolicy": policy,
            "resources": {"requests": {"cpu": of_init}}}],
        "containers": [{"name": "c"}]}})
}

#[test]
fn resize_needs_a_node_that_declares_its_feature() {
    let (of_pod, of_init) = (
        "InPlacePodLevelResourcesVerticalScaling",
        "InPlacePodVerticalScalingInitContainers",
    );
    let old = || pod("1", "1", "", "n1");
    for (features, old, new, missing) in [
        (&[of_pod][..], old(), pod("2", "1", "", "n1"), ""),
        (&[], old(), pod("2", "1", "", "n1"), of_pod),
        (&[of_pod], old(), pod("1", "500m", "", "n1"), of_init),
        (&[of_init], old(), pod("1", "500m", "", "n1"), ""),
        (
            &[],
            pod("1", "1", "Always", "n1"),
            pod("1", "500m", "Always", "n1"),
            "",
        ),
        (&[], old(), old(), ""),
        (&[], pod("1", "1", "", ""), pod("2", "1", "", ""), ""),
    ] {
        let case = format!("{features:?} {new}");
        let plugin = NodeDeclaredFeatureValidator(node(features, json!({})));
        let expect = if missing.is_empty() {
            Ok(())
        } else {
            let why = format!(
                "pod update requires features {missing} which are not available on node \"n1\""
            );
            forbidden("pods", &why)
        };
        let got = validate(&plugin, &update("pods/resize", old, new));
        assert_eq!(got, expect, "{case}");
    }
    let earlier = Context {
        emulated_minor: 35,
        ..node(&[], json!({}))
    };
    let write = update("pods/resize", old(), pod("2", "1", "", "n1"));
    let plugin = NodeDeclaredFeatureValidator(earlier);
    assert_eq!(validate(&plugin, &write), Ok(()), "emulated release");
}

#[test]
fn resize_beyond_the_node_is_rejected() {
    let windows = json!({"kubernetes.io/os": "windows"});
    let linux = json!({"kubernetes.io/os": "linux"});
    for (labels, cpu, node_name, why) in [
        (&linux, "2", "n1", ""),
        (&linux, "3", "", ""),
        (
            &linux,
            "2100m",
            "n1",
            "node didn't have enough allocatable resources: cpu, requested: 2100, allocatable: 2000",
        ),
        (
            &windows,
            "2",
            "n1",
            "pod resize is only supported on linux nodes, node \"n1\" is \"windows\"",
        ),
        (&linux, "2", "other", "node \"other\" not found"),
    ] {
        let plugin = PodResizeValidator(node(&[], labels.clone()));
        let new = pod(cpu, "1", "", node_name);
        let write = update("pods/resize", pod("1", "1", "", node_name), new);
        let expect = if why.is_empty() {
            Ok(())
        } else {
            forbidden("pods", why)
        };
        assert_eq!(validate(&plugin, &write), expect, "{labels} {cpu}");
    }
}

#[test]
fn change_that_is_no_resize_is_not_compared_with_the_node() {
    let plugin = PodResizeValidator(node(&[], json!({})));
    let write = update("pods", pod("1", "1", "", "n1"), pod("9", "1", "", "n1"));
    assert_eq!(validate(&plugin, &write), Ok(()));
}
