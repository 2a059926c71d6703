use super::*;
use crate::namespace_lifecycle::NamespaceLifecycle;
use crate::{Options, build_plugins};

fn plugin() -> NamespaceLifecycle {
    NamespaceLifecycle(context(&[
        (
            "namespaces",
            json!({"metadata": {"name": "n"}, "status": {"phase": "Active"}}),
        ),
        (
            "namespaces",
            json!({"metadata": {"name": "old"}, "status": {"phase": "Terminating"}}),
        ),
    ]))
}

#[test]
fn system_namespaces_can_not_be_deleted() {
    for (name, expect) in [
        ("default", false),
        ("kube-system", false),
        ("kube-public", false),
        ("kube-node-lease", true),
        ("n", true),
    ] {
        let write = Write {
            namespace: "",
            name,
            ..delete("namespaces", json!({}))
        };
        let result = validate(&plugin(), &write);
        assert_eq!(result.is_ok(), expect, "{name}: {result:?}");
    }
}

#[test]
fn create_in_an_active_namespace_is_accepted() {
    assert!(admit(&plugin(), &create("pods", json!({}))).is_ok());
}

#[test]
fn create_in_a_missing_namespace_is_not_found() {
    let write = Write {
        namespace: "none",
        ..create("pods", json!({}))
    };
    assert_eq!(
        admit(&plugin(), &write),
        Err("namespaces \"none\" not found".into())
    );
}

#[test]
fn terminating_namespace_rejects_creates_with_a_cause() {
    let write = Write {
        namespace: "old",
        ..create("pods", json!({}))
    };
    let error = complete(plugin().admit(&mut write.request())).unwrap_err();
    assert_eq!(
        error.message,
        "pods \"x\" is forbidden: unable to create new content in namespace old because it is being terminated"
    );
    let cause = &error.details.unwrap().causes[0];
    assert_eq!(
        (
            cause.reason.as_str(),
            cause.message.as_str(),
            cause.field.as_str()
        ),
        (
            "NamespaceTerminating",
            "namespace old is being terminated",
            "metadata.namespace"
        )
    );
}

#[test]
fn terminating_namespace_accepts_updates_deletions_and_reviews() {
    let inside = |write: Write| Write {
        namespace: "old",
        ..write
    };
    for write in [
        inside(update("pods", json!({}), json!({}))),
        inside(delete("pods", json!({}))),
        inside(create(
            "authorization.k8s.io:localsubjectaccessreviews",
            json!({}),
        )),
    ] {
        assert!(
            admit(&plugin(), &write).is_ok(),
            "{} {:?}",
            write.path,
            write.operation
        );
    }
}

#[test]
fn plugins_follow_the_flags_in_upstreams_order() {
    let names = |enable: &[&str], disable: &[&str]| -> Vec<&'static str> {
        let list = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect();
        let options = Options {
            enable: list(enable),
            disable: list(disable),
            ..Options::default()
        };
        build_plugins(&options, &context(&[]))
            .unwrap()
            .iter()
            .map(|plugin| plugin.name())
            .collect()
    };
    let default = names(&[], &[]);
    assert!(!default.contains(&"AlwaysPullImages") && default.contains(&"LimitRanger"));
    assert_eq!(default.last(), Some(&"ResourceQuota"));
    assert!(names(&["AlwaysPullImages"], &[]).contains(&"AlwaysPullImages"));
    assert!(!names(&["LimitRanger"], &["LimitRanger"]).contains(&"LimitRanger"));
}
