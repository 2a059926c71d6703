//! Plugins over objects and permissions that a test sets.
#![allow(clippy::unwrap_used)]

mod classes;
mod namespaces;
mod nodes;
mod objects;

use crate::context::Context;
use crate::quota_store::QuotaSlot;
use api_meta::{ApiError, Meta};
use apiserver_request::{
    Admission, AdmissionRequest, Attributes, Authorizer, Decision, GroupResource, Objects,
    Observer, Operation, User,
};
use serde_json::{Value, json};
use std::sync::Arc;

/// Objects with their resource, and the verbs that are allowed.
#[derive(Default)]
struct Fixture {
    objects: Vec<(GroupResource, Value)>,
    allowed: Vec<&'static str>,
}

impl Fixture {
    fn with(mut self, group: &str, resource: &str, object: Value) -> Self {
        self.objects
            .push((GroupResource::new(group, resource), object));
        self
    }

    fn context(self) -> Context {
        let fixture = Arc::new(self);
        Context {
            objects: fixture.clone(),
            authorizer: fixture,
            quotas: Arc::new(QuotaSlot::default()),
        }
    }
}

#[async_trait::async_trait]
impl Objects for Fixture {
    fn cached_object(
        &self,
        resource: &GroupResource,
        namespace: &str,
        name: &str,
    ) -> Option<Arc<Value>> {
        let is = |object: &Value| object.name() == name && object.namespace() == namespace;
        let found = self
            .objects
            .iter()
            .find(|(kind, object)| kind == resource && is(object));
        found.map(|(_, object)| Arc::new(object.clone()))
    }

    fn cached_list(&self, resource: &GroupResource, namespace: Option<&str>) -> Vec<Arc<Value>> {
        let selected =
            |object: &Value| namespace.is_none_or(|namespace| object.namespace() == namespace);
        let all = self.objects.iter();
        all.filter(|(kind, object)| kind == resource && selected(object))
            .map(|(_, object)| Arc::new(object.clone()))
            .collect()
    }

    async fn read_live(
        &self,
        resource: &GroupResource,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Value>, ApiError> {
        Ok(self
            .cached_object(resource, namespace, name)
            .map(|object| (*object).clone()))
    }

    fn observe(&self, _: &GroupResource, _: Arc<dyn Observer>) {}

    fn caches_ready(&self) -> bool {
        true
    }
}

impl Authorizer for Fixture {
    fn authorize(&self, attributes: &Attributes) -> Decision {
        if self.allowed.contains(&attributes.verb.as_str()) {
            Decision::Allow(String::new())
        } else {
            Decision::NoOpinion(String::new())
        }
    }

    fn rules(&self, _: &User, _: &str) -> (Vec<Value>, Vec<Value>, bool) {
        Default::default()
    }
}

fn user(name: &str, group: &str) -> User {
    User {
        name: name.into(),
        groups: vec![group.into()],
        ..User::default()
    }
}

/// Returns a write to the object in its own namespace.
fn request<'a>(
    operation: Operation,
    user: &'a User,
    resource: &'a str,
    object: &'a Value,
) -> AdmissionRequest<'a> {
    let (group, resource) = resource.rsplit_once('/').unwrap_or(("", resource));
    AdmissionRequest {
        operation,
        user,
        group,
        version: "v1",
        resource,
        subresource: "",
        kind: "",
        namespace: object.namespace(),
        name: object.name(),
        object: object.clone(),
        old: None,
        options: Value::Null,
        dry_run: false,
        warnings: Vec::new(),
    }
}

/// Returns the object after the mutating half, or the message of the rejection.
async fn admit(plugin: &dyn Admission, mut request: AdmissionRequest<'_>) -> Result<Value, String> {
    match plugin.admit(&mut request).await {
        Ok(()) => Ok(request.object),
        Err(error) => Err(error.message),
    }
}

/// Returns the message with which the validating half rejects the request.
async fn rejection(plugin: &dyn Admission, request: AdmissionRequest<'_>) -> Option<String> {
    plugin
        .validate(&request)
        .await
        .err()
        .map(|error| error.message)
}

fn pod(spec: Value) -> Value {
    json!({"metadata": {"name": "p", "namespace": "d"}, "spec": spec})
}
