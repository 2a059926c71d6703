//! Decisions over fakes of the caches and the kinds.
#![allow(clippy::unwrap_used)]

mod matching;
mod patches;
mod reviews;

use crate::attributes::Attributes;
use crate::conditions::NoConditions;
use crate::hook::{Hook, compile_hooks};
use crate::kinds::{GroupVersionKind, GroupVersionResource, Kinds};
use api_meta::{ApiError, Meta};
use apiserver_request::{AdmissionRequest, GroupResource, Objects, Observer, Operation, User};
use serde_json::{Value, json};
use std::sync::Arc;

/// Serves `widgets` in v1 and v2 with a subresource `size`; v2 names the field `size` `width`.
struct Widgets;

#[async_trait::async_trait]
impl Kinds for Widgets {
    fn find_kind(&self, resource: &GroupVersionResource, sub: &str) -> Option<GroupVersionKind> {
        match (resource.resource.as_str(), sub) {
            ("widgets", "hidden") => None,
            ("widgets", "size") => Some(GroupVersionKind::new("sizes", "v1", "Size")),
            ("widgets", _) => Some(GroupVersionKind::new("g", &resource.version, "Widget")),
            _ => None,
        }
    }

    fn equivalent_resources(&self, resource: &GroupVersionResource) -> Vec<GroupVersionResource> {
        let all = ["v1", "v2"].map(|version| GroupVersionResource::new("g", version, "widgets"));
        let others = all.into_iter().filter(|other| other != resource);
        others.filter(|_| resource.resource == "widgets").collect()
    }

    async fn convert_object(
        &self,
        mut object: Value,
        _: &GroupVersionResource,
        to: &GroupVersionResource,
    ) -> Result<Value, ApiError> {
        let (from, into) = match to.version.as_str() {
            "v1" => ("width", "size"),
            _ => ("size", "width"),
        };
        let fields = object.as_object_mut().unwrap();
        if let Some(value) = fields.remove(from) {
            fields.insert(into.into(), value);
        }
        Ok(object)
    }

    fn explicit_object(&self, _: &GroupVersionResource, _: &str, object: &Value) -> Value {
        object.clone()
    }

    fn encode_object(&self, _: &GroupVersionResource, _: &str, object: &Value, out: &mut Vec<u8>) {
        out.extend_from_slice(object.to_string().as_bytes());
    }

    fn decode_object(
        &self,
        _: &GroupVersionResource,
        _: &str,
        object: Value,
    ) -> Result<Value, String> {
        if object["size"].is_string() {
            return Err("size is no number".into());
        }
        Ok(object)
    }

    fn default_object(&self, _: &GroupVersionResource, _: &str, _: &mut Value) {}
}

/// Namespaces in the cache, and in the store only.
#[derive(Default)]
struct Namespaces {
    cached: Vec<Value>,
    stored: Vec<Value>,
}

fn by_name(list: &[Value], name: &str) -> Option<Value> {
    list.iter().find(|object| object.name() == name).cloned()
}

#[async_trait::async_trait]
impl Objects for Namespaces {
    fn cached_object(&self, _: &GroupResource, _: &str, name: &str) -> Option<Arc<Value>> {
        by_name(&self.cached, name).map(Arc::new)
    }

    fn cached_list(&self, _: &GroupResource, _: Option<&str>) -> Vec<Arc<Value>> {
        Vec::new()
    }

    async fn read_live(
        &self,
        _: &GroupResource,
        _: &str,
        name: &str,
    ) -> Result<Option<Value>, ApiError> {
        Ok(by_name(&self.stored, name))
    }

    fn observe(&self, _: &GroupResource, _: Arc<dyn Observer>) {}

    fn caches_ready(&self) -> bool {
        true
    }
}

fn compile(hook: Value) -> Hook {
    let configuration = json!({"metadata": {"name": "c"}, "webhooks": [hook]});
    compile_hooks(&configuration, &NoConditions).remove(0)
}

/// Builds the attributes of a write to `g/v1/widgets[/subresource]` or `namespaces` in `n`.
fn attributes<'a>(user: &'a User, operation: Operation, path: &'a str) -> Attributes<'a> {
    let (resource, subresource) = path.split_once('/').unwrap_or((path, ""));
    let group = if resource == "namespaces" { "" } else { "g" };
    let request = AdmissionRequest {
        operation,
        user,
        group,
        version: "v1",
        resource,
        subresource,
        kind: "",
        namespace: if resource == "namespaces" { "" } else { "n" },
        name: "x",
        object: Value::Null,
        old: None,
        options: json!({"kind": "PatchOptions", "force": true}),
        dry_run: false,
        warnings: Default::default(),
        reinvocation: Default::default(),
    };
    Attributes::new(&request, &Widgets)
}
