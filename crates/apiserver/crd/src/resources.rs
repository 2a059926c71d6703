//! The resources that a definition describes.

use crate::definition::{accepted_names, group, is_terminating, names};
use api_kinds::{
    Converter, CustomSchema, Name, ObjectSchema, Resource, SchemaError, Storage, StorageFormat,
    Subresource, compare_versions, custom_prefix,
};
use api_meta::tree::{flag, get, list, opt_text, text, texts};
use serde_json::Value;
use std::sync::Arc;

/// In upstream's order of discovery.
const VERBS: &[&str] = &[
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "create",
    "update",
    "watch",
];
/// While the definition is being deleted.
const TERMINATING_VERBS: &[&str] = &["delete", "deletecollection", "get", "list", "watch"];
const SUBRESOURCE_VERBS: &[&str] = &["get", "patch", "update"];

/// Reasons why a definition has no resources.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// No version is the storage version.
    #[error("no storage version")]
    NoStorage,
    /// A schema that can't be used.
    #[error("version {0}: {1}")]
    Schema(String, SchemaError),
}

/// Builds one resource for each version of a definition, under its accepted names. Versions that
/// are not served are included with `served: false`, because objects may be stored in them.
/// Without the converter that a definition needs, only its storage version is served.
///
/// A definition that is being deleted is served even if its schemas can't be used: its instances
/// must be listed and deleted, and the owners of finalizers must reach them.
///
/// # Errors
/// The definition, which an older server may have stored without checks, can't be served.
pub fn build_resources(
    definition: &Value,
    converter: Option<&Arc<dyn Converter>>,
    stores_cbor: bool,
) -> Result<Vec<Arc<Resource>>, BuildError> {
    let spec = get(definition, "spec");
    let versions = list(spec, "versions");
    let deleting = is_terminating(definition);
    let storage = versions
        .iter()
        .find(|version| flag(version, "storage"))
        .or_else(|| versions.first().filter(|_| deleting))
        .ok_or(BuildError::NoStorage)?;
    let plural = text(accepted_names(definition), "plural");
    let stored = Storage {
        prefix: custom_prefix(group(definition), plural),
        api_version: format!("{}/{}", group(definition), text(storage, "name")).into(),
        schema: build_schema(definition, storage, converter)?,
        format: match stores_cbor {
            true => StorageFormat::Cbor,
            false => StorageFormat::Json,
        },
    };
    let converts = text(get(spec, "conversion"), "strategy") == "Webhook";
    let mut resources = Vec::with_capacity(versions.len());
    for version in versions {
        let is_stored = std::ptr::eq(version, storage);
        // Converted without the webhook, objects of the other versions would be wrong.
        let served = flag(version, "served") && (is_stored || !converts || converter.is_some());
        let schema = if is_stored {
            stored.schema.clone()
        } else {
            build_schema(definition, version, converter)?
        };
        let mut resource = build_version(definition, version, schema, &stored);
        resource.served = served;
        resources.push(Arc::new(resource));
    }
    Ok(resources)
}

fn build_schema(
    definition: &Value,
    version: &Value,
    converter: Option<&Arc<dyn Converter>>,
) -> Result<ObjectSchema, BuildError> {
    let spec = get(definition, "spec");
    let mut schema = match CustomSchema::parse(spec, version) {
        Ok(schema) => schema,
        Err(_) if is_terminating(definition) => CustomSchema::default(),
        Err(error) => {
            let name = text(version, "name").to_owned();
            return Err(BuildError::Schema(name, error));
        }
    };
    if let Some(path) = &schema.unreadable_column {
        let (kind, version) = (text(names(definition), "kind"), text(version, "name"));
        tracing::info!(
            kind,
            version,
            path = shorten(path),
            "printer column can't be read; it and the columns after it are not shown"
        );
    }
    schema.deprecation = deprecation_warning(spec, version);
    schema.converter = converter.cloned();
    Ok(ObjectSchema::Custom(Arc::new(schema)))
}

