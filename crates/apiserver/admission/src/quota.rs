//! ResourceQuotas: usage is charged with the write that causes it.
//!
//! Invariant: a charge is a compare-and-swap on the quota's status that repeats the check on the
//! fresh object, so that two writers (on two servers) can't both take the last unit. If the write
//! fails later, the quota controller corrects the charge.

mod scope;
mod usage;

use crate::context::{Context, forbidden_error};
use crate::resources::{Amounts, add_amounts, parse_amounts};
use api_meta::{ApiError, Meta};
use apiserver_request::{Admission, AdmissionRequest, Operation};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};

/// Enforces ResourceQuotas.
pub struct ResourceQuota {
    context: Context,
}

impl ResourceQuota {
    /// Creates the plugin; it charges through `context.quotas`.
    pub fn new(context: Context) -> Self {
        ResourceQuota { context }
    }
}

#[async_trait::async_trait]
impl Admission for ResourceQuota {
    fn name(&self) -> &'static str {
        "ResourceQuota"
    }

    async fn validate(&self, request: &AdmissionRequest<'_>) -> Result<(), ApiError> {
        // Resize is the only subresource that changes what a pod is charged.
        let counted = request.subresource.is_empty()
            || (request.resource, request.subresource) == ("pods", "resize");
        let write = matches!(request.operation, Operation::Create | Operation::Update);
        // A deletion is not charged: the quota controller lowers the usage once the object is
        // removed.
        if request.namespace.is_empty() || !counted || !write {
            return Ok(());
        }
        let quotas = self
            .context
            .list_objects("", "resourcequotas", request.namespace);
        if quotas.is_empty() {
            return Ok(());
        }
        let delta = usage_delta(request);
        if delta.is_empty() {
            return Ok(());
        }
        let mut charged: Vec<String> = Vec::new();
        // Sequential charges: after a rejection, those of the earlier quotas are released.
        for quota in quotas.iter().filter(|q| scope::matches_scopes(q, request)) {
            match self.charge_request(request, quota, &delta).await {
                Ok(true) => charged.push(quota.name().to_owned()),
                Ok(false) => {}
                Err(e) => {
                    self.release_charges(request, &charged, &delta).await;
                    return Err(e);
                }
            }
        }
        Ok(())
    }
}

/// Returns the usage that a write adds.
fn usage_delta(request: &AdmissionRequest<'_>) -> Amounts {
    let mut usage = usage::object_usage(request.group, request.resource, &request.object);
    if let (Operation::Update, Some(old)) = (request.operation, &request.old) {
        let before = usage::object_usage(request.group, request.resource, old);
        for (name, amount) in &mut usage {
            // An update is charged only for what it adds; the stored object was charged when it was
            // written.
            if let Some(had) = before.get(name) {
                *amount = amount.minus(*had);
            }
        }
    }
    // Shrinking needs no quota. The controller lowers the usage after the write.
    usage.retain(|_, amount| !amount.is_zero() && !amount.is_negative());
    usage
}

impl ResourceQuota {
    /// Charges one quota; returns false if the quota does not apply to the write.
    async fn charge_request(
        &self,
        request: &AdmissionRequest<'_>,
        quota: &Value,
        delta: &Amounts,
    ) -> Result<bool, ApiError> {
        // Saves a write to the store. The status of a new quota may be older here than in the
        // store, so its spec decides, too: else the write would be charged nothing.
        let mut bounded = parse_amounts(quota.pointer("/status/hard"));
        bounded.extend(parse_amounts(quota.pointer("/spec/hard")));
        let is_bounded = delta.keys().any(|name| bounded.contains_key(name));
        if !is_bounded && list_unspecified(request, &bounded).is_empty() {
            return Ok(false);
        }
        let is_charged = AtomicBool::new(false);
        let change = |fresh: &Value| {
            is_charged.store(bounds_any(fresh, delta), Ordering::Relaxed);
            check_specified(fresh, request)
                .and_then(|()| charge_quota(fresh, delta))
                .map_err(|why| forbidden_error(request, why))
        };
        // Checked against the cached quota: a dry run must not write, not even the status.
        if request.dry_run {
            change(quota)?;
        } else {
            self.context
                .quotas
                .change(request.namespace, quota.name(), &change)
                .await?;
        }
        Ok(is_charged.into_inner())
    }

    async fn release_charges(
        &self,
        request: &AdmissionRequest<'_>,
        quotas: &[String],
        delta: &Amounts,
    ) {
        let change = |fresh: &Value| Ok(release_usage(fresh, delta));
        for name in quotas.iter().filter(|_| !request.dry_run) {
            // If this fails, the quota controller corrects the usage.
            let _ = self
                .context
                .quotas
                .change(request.namespace, name, &change)
                .await;
        }
    }
}

