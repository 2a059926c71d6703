//! Eviction: a delete that disruption budgets may reject.

use crate::delete::{DeleteAdmission, check_preconditions};
use crate::delete_options::DeleteOptions;
use crate::registry::Registry;
use crate::update::{Mode, Update};
use crate::write::Write;
use api_meta::{ApiError, Cause, Details, Meta, Reason, Selector, meta, time};
use api_semantics::pods::is_terminal_phase;
use apiserver_request::Operation;
use serde_json::{Value, json};

const BUDGET_VIOLATION: &str = "Cannot evict pod as it would violate the pod's disruption budget.";

/// The input of an eviction.
pub struct Eviction {
    /// The Eviction object.
    pub body: Value,
}

impl Registry {
    /// Deletes the pod if its disruption budget allows.
    pub async fn evict_pod(&self, write: &mut Write, eviction: Eviction) -> Result<(), ApiError> {
        let named = eviction.body.name();
        if !named.is_empty() && named != write.name {
            return Err(ApiError::bad_request(format!(
                "name in URL does not match name in Eviction object: {named:?}"
            )));
        }
        let pod = self
            .get(&write.resource, &write.namespace, &write.name, "")
            .await?
            .tree_as(&write.resource)?;
        let name = write.name.clone();
        let mut request = write.admission_request(Operation::Create, &name, eviction.body, None);
        self.run_mutating(&mut request).await?;
        self.run_validating(&request).await?;
        let mut options = DeleteOptions::parse(
            request
                .object
                .get("deleteOptions")
                .cloned()
                .unwrap_or_default(),
        )?;
        options.dry_run |= write.dry_run;
        // The budget is spent before the delete. If the server stops in between, the controller
        // restores it after its deadline for disrupted pods.
        if !needs_no_budget(&pod) {
            self.spend_budget(&pod, options.dry_run).await?;
            // The budget was spent for this pod. One of the same name that replaced it must not be
            // deleted.
            options.uid = options.uid.or_else(|| Some(pod.uid().to_owned()));
        }
        if !options.dry_run && !pod.is_being_deleted() {
            let marked = self.mark_disrupted(write, &pod, &options).await?;
            // The condition is the server's own write: it must not break the client's precondition,
            // which held before it.
            options.resource_version = options
                .resource_version
                .map(|_| marked.resource_version().to_owned());
        }
        let mut delete = Write {
            subresource: String::new(),
            ..write.clone()
        };
        // As upstream: plugins have seen the eviction, and do not see a deletion as well.
        self.delete_as(&mut delete, &options, DeleteAdmission::Done)
            .await
            .map(|_| ())
    }

    /// Writes the condition DisruptionTarget, which tells controllers the reason, if the client's
    /// preconditions hold.
    async fn mark_disrupted(
        &self,
        write: &Write,
        pod: &Value,
        options: &DeleteOptions,
    ) -> Result<Value, ApiError> {
        let mut mark = Write::internal(&write.resource, pod.namespace(), pod.name());
        let change = |pod: &Value| {
            check_preconditions(write, options, pod)?;
            Ok(with_disruption_condition(pod))
        };
        self.update(
            &mut mark,
            &Update {
                change: &change,
                replaces: false,
                mode: Mode::Raw,
            },
        )
        .await
    }

    async fn spend_budget(&self, pod: &Value, dry_run: bool) -> Result<(), ApiError> {
        let budgets = self.budgets_of(pod);
        let budget = match budgets.as_slice() {
            [] => return Ok(()),
            [one] => one,
            _ => {
                let text = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
                return Err(ApiError::internal(text));
            }
        };
        let Some(resource) = api_kinds::find("policy", "v1", "poddisruptionbudgets") else {
            return Ok(());
        };
        let mut write = Write::internal(resource, pod.namespace(), budget.name());
        write.dry_run = dry_run;
        let change = |budget: &Value| spend_disruption(budget, pod);
        self.update(
            &mut write,
            &Update {
                change: &change,
                replaces: false,
                mode: Mode::Raw,
            },
        )
        .await
        .map(|_| ())
    }

