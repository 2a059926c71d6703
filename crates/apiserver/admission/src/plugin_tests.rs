//! The plugins over fakes of the watch caches, the authorizer and the quota store.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod certificates;
mod claims;
mod limits;
mod namespaces;
mod nodes;
mod pods;
mod quotas;
mod resizes;
mod security;
mod storage;

use crate::context::{Context, PolicyPlugins, WebhookPlugins};
use crate::quota_store::{Change, QuotaStore};
use api_meta::ApiError;
use apiserver_request::testing::FakeObjects;
use apiserver_request::{
    Admission, AdmissionRequest, Attributes, Decision, GroupResource, LocalAuthorizer, Operation,
    User,
};
use serde_json::{Value, json};
use std::future::Future;
use std::sync::{Arc, Mutex};

/// Allows the listed (verb, name).
struct FakeAuthorizer(Vec<(&'static str, &'static str)>);

impl LocalAuthorizer for FakeAuthorizer {
    fn decide(&self, attributes: &Attributes) -> Decision {
        let asked = (attributes.verb.as_str(), attributes.name.as_str());
        match self.0.contains(&asked) {
            true => Decision::Allow(String::new()),
            false => Decision::NoOpinion(String::new()),
        }
    }
}

/// A plugin that does nothing, in place of webhooks and policies.
struct NoEffect;

impl Admission for NoEffect {
    fn name(&self) -> &'static str {
        "NoEffect"
    }
}

fn no_webhooks() -> WebhookPlugins {
    WebhookPlugins {
        mutating: Arc::new(NoEffect),
        validating: Arc::new(NoEffect),
    }
}

/// Quotas as the store holds them.
#[derive(Default)]
struct FakeQuotas(Mutex<Vec<Value>>);

#[async_trait::async_trait]
impl QuotaStore for FakeQuotas {
    async fn change(&self, _: &str, name: &str, change: Change<'_>) -> Result<(), ApiError> {
        let mut quotas = self.0.lock().unwrap();
        for quota in quotas.iter_mut().filter(|q| q["metadata"]["name"] == name) {
            *quota = change(quota)?;
        }
        Ok(())
    }
}

fn grouped(path: &str) -> GroupResource {
    let (group, resource) = path.split_once(':').unwrap_or(("", path));
    GroupResource::new(group, resource)
}

/// Builds a context over objects given as (`group:resource`, object).
fn context(objects: &[(&str, Value)]) -> Context {
    context_with(objects, &[], Arc::new(FakeQuotas::default()))
}

fn context_with(
    objects: &[(&str, Value)],
    grants: &[(&'static str, &'static str)],
    quotas: Arc<FakeQuotas>,
) -> Context {
    let objects = objects
        .iter()
        .map(|(path, object)| (grouped(path), object.clone()));
    Context {
        objects: Arc::new(FakeObjects::new(objects)),
        authorizer: Arc::new(FakeAuthorizer(grants.to_vec())),
        quotas,
        webhooks: no_webhooks(),
        policies: PolicyPlugins {
            mutating: Arc::new(NoEffect),
            validating: Arc::new(NoEffect),
        },
        emulated_minor: 36,
    }
}

/// A write of `jane` in the namespace `n`.
#[derive(Clone)]
struct Write {
    user: User,
    path: &'static str,
    operation: Operation,
    namespace: &'static str,
    name: &'static str,
    object: Value,
    old: Option<Value>,
    dry_run: bool,
}

fn create(path: &'static str, object: Value) -> Write {
    let user = User {
        name: "jane".into(),
        ..User::default()
    };
    Write {
        user,
        path,
        operation: Operation::Create,
        namespace: "n",
        name: "x",
        object,
        old: None,
        dry_run: false,
    }
}

fn update(path: &'static str, old: Value, object: Value) -> Write {
    Write {
        operation: Operation::Update,
        old: Some(old),
        ..create(path, object)
    }
}

fn delete(path: &'static str, old: Value) -> Write {
    Write {
        operation: Operation::Delete,
        old: Some(old),
        ..create(path, Value::Null)
    }
}

impl Write {
    fn request(&self) -> AdmissionRequest<'_> {
        let (group, resource) = self.path.split_once(':').unwrap_or(("", self.path));
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        AdmissionRequest {
            operation: self.operation,
            user: &self.user,
            group,
            version: "v1",
            resource,
            subresource,
            kind: "Kind",
            namespace: self.namespace,
            name: self.name,
            object: self.object.clone(),
            old: self.old.clone(),
            options: Value::Null,
            dry_run: self.dry_run,
            warnings: Default::default(),
            reinvocation: Default::default(),
        }
    }
}

/// Runs a future of a plugin over the fakes, which never wait.
fn complete<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match future.as_mut().poll(&mut context) {
        std::task::Poll::Ready(value) => value,
        std::task::Poll::Pending => panic!("the fakes must not wait"),
    }
}

/// Runs `admit`; returns the object, or the message of the rejection.
fn admit(plugin: &dyn Admission, write: &Write) -> Result<Value, String> {
    let mut request = write.request();
    complete(plugin.admit(&mut request)).map_err(|error| error.message)?;
    Ok(request.object)
}

fn admit_warnings(plugin: &dyn Admission, write: &Write) -> Vec<String> {
    let mut request = write.request();
    complete(plugin.admit(&mut request)).unwrap();
    request.warnings.into_iter().collect()
}

fn validate(plugin: &dyn Admission, write: &Write) -> Result<(), String> {
    complete(plugin.validate(&write.request())).map_err(|error| error.message)
}

fn forbidden(resource: &str, why: &str) -> Result<(), String> {
    Err(format!("{resource} \"x\" is forbidden: {why}"))
}