fn format_amounts(amounts: &Amounts, names: &[&String]) -> String {
    let parts: Vec<String> = names
        .iter()
        .map(|n| {
            format!(
                "{n}={}",
                amounts.get(*n).copied().unwrap_or(api_meta::Quantity::ZERO)
            )
        })
        .collect();
    parts.join(",")
}

fn bounds_any(quota: &Value, delta: &Amounts) -> bool {
    let hard = parse_amounts(quota.pointer("/status/hard"));
    delta.keys().any(|name| hard.contains_key(name))
}

/// Returns what a created pod must specify because of these limits, and does not.
fn list_unspecified(request: &AdmissionRequest<'_>, hard: &Amounts) -> Vec<String> {
    if request.resource == "pods" && request.operation == Operation::Create {
        usage::unspecified_resources(&request.object, hard)
    } else {
        Vec::new()
    }
}

/// Rejects a pod without a value that the quota bounds: it would count as zero and bypass the
/// quota.
fn check_specified(quota: &Value, request: &AdmissionRequest<'_>) -> Result<(), String> {
    let hard = parse_amounts(quota.pointer("/status/hard"));
    let missing = list_unspecified(request, &hard);
    if missing.is_empty() {
        return Ok(());
    }
    Err(format!(
        "failed quota: {}: must specify {}",
        quota.name(),
        missing.join("; ")
    ))
}

fn charge_quota(quota: &Value, delta: &Amounts) -> Result<Value, String> {
    let hard = parse_amounts(quota.pointer("/status/hard"));
    let used = parse_amounts(quota.pointer("/status/used"));
    // The status of a quota reports only the resources that its spec bounds.
    let relevant: Amounts = delta
        .iter()
        .filter(|(n, _)| hard.contains_key(*n))
        .map(|(n, a)| (n.clone(), *a))
        .collect();
    // Written back as read, an amount could have another form, and the status would change.
    if relevant.is_empty() {
        return Ok(quota.clone());
    }
    // The controller has not computed the usage yet, so the remaining amount is unknown.
    let unknown: Vec<&str> = relevant
        .keys()
        .filter(|n| !used.contains_key(*n))
        .map(String::as_str)
        .collect();
    if !unknown.is_empty() {
        return Err(format!(
            "status unknown for quota: {}, resources: {}",
            quota.name(),
            unknown.join(",")
        ));
    }
    let mut total = used.clone();
    add_amounts(&mut total, &relevant);
    let over: Vec<&String> = relevant
        .keys()
        .filter(|n| total.get(*n) > hard.get(*n))
        .collect();
    if !over.is_empty() {
        return Err(format!(
            "exceeded quota: {}, requested: {}, used: {}, limited: {}",
            quota.name(),
            format_amounts(&relevant, &over),
            format_amounts(&used, &over),
            format_amounts(&hard, &over)
        ));
    }
    Ok(with_used(quota, &total))
}

fn release_usage(quota: &Value, delta: &Amounts) -> Value {
    let mut used = parse_amounts(quota.pointer("/status/used"));
    for (name, amount) in delta {
        if let Some(have) = used.get_mut(name) {
            // Subtracted from the current status instead of restoring an old one: other requests
            // may have been charged in between.
            *have = have.minus(*amount);
        }
    }
    with_used(quota, &used)
}

fn with_used(quota: &Value, used: &Amounts) -> Value {
    // The rest of the object stays as read, so that the write fails if it has changed since.
    let mut quota = quota.clone();
    let text: serde_json::Map<String, Value> = used
        .iter()
        .map(|(n, a)| (n.clone(), json!(a.to_string())))
        .collect();
    quota["status"]["used"] = Value::Object(text);
    quota
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charge_up_to_the_limit_is_accepted() {
        let quota = json!({"metadata": {"name": "q"}, "status": {"hard": {"requests.cpu": "1", "pods": "2"}, "used": {"requests.cpu": "700m", "pods": "1"}}});
        let delta = |cpu: &str| {
            parse_amounts(Some(
                &json!({"requests.cpu": cpu, "pods": "1", "memory": "1"}),
            ))
        };
        let done = charge_quota(&quota, &delta("300m"));
        assert_eq!(
            done.map(|q| q["status"]["used"].clone()),
            Ok(json!({"requests.cpu": "1", "pods": "2"}))
        );
        assert_eq!(
            charge_quota(&quota, &delta("400m")),
            Err("exceeded quota: q, requested: requests.cpu=400m, used: requests.cpu=700m, limited: requests.cpu=1"
                .into())
        );
    }
}