    fn budgets_of(&self, pod: &Value) -> Vec<Value> {
        let Some(cache) = self.caches.find_cache("policy", "poddisruptionbudgets") else {
            return Vec::new();
        };
        let prefix = format!("{}/", pod.namespace());
        let snapshot = cache.snapshot(0);
        let budgets = snapshot
            .range_entries(&prefix, "")
            .filter_map(|entry| entry.decode_tree().ok());
        budgets
            .filter(|budget| budget_selects(budget, pod))
            .collect()
    }
}

fn with_disruption_condition(pod: &Value) -> Value {
    let mut pod = pod.clone();
    let condition = json!({
        "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting", "lastTransitionTime": time::now(),
    });
    let conditions = meta::object_at(&mut pod, "status")
        .entry("conditions")
        .or_insert_with(|| json!([]));
    if let Some(all) = conditions.as_array_mut() {
        all.retain(|c| c.get("type") != condition.get("type"));
        all.push(condition);
    }
    pod
}

fn budget_selects(budget: &Value, pod: &Value) -> bool {
    let selector = budget.pointer("/spec/selector").unwrap_or(&Value::Null);
    // An empty selector of policy/v1 selects every pod of the namespace; a missing one selects
    // none.
    let selector = Selector::from_label_selector(selector).ok().flatten();
    selector.is_some_and(|selector| selector.matches_map(pod.labels()))
}

/// Returns whether the pod needs no budget: it has terminated, has not started or is being deleted.
fn needs_no_budget(pod: &Value) -> bool {
    let phase = meta::str_at(pod, &["status", "phase"]);
    is_terminal_phase(phase) || phase == "Pending" || pod.is_being_deleted()
}

fn is_ready(pod: &Value) -> bool {
    api_semantics::pods::is_ready(&api_semantics::tree::pod(pod))
}

/// Returns the budget after the eviction, or an error if none is left.
fn spend_disruption(budget: &Value, pod: &Value) -> Result<Value, ApiError> {
    let number = |path: &str| budget.pointer(path).and_then(Value::as_i64).unwrap_or(0);
    let (healthy, desired) = (
        number("/status/currentHealthy"),
        number("/status/desiredHealthy"),
    );
    let policy = meta::str_at(budget, &["spec", "unhealthyPodEvictionPolicy"]);
    // A pod that is not ready does not serve, so that its eviction disrupts nothing.
    if !is_ready(pod) && (policy == "AlwaysAllow" || (healthy >= desired && desired > 0)) {
        return Ok(budget.clone());
    }
    // The controller has not counted the pods of the changed budget, so its number is stale.
    if number("/status/observedGeneration") < number("/metadata/generation") {
        let why = format!(
            "The disruption budget {} is still being processed by the server.",
            budget.name()
        );
        return Err(too_many_requests(&why, 10));
    }
    let allowed = number("/status/disruptionsAllowed");
    if allowed <= 0 {
        let name = budget.name();
        let why = format!(
            "The disruption budget {name} needs {desired} healthy pods and has {healthy} currently"
        );
        return Err(too_many_requests(&why, 0));
    }
    let mut budget = budget.clone();
    let status = meta::object_at(&mut budget, "status");
    status.insert("disruptionsAllowed".into(), (allowed - 1).into());
    let disrupted = status.entry("disruptedPods").or_insert_with(|| json!({}));
    if let Some(disrupted) = disrupted.as_object_mut() {
        // The disruption controller counts this pod as disrupted until its deletion is seen, so
        // that a fast client can not spend the same disruption twice.
        disrupted.insert(pod.name().to_owned(), time::now().into());
    }
    Ok(budget)
}

fn too_many_requests(why: &str, retry_after_seconds: i32) -> ApiError {
    let cause = Cause {
        reason: "DisruptionBudget".into(),
        message: why.into(),
        ..Cause::default()
    };
    let details = Details {
        causes: vec![cause],
        retry_after_seconds,
        ..Details::default()
    };
    ApiError::new(Reason::TooManyRequests, BUDGET_VIOLATION).with_details(details)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn eviction_is_rejected_after_the_last_allowed_disruption() {
        let pod = json!({"metadata": {"name": "p"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        let budget = json!({"metadata": {"name": "b", "generation": 1},
            "status": {"observedGeneration": 1, "disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1}});
        let spent = spend_disruption(&budget, &pod).unwrap();
        assert_eq!(spent["status"]["disruptionsAllowed"], 0);
        assert_eq!(spend_disruption(&spent, &pod).unwrap_err().code(), 429);
    }
}