fn build_version(
    definition: &Value,
    version: &Value,
    schema: ObjectSchema,
    storage: &Storage,
) -> Resource {
    let names = accepted_names(definition);
    let owned = |field: &str| Name::from(text(names, field).to_owned());
    // As upstream, discovery offers no verb that would keep the cleanup from its end.
    let verbs = if is_terminating(definition) {
        TERMINATING_VERBS
    } else {
        VERBS
    };
    let mut resource = Resource {
        group: group(definition).to_owned().into(),
        version: text(version, "name").to_owned().into(),
        kind: owned("kind"),
        list_kind: owned("listKind"),
        plural: owned("plural"),
        singular: owned("singular"),
        short_names: own_all(texts(names, "shortNames")),
        categories: own_all(texts(names, "categories")),
        namespaced: text(get(definition, "spec"), "scope") == "Namespaced",
        verbs: verbs.to_vec(),
        selectable_fields: selectable_fields(&schema),
        schema,
        subresources: Vec::new(),
        storage: Some(storage.clone()),
        served: true,
    };
    resource.subresources = build_subresources(&resource, version);
    resource
}

/// Returns the warning of a deprecated version: its own, or one that names the best newer version.
fn deprecation_warning(spec: &Value, version: &Value) -> Option<Box<str>> {
    if !flag(version, "deprecated") {
        return None;
    }
    if let Some(warning) = opt_text(version, "deprecationWarning") {
        return Some(warning.into());
    }
    let (group, kind) = (text(spec, "group"), text(get(spec, "names"), "kind"));
    let name = text(version, "name");
    let warning = format!("{group}/{name} {kind} is deprecated");
    let newer = list(spec, "versions")
        .iter()
        .filter(|other| flag(other, "served") && !flag(other, "deprecated"))
        .map(|other| text(other, "name"))
        .filter(|other| compare_versions(other, name).is_lt())
        .min_by(|a, b| compare_versions(a, b));
    Some(match newer {
        Some(newer) => format!("{warning}; use {group}/{newer} {kind}").into(),
        None => warning.into(),
    })
}

/// Returns at most the first 100 characters, for a log line.
fn shorten(path: &str) -> &str {
    path.char_indices()
        .nth(100)
        .and_then(|(end, _)| path.get(..end))
        .unwrap_or(path)
}

fn own_all(names: Vec<&str>) -> Vec<Name> {
    names
        .into_iter()
        .map(|name| name.to_owned().into())
        .collect()
}

fn selectable_fields(schema: &ObjectSchema) -> Vec<Name> {
    // Upstream's field labels of all custom resources.
    let mut fields: Vec<Name> = vec!["metadata.name".into(), "metadata.namespace".into()];
    if let ObjectSchema::Custom(custom) = schema {
        let declared = custom.selectable_fields.iter();
        fields.extend(declared.map(|field| Name::from(field.name.to_string())));
    }
    fields
}

