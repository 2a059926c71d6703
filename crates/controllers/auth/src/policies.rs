//! The status of ValidatingAdmissionPolicies: whether their expressions fit the types of the kinds
//! that they match.
//!
//! A policy is checked once for each generation. Its effect does not depend on the result.

pub mod check;
pub mod schema;
pub mod select;

use std::collections::BTreeMap;
use std::sync::Arc;

use api_cel::hosts::admission::ObjectTypes;
use api_cel::{Type, TypeProvider};
use async_trait::async_trait;
use client::{ApiResource, Client, Error, Request};
use controllers_runtime::discovery::discover_resources;
use controllers_runtime::{
    Action, Cache, Drive, Executor, Meta, Queue, Setup, Target, Verb, Write, wake,
};
use k8s_openapi::api::admissionregistration::v1::{
    ExpressionWarning, ValidatingAdmissionPolicy, ValidatingAdmissionPolicySpec,
};
use serde_json::{Value, json};

use check::{CheckedKind, check_expressions};
use schema::SchemaTypes;
use select::{ServedKind, parameter_kind, select_kinds};

/// Owner of the fields of the status.
const MANAGER: &str = "validatingadmissionpolicy-status";

struct PolicyStatus {
    policies: Cache<ValidatingAdmissionPolicy>,
    client: Client,
}

/// Sets up the controller of the status of ValidatingAdmissionPolicies.
pub fn add_policy_status_controller(setup: &mut Setup, workers: usize) {
    let queue = Queue::new();
    let policies = setup
        .informers
        .for_kind::<ValidatingAdmissionPolicy>()
        .on_event(wake::enqueue_object(&queue))
        .cache();
    let client = setup.client.clone();
    setup.add_driver(
        "validatingadmissionpolicy-status-controller",
        workers,
        queue,
        PolicyStatus { policies, client },
    );
}

#[async_trait]
impl Drive for PolicyStatus {
    async fn reconcile(&self, key: &str, _executor: &Executor) -> Result<Vec<Action>, Error> {
        let Some(policy) = self.policies.get(key) else {
            return Ok(Vec::new());
        };
        if !needs_check(&policy) {
            return Ok(Vec::new());
        }
        let found = discover_resources(&self.client).await?;
        let served: Vec<ApiResource> = found
            .resources
            .into_iter()
            .chain(found.other_versions)
            .map(|served| served.resource)
            .collect();
        let spec = policy.spec.clone().unwrap_or_default();
        let kinds = self.read_types(&spec, &served).await;
        let warnings = check_expressions(&spec, &kinds);
        Ok(vec![write_status(&policy, &warnings)])
    }
}

impl PolicyStatus {
    /// Reads the types of the kinds; one that can't be read is not checked.
    async fn read_types(
        &self,
        spec: &ValidatingAdmissionPolicySpec,
        served: &[ApiResource],
    ) -> Vec<CheckedKind> {
        let mut documents = BTreeMap::new();
        let parameters = match &spec.param_kind {
            Some(kind) => {
                let kind = parameter_kind(kind);
                self.read_kind(&kind, "params:", &mut documents).await
            }
            None => None,
        };
        let mut kinds = Vec::new();
        for kind in select_kinds(spec, served) {
            if let Some(object) = self.read_kind(&kind, "object:", &mut documents).await {
                let types = combine_types(object, parameters.clone());
                kinds.push(CheckedKind { kind, types });
            }
        }
        kinds
    }

    async fn read_kind(
        &self,
        kind: &ServedKind,
        prefix: &str,
        documents: &mut BTreeMap<String, Value>,
    ) -> Option<Arc<SchemaTypes>> {
        let path = kind.document_path();
        if !documents.contains_key(&path) {
            let read = self.client.request::<Value>(Request::get(&path)).await;
            let document = read.unwrap_or_else(|error| {
                tracing::debug!(%path, %error, "no schema; the kind is not checked");
                Value::Null
            });
            documents.insert(path.clone(), document);
        }
        let document = documents.get(&path)?;
        SchemaTypes::from_document(document, kind, prefix).map(Arc::new)
    }
}

/// Returns the types of one kind's objects and of the parameters, which have any type if their
/// schema is not known.
fn combine_types(object: Arc<SchemaTypes>, params: Option<Arc<SchemaTypes>>) -> ObjectTypes {
    let params_type = params
        .as_ref()
        .map_or(Type::Dyn, |types| types.root.clone());
    let object_type = object.root.clone();
    let all = std::iter::once(object).chain(params);
    ObjectTypes {
        object: object_type,
        params: params_type,
        providers: all.map(|types| types as Arc<dyn TypeProvider>).collect(),
    }
}

/// Reports whether the present generation was not checked yet.
fn needs_check(policy: &ValidatingAdmissionPolicy) -> bool {
    let status = policy.status.as_ref();
    let observed = status.and_then(|status| status.observed_generation);
    !policy.is_deleting() && policy.meta().generation.unwrap_or_default() > observed.unwrap_or(0)
}

fn write_status(policy: &ValidatingAdmissionPolicy, warnings: &[ExpressionWarning]) -> Action {
    let body = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": { "name": policy.name(), "uid": policy.uid() },
        "status": { "observedGeneration": policy.meta().generation,
            "typeChecking": { "expressionWarnings": warnings } },
    });
    let write = Write::new(Verb::ApplyStatus(MANAGER), Target::of(policy), body);
    Action::from(write).ignore_absent()
}

#[cfg(test)]
mod tests;
