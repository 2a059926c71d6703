//! Tests of owners in several versions.

#![allow(clippy::unwrap_used, clippy::panic)]

use super::Versions;
use crate::{
    ApplyError, ApplyOutcome, Conflict, ConversionRequest, Writer, apply_intent, track_update,
};
use api_kinds::{CustomSchema, ObjectSchema, Resource};
use serde_json::{Value, json};
use std::sync::Arc;

const GROUP: &str = "e.io";

/// Returns the versions of a custom resource that calls the same number `size` in v1 and `count` in
/// v2. The field `note` is in both.
fn list_versions() -> Vec<Arc<Resource>> {
    [("v1", "size"), ("v2", "count")]
        .map(|(version, number)| {
            let document = json!({"type": "object", "properties": {"spec": {"type": "object",
                "properties": {"note": {"type": "string"}, number: {"type": "integer"}}}}});
            let declared = json!({"schema": {"openAPIV3Schema": document}});
            let schema = CustomSchema::parse(&json!({}), &declared).unwrap();
            let base = api_kinds::find("", "v1", "configmaps").unwrap();
            Arc::new(Resource {
                group: GROUP.into(),
                version: version.into(),
                schema: ObjectSchema::Custom(Arc::new(schema)),
                ..Resource::clone(base)
            })
        })
        .into()
}

fn convert(request: &ConversionRequest) -> Value {
    let mut object = request.object.clone();
    assert_ne!(object["apiVersion"], request.api_version);
    let (old, new) = if request.api_version.ends_with("v2") {
        ("size", "count")
    } else {
        ("count", "size")
    };
    object["apiVersion"] = request.api_version.clone().into();
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut)
        && let Some(number) = spec.remove(old)
    {
        spec.insert(new.to_owned(), number);
    }
    object
}

/// An object with its versions, and the conversions that its writes needed.
struct Fixture {
    resources: Vec<Arc<Resource>>,
    live: Option<Value>,
    conversions: usize,
}

impl Fixture {
    fn new() -> Self {
        Fixture {
            resources: list_versions(),
            live: None,
            conversions: 0,
        }
    }