fn build_subresources(resource: &Resource, version: &Value) -> Vec<Subresource> {
    let declared = get(version, "subresources");
    let mut subresources = Vec::new();
    if get(declared, "status").is_object() {
        subresources.push(Subresource {
            name: "status".into(),
            group: resource.group.clone(),
            version: resource.version.clone(),
            kind: resource.kind.clone(),
            verbs: SUBRESOURCE_VERBS.to_vec(),
            schema: Some(resource.schema.clone()),
        });
    }
    if get(declared, "scale").is_object() {
        // The same Scale as that of the built-in kinds.
        let built_in = api_kinds::find("apps", "v1", "deployments");
        let scale = built_in.and_then(|deployments| deployments.subresource("scale"));
        subresources.push(Subresource {
            name: "scale".into(),
            group: "autoscaling".into(),
            version: "v1".into(),
            kind: "Scale".into(),
            verbs: SUBRESOURCE_VERBS.to_vec(),
            schema: scale.and_then(|scale| scale.schema.clone()),
        });
    }
    subresources
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn definition() -> Value {
        json!({"spec": {"group": "example.com", "scope": "Namespaced",
                "names": {"plural": "foos", "singular": "foo", "kind": "Foo", "listKind": "FooList"},
                "versions": [
                    {"name": "v1", "served": true, "storage": false},
                    {"name": "v2", "served": true, "storage": true, "subresources": {"status": {},
                        "scale": {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"}},
                        "selectableFields": [{"jsonPath": ".spec.color"}]},
                    {"name": "v3", "served": false, "storage": false}]},
            "status": {"acceptedNames": {"plural": "foos", "singular": "foo", "kind": "Foo",
                "listKind": "FooList", "shortNames": ["f"], "categories": ["all"]}}})
    }

    fn build(definition: &Value) -> Vec<Arc<Resource>> {
        build_resources(definition, None, false).unwrap()
    }

    #[test]
    fn each_version_has_the_accepted_names() {
        let mut with_other_names = definition();
        with_other_names["spec"]["names"]["kind"] = json!("Refused");
        for resource in build(&with_other_names) {
            assert_eq!((&*resource.kind, &*resource.list_kind), ("Foo", "FooList"));
            assert_eq!((&*resource.plural, &*resource.singular), ("foos", "foo"));
            assert_eq!(
                (&*resource.short_names[0], &*resource.categories[0]),
                ("f", "all")
            );
            assert!(resource.namespaced);
            let storage = resource.storage.as_ref().unwrap();
            assert_eq!(storage.api_version, "example.com/v2");
            assert_eq!(storage.prefix, "/example.com/foos");
        }
    }

    #[test]
    fn deprecated_version_warns_with_its_own_text_or_names_the_best_newer_one() {
        let spec = json!({"group": "e.io", "names": {"kind": "Foo"}, "versions": [
            {"name": "v1", "served": true}, {"name": "v2", "served": true},
            {"name": "v3", "served": false}, {"name": "v2beta1", "served": true}]});
        for (version, expect) in [
            (
                json!({"name": "v1beta1", "deprecated": true}),
                Some("e.io/v1beta1 Foo is deprecated; use e.io/v2 Foo"),
            ),
            (
                json!({"name": "v3", "deprecated": true}),
                Some("e.io/v3 Foo is deprecated"),
            ),
            (
                json!({"name": "v1", "deprecated": true, "deprecationWarning": "old"}),
                Some("old"),
            ),
            (json!({"name": "v1"}), None),
        ] {
            assert_eq!(
                deprecation_warning(&spec, &version).as_deref(),
                expect,
                "{version}"
            );
        }
    }

    #[test]
    fn only_served_versions_are_served() {
        let served: Vec<bool> = build(&definition()).iter().map(|r| r.served).collect();
        assert_eq!(served, [true, true, false]);
    }

    #[test]
    fn other_versions_are_not_served_without_their_webhook() {
        let mut converting = definition();
        converting["spec"]["conversion"] = json!({"strategy": "Webhook"});
        let served: Vec<bool> = build(&converting).iter().map(|r| r.served).collect();
        assert_eq!(served, [false, true, false]);
    }

    #[test]
    fn version_has_its_own_subresources_and_fields() {
        let built = build(&definition());
        assert!(built[0].subresources.is_empty());
        let status = built[1].subresource("status").unwrap();
        assert_eq!(
            (&*status.group, &*status.version, &*status.kind),
            ("example.com", "v2", "Foo")
        );
        let scale = built[1].subresource("scale").unwrap();
        assert_eq!((&*scale.group, &*scale.kind), ("autoscaling", "Scale"));
        assert!(scale.schema.is_some());
        assert_eq!(built[0].selectable_fields.len(), 2);
        assert_eq!(built[1].selectable_fields[2], "spec.color");
    }

    #[test]
    fn discovery_has_fewer_verbs_during_deletion() {
        assert_eq!(build(&definition())[0].verbs, VERBS);
        let mut deleted = definition();
        deleted["metadata"] = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
        assert_eq!(build(&deleted)[0].verbs, TERMINATING_VERBS);
    }

    #[test]
    fn definition_that_cannot_be_served_is_an_error_until_it_is_deleted() {
        let mut no_storage = definition();
        no_storage["spec"]["versions"][1]["storage"] = json!(false);
        let mut bad_field = definition();
        bad_field["spec"]["versions"][0]["selectableFields"] = json!([{"jsonPath": ".a["}]);
        let mut bad_schema = definition();
        bad_schema["spec"]["versions"][1]["schema"] =
            json!({"openAPIV3Schema": {"type": "object", "$ref": "x"}});
        for (case, mut broken, expect) in [
            ("no storage version", no_storage, "no storage version"),
            ("selectable field", bad_field, "version v1: "),
            ("schema", bad_schema, "version v2: "),
        ] {
            let error = build_resources(&broken, None, false).unwrap_err();
            assert!(error.to_string().starts_with(expect), "{case}: {error}");
            broken["metadata"] = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
            let served: Vec<bool> = build(&broken).iter().map(|r| r.served).collect();
            assert_eq!(served, [true, true, false], "{case}");
        }
    }
}
