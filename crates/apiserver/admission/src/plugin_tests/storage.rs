use super::*;
use crate::default_classes::{DefaultIngressClass, DefaultStorageClass};
use crate::storage::{ClaimResize, InUseProtection};

fn storage_class(name: &str, default: &str, created: &str) -> (&'static str, Value) {
    let annotations = json!({"storageclass.kubernetes.io/is-default-class": default});
    (
        "storage.k8s.io:storageclasses",
        json!({"metadata": {"name": name, "annotations": annotations, "creationTimestamp": created}}),
    )
}

#[test]
fn newest_default_class_is_set_on_a_claim_without_class() {
    let plugin = DefaultStorageClass(context(&[
        storage_class("b-old", "true", "2024-01-01T00:00:00Z"),
        storage_class("c-new", "true", "2024-02-01T00:00:00Z"),
        storage_class("a-new", "true", "2024-02-01T00:00:00Z"),
        storage_class("newest", "false", "2024-03-01T00:00:00Z"),
    ]));
    let class = |object: Value| {
        admit(&plugin, &create("persistentvolumeclaims", object)).unwrap()["spec"]["storageClassName"].clone()
    };
    assert_eq!(class(json!({"spec": {}})), "a-new");
    assert_eq!(class(json!({"spec": {"storageClassName": ""}})), "");
    assert_eq!(class(json!({"spec": {"storageClassName": "own"}})), "own");
    let annotated = json!({"metadata": {"annotations": {"volume.beta.kubernetes.io/storage-class": "own"}}, "spec": {}});
    assert_eq!(class(annotated), Value::Null);
}

#[test]
fn claim_stays_without_class_if_none_is_default() {
    let plugin = DefaultStorageClass(context(&[storage_class("a", "false", "")]));
    let admitted = admit(
        &plugin,
        &create("persistentvolumeclaims", json!({"spec": {}})),
    )
    .unwrap();
    assert_eq!(admitted["spec"], json!({}));
}

#[test]
fn default_ingress_class_is_set_unless_field_or_annotation_names_one() {
    let class = json!({"metadata": {"name": "main", "annotations": {"ingressclass.kubernetes.io/is-default-class": "true"}}});
    let plugin = DefaultIngressClass(context(&[("networking.k8s.io:ingressclasses", class)]));
    for (object, expect) in [
        (json!({"spec": {}}), json!("main")),
        (json!({"spec": {"ingressClassName": "own"}}), json!("own")),
        (
            json!({"metadata": {"annotations": {"kubernetes.io/ingress.class": "own"}}, "spec": {}}),
            Value::Null,
        ),
    ] {
        let admitted = admit(&plugin, &create("networking.k8s.io:ingresses", object)).unwrap();
        assert_eq!(admitted["spec"]["ingressClassName"], expect);
    }
}

#[test]
fn storage_objects_get_their_protection_finalizer_once() {
    for (path, finalizer) in [
        ("persistentvolumeclaims", "kubernetes.io/pvc-protection"),
        ("persistentvolumes", "kubernetes.io/pv-protection"),
        (
            "storage.k8s.io:volumeattributesclasses",
            "kubernetes.io/vac-protection",
        ),
    ] {
        for given in [json!([]), json!([finalizer])] {
            let admitted = admit(
                &InUseProtection,
                &create(path, json!({"metadata": {"finalizers": given}})),
            )
            .unwrap();
            assert_eq!(
                admitted["metadata"]["finalizers"],
                json!([finalizer]),
                "{path}"
            );
        }
    }
}

fn claim(size: &str, class: &str, phase: &str) -> Value {
    json!({"spec": {"storageClassName": class, "resources": {"requests": {"storage": size}}}, "status": {"phase": phase}})
}

#[test]
fn claim_grows_if_it_is_bound_and_its_class_allows_it() {
    let class = |name: &str, allows: bool| {
        (
            "storage.k8s.io:storageclasses",
            json!({"metadata": {"name": name}, "allowVolumeExpansion": allows}),
        )
    };
    let plugin = ClaimResize(context(&[class("yes", true), class("no", false)]));
    let unbound = "Only bound persistent volume claims can be expanded";
    let class = "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize";
    for (old, new, why) in [
        (
            claim("1Gi", "yes", "Bound"),
            claim("2Gi", "yes", "Bound"),
            None,
        ),
        (
            claim("1Gi", "no", "Bound"),
            claim("1Gi", "no", "Bound"),
            None,
        ),
        (
            claim("1Gi", "no", "Bound"),
            claim("1024Mi", "no", "Bound"),
            None,
        ),
        (
            claim("1Gi", "yes", "Pending"),
            claim("2Gi", "yes", "Pending"),
            Some(unbound),
        ),
        (
            claim("1Gi", "no", "Bound"),
            claim("2Gi", "no", "Bound"),
            Some(class),
        ),
        (
            claim("1Gi", "gone", "Bound"),
            claim("2Gi", "gone", "Bound"),
            Some(class),
        ),
    ] {
        let expect = why.map_or(Ok(()), |why| forbidden("persistentvolumeclaims", why));
        assert_eq!(
            validate(&plugin, &update("persistentvolumeclaims", old.clone(), new)),
            expect,
            "{old}"
        );
    }
}