    fn write<T>(
        &mut self,
        (manager, version): (&str, &str),
        step: impl Fn(&Writer<'_>, Option<&Value>) -> Result<T, ApplyError>,
    ) -> Result<T, Vec<Conflict>> {
        let api_version = format!("{GROUP}/{version}");
        let mut versions = Versions::new(&self.resources, GROUP);
        let schema = &versions.find(&api_version).unwrap().schema;
        let live = self.live.as_ref().map(|live| {
            let stored = ConversionRequest {
                object: live.clone(),
                api_version: api_version.clone(),
            };
            if live["apiVersion"] == api_version {
                stored.object
            } else {
                convert(&stored)
            }
        });
        loop {
            let writer = Writer {
                manager,
                api_version: &api_version,
                subresource: "",
                schema,
                versions: &versions,
                ignored: &[],
                now: "2026-01-01T00:00:00Z",
            };
            match step(&writer, live.as_ref()) {
                Ok(done) => return Ok(done),
                Err(ApplyError::Conflicts(conflicts)) => return Err(conflicts),
                Err(ApplyError::Unconverted(request)) => {
                    self.conversions += 1;
                    assert!(self.conversions < 20, "asked again for {request:?}");
                    let converted = convert(&request);
                    versions.add_converted(request, converted);
                }
            }
        }
    }

    fn apply(&mut self, manager: &str, version: &str, spec: Value) -> Result<Value, Vec<Conflict>> {
        let intent = json!({"apiVersion": format!("{GROUP}/{version}"), "kind": "T",
            "metadata": {"name": "a"}, "spec": spec});
        let applied = self.write((manager, version), |writer, live| {
            apply_intent(writer, live, &intent, false)
        });
        let ApplyOutcome { object } = applied?;
        self.live = Some(object.clone());
        Ok(object["spec"].clone())
    }

    fn update(&mut self, manager: &str, version: &str, spec: Value) {
        let object = json!({"apiVersion": format!("{GROUP}/{version}"), "kind": "T",
            "metadata": {"name": "a"}, "spec": spec});
        let updated = self.write((manager, version), |writer, live| {
            let mut object = object.clone();
            track_update(writer, live, &mut object)?;
            Ok(object)
        });
        self.live = Some(updated.unwrap());
    }

    /// Returns the owners: manager, version and fields.
    fn owners(&self) -> Vec<(String, String, Value)> {
        let entries = self.live.as_ref().unwrap()["metadata"]["managedFields"].as_array();
        let owner = |entry: &Value| {
            let text = |name: &str| entry[name].as_str().unwrap().to_owned();
            let version = text("apiVersion").replace("e.io/", "");
            (
                text("manager"),
                version,
                entry["fieldsV1"]["f:spec"].clone(),
            )
        };
        entries.into_iter().flatten().map(owner).collect()
    }
}

fn owner(manager: &str, version: &str, fields: Value) -> (String, String, Value) {
    (manager.to_owned(), version.to_owned(), fields)
}

#[test]
fn change_conflicts_with_an_owner_of_another_version() {
    let mut object = Fixture::new();
    object.apply("a", "v1", json!({"size": 1})).unwrap();
    let conflict = Conflict {
        manager: "\"a\"".to_owned(),
        field: ".spec.size".to_owned(),
    };
    assert_eq!(
        object.apply("b", "v2", json!({"count": 2})),
        Err(vec![conflict])
    );
    assert_eq!(
        object.apply("b", "v2", json!({"count": 1})),
        Ok(json!({"count": 1}))
    );
    assert_eq!(
        object.owners(),
        [
            owner("a", "v1", json!({"f:size": {}})),
            owner("b", "v2", json!({"f:count": {}})),
        ]
    );
}

#[test]
fn applier_that_moves_to_another_version_removes_what_it_abandons() {
    for (next, expect) in [
        (json!({"count": 1}), json!({"count": 1})),
        (
            json!({"count": 2, "note": "y"}),
            json!({"count": 2, "note": "y"}),
        ),
        (json!({"note": "x"}), json!({"note": "x"})),
    ] {
        let mut object = Fixture::new();
        let first = json!({"size": 1, "note": "x"});
        object.apply("a", "v1", first).unwrap();
        assert_eq!(object.apply("a", "v2", next.clone()), Ok(expect), "{next}");
        let versions: Vec<_> = object.owners().into_iter().map(|owner| owner.1).collect();
        assert_eq!(versions, ["v2"], "{next}");
    }
}

#[test]
fn abandoned_field_stays_for_an_owner_of_another_version() {
    for other in ["v1", "v2"] {
        let mut object = Fixture::new();
        let number = if other == "v1" { "size" } else { "count" };
        object
            .apply("a", "v1", json!({"size": 1, "note": "x"}))
            .unwrap();
        object.apply("b", other, json!({number: 1})).unwrap();
        let left = object.apply("a", "v2", json!({"note": "x"}));
        assert_eq!(left, Ok(json!({"count": 1, "note": "x"})), "{other}");
        let left = object.apply("a", "v1", json!({"note": "y"}));
        assert_eq!(left, Ok(json!({"size": 1, "note": "y"})), "{other}");
    }
}

#[test]
fn update_takes_a_field_from_an_owner_of_another_version() {
    for spec in [json!({"size": 2, "note": "x"}), json!({"note": "x"})] {
        let mut object = Fixture::new();
        object
            .apply("a", "v2", json!({"count": 1, "note": "x"}))
            .unwrap();
        object.update("b", "v1", spec.clone());
        let mut expect = vec![owner("a", "v2", json!({"f:note": {}}))];
        if spec.get("size").is_some() {
            expect.push(owner("b", "v1", json!({"f:size": {}})));
        }
        assert_eq!(object.owners(), expect, "{spec}");
    }
}

#[test]
fn owner_of_a_version_that_does_not_exist_is_dropped() {
    for gone in ["e.io/v0", "v1", "other.io/v1", "x"] {
        let mut object = Fixture::new();
        object
            .apply("a", "v1", json!({"size": 1, "note": "x"}))
            .unwrap();
        let live = object.live.as_mut().unwrap();
        live["metadata"]["managedFields"][0]["apiVersion"] = gone.into();
        // Without its owner, the field neither conflicts nor is removed.
        let applied = object.apply("b", "v1", json!({"size": 2}));
        assert_eq!(applied, Ok(json!({"size": 2, "note": "x"})), "{gone}");
        let expect = [owner("b", "v1", json!({"f:size": {}}))];
        assert_eq!(object.owners(), expect, "{gone}");
    }
}

#[test]
fn owners_of_one_version_need_no_conversion() {
    let mut object = Fixture::new();
    object
        .apply("a", "v1", json!({"size": 1, "note": "x"}))
        .unwrap();
    object.update("b", "v1", json!({"size": 2, "note": "x"}));
    object.apply("a", "v1", json!({"note": "y"})).unwrap();
    assert_eq!(object.conversions, 0);
}
