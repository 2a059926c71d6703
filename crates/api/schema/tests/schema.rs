//! Facts of the schema that patches, codecs and OpenAPI rely on.
#![allow(clippy::unwrap_used, missing_docs)]

use api_schema::{Field, ListKind, Shape, schema};

fn field(message: &str, field: &str) -> &'static Field {
    let name = format!("k8s.io.api.{message}");
    schema().message(&name).unwrap().field(field).unwrap()
}

#[test]
fn merge_keys_of_lists_are_those_of_the_go_types() {
    for (message, name, key) in [
        ("core.v1.PodSpec", "containers", "name"),
        ("core.v1.PodSpec", "volumes", "name"),
        ("core.v1.Container", "volumeMounts", "mountPath"),
        ("core.v1.Container", "env", "name"),
        ("core.v1.ServiceSpec", "ports", "port"),
        ("core.v1.PodStatus", "conditions", "type"),
        ("core.v1.ServiceAccount", "secrets", "name"),
    ] {
        let field = field(message, name);
        assert_eq!(
            (field.patch_merge, field.patch_key),
            (true, key),
            "{message}.{name}"
        );
    }
}

#[test]
fn unions_retain_only_the_keys_of_the_patch() {
    assert!(field("core.v1.PodSpec", "volumes").patch_retain_keys);
    assert!(field("apps.v1.DeploymentSpec", "strategy").patch_retain_keys);
    assert!(!field("core.v1.PodSpec", "containers").patch_retain_keys);
}

#[test]
fn ownership_of_lists_is_that_of_server_side_apply() {
    assert_eq!(
        field("core.v1.PodSpec", "tolerations").list,
        ListKind::Atomic
    );
    assert_eq!(
        field("core.v1.PodSpec", "containers").list,
        ListKind::Map(&["name"])
    );
    let ports = field("core.v1.ServiceSpec", "ports");
    assert_eq!(ports.list, ListKind::Map(&["port", "protocol"]));
    assert_eq!(
        field("core.v1.NamespaceSpec", "finalizers").list,
        ListKind::Atomic
    );
}

#[test]
fn optional_integers_are_pointers_and_required_ones_are_not() {
    assert!(field("apps.v1.DeploymentSpec", "replicas").pointer);
    assert!(!field("core.v1.ContainerPort", "containerPort").pointer);
    assert!(field("core.v1.PodSpec", "containers").required);
}

#[test]
fn protobuf_numbers_are_unique_within_a_message() {
    for message in schema().messages() {
        let numbers: Vec<u32> = message
            .fields_by_number()
            .map(|field| field.number)
            .collect();
        assert!(
            numbers.windows(2).all(|pair| pair[0] < pair[1]),
            "{}",
            message.name
        );
        for number in numbers {
            assert_eq!(message.field_by_number(number).unwrap().number, number);
        }
    }
}

#[test]
fn types_with_a_text_form_have_a_shape() {
    for (name, shape) in [
        ("resource.Quantity", Shape::Quantity),
        ("apis.meta.v1.Time", Shape::Time),
        ("apis.meta.v1.MicroTime", Shape::MicroTime),
    ] {
        let path = match name.starts_with("resource") {
            true => format!("k8s.io.apimachinery.pkg.api.{name}"),
            false => format!("k8s.io.apimachinery.pkg.{name}"),
        };
        assert_eq!(schema().message(&path).unwrap().shape, shape, "{path}");
    }
}

#[test]
fn enumerations_name_their_values() {
    let protocol = field("core.v1.ContainerPort", "protocol").values.unwrap();
    let mut values = protocol.values.clone();
    values.sort_unstable();
    assert_eq!(values, ["SCTP", "TCP", "UDP"]);
}
