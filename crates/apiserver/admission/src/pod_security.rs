//! Pod Security Standards by namespace labels: `enforce` rejects pods, `warn` adds warnings about
//! pods and workloads.
//!
//! Warnings are added in the mutating half (the validating one can't change the request); later
//! plugins change no field that a check reads.

mod baseline;
mod finding;
mod level;
mod restricted;
mod view;

use crate::context::{Context, forbidden_error, string_at};
use api_meta::status::Cause;
use api_meta::{ApiError, Meta};
use apiserver_request::{Admission, AdmissionRequest, Operation, annotate_audit};
use level::{Level, PREFIX, Policy, Version};
use serde_json::Value;
use view::View;

const MODES: [&str; 3] = ["enforce", "audit", "warn"];
/// Maximum number of a namespace's pods that are checked when its level changes.
const LOOKED_AT: usize = 3000;

/// Enforces the Pod Security Standards.
pub struct PodSecurity(pub Context);

/// Returns all violations of a policy: `reason (detail), ...`; empty if the pod is allowed.
pub fn list_violations(policy: Policy, metadata: &Value, spec: &Value) -> String {
    let view = View {
        metadata,
        spec,
        version: policy.version,
    };
    let findings = match policy.level {
        Level::Privileged => Vec::new(),
        Level::Baseline => baseline::check_baseline(&view, false),
        Level::Restricted => restricted::check_restricted(&view),
    };
    let texts: Vec<String> = findings
        .iter()
        .map(|f| {
            if f.detail.is_empty() {
                f.reason.clone()
            } else {
                format!("{} ({})", f.reason, f.detail)
            }
        })
        .collect();
    texts.join(", ")
}

/// Returns the JSON pointer of a workload kind's pod template.
pub fn pod_template_path(request: &AdmissionRequest<'_>) -> Option<&'static str> {
    match (request.group, request.resource) {
        // Kinds whose controllers create pods. Users rarely see the rejection of such a pod, so
        // that the warning comes when they write the template.
        ("", "replicationcontrollers")
        | ("apps", "deployments" | "replicasets" | "statefulsets" | "daemonsets")
        | ("batch", "jobs") => Some("/spec/template"),
        ("batch", "cronjobs") => Some("/spec/jobTemplate/spec/template"),
        ("", "podtemplates") => Some("/template"),
        _ => None,
    }
}

impl PodSecurity {
    /// Returns the violations of a policy in the release that is emulated, as upstream: its
    /// standards are the latest.
    fn list_violations(&self, policy: Policy, pod: &Value) -> String {
        let policy = Policy {
            version: policy.version.limit_to(self.0.emulated_minor),
            ..policy
        };
        list_violations(policy, &pod["metadata"], &pod["spec"])
    }

    /// Records in the audit events that a pod or a template violates the policy of the mode
    /// `audit`.
    fn annotate_violations(&self, policy: Policy, pod: &Value) {
        let found = self.list_violations(policy, pod);
        if !found.is_empty() {
            annotate_audit(format!("{PREFIX}audit-violations"), || {
                format!(
                    "would violate PodSecurity {:?}: {found}",
                    policy.to_string()
                )
            });
        }
    }

    async fn read_policy(&self, namespace: &str, mode: &str) -> Result<Policy, ApiError> {
        let found = self.0.find_object("", "namespaces", "", namespace).await?;
        Ok(found
            .map(|n| Policy::from_labels(&n, mode))
            .unwrap_or_default())
    }

    /// Returns the checked part of a request: (pod-shaped value, is it a pod).
    fn find_subject<'a>(&self, request: &'a AdmissionRequest<'_>) -> Option<(&'a Value, bool)> {
        let write = matches!(request.operation, Operation::Create | Operation::Update);
        if !write || request.namespace.is_empty() {
            return None;
        }
        if request.group.is_empty() && request.resource == "pods" {
            // Status, binding and resize change no field that a check reads.
            let counted = matches!(request.subresource, "" | "ephemeralcontainers");
            return (counted && is_significant_update(request)).then_some((&request.object, true));
        }
        let pointer = pod_template_path(request).filter(|_| request.subresource.is_empty())?;
        // A template is never rejected, since its controller may still be allowed to change. It is
        // only warned about.
        request.object.pointer(pointer).map(|t| (t, false))
    }

    fn warn_about_pods(&self, request: &mut AdmissionRequest<'_>) {
        let Some(old) = &request.old else { return };
        let (before, after) = (
            Policy::from_labels(old, "enforce"),
            Policy::from_labels(&request.object, "enforce"),
        );
        // Only a change of the policy can turn existing pods into violations.
        if before == after || after.level == Level::Privileged {
            return;
        }
        let pods = self.0.list_objects("", "pods", request.name);
        let mut found: std::collections::BTreeMap<String, Vec<String>> =
            std::collections::BTreeMap::new();
        // Bounded, because the request waits for it.
        for pod in pods.iter().take(LOOKED_AT) {
            let problems = self.list_violations(after, pod);
            if !problems.is_empty() {
                // Only the first violation without its detail: details differ per pod and would
                // prevent grouping.
                let short = problems.split(" (").next().unwrap_or_default().to_owned();
                found.entry(short).or_default().push(pod.name().to_owned());
            }
        }
        if found.is_empty() {
            return;
        }
        let start = format!(
            "existing pods in namespace {:?} violate the new PodSecurity enforce level {:?}",
            request.name,
            after.to_string()
        );
        request.warnings.push(start);
        for (problem, pods) in found {
            let first = pods.first().cloned().unwrap_or_default();
            let more = match pods.len() {
                1 => String::new(),
                2 => " (and 1 other pod)".to_owned(),
                n => format!(" (and {} other pods)", n - 1),
            };
            request.warnings.push(format!("{first}{more}: {problem}"));
        }
    }
}

/// Returns whether an update of a pod could change the result: another image, more ephemeral
/// containers.
fn is_significant_update(request: &AdmissionRequest<'_>) -> bool {
    let Some(old) = &request.old else { return true };
    // Such an update always adds a container.
    if request.subresource == "ephemeralcontainers" {
        return true;
    }
    let images = |pod: &Value| -> Vec<String> {
        // Validation keeps the other checked fields of a pod immutable, so only an image can
        // differ.
        let lists = ["/spec/containers", "/spec/initContainers"];
        lists
            .iter()
            .flat_map(|l| crate::context::list_at(pod, l))
            .map(|c| string_at(c, "/image").to_owned())
            .collect()
    };
    images(old) != images(&request.object)
}

#[async_trait::async_trait]
impl Admission for PodSecurity {
    fn name(&self) -> &'static str {
        "PodSecurity"
    }

    async fn admit(&self, request: &mut AdmissionRequest<'_>) -> Result<(), ApiError> {
        if is_namespace(request) {
            self.warn_about_pods(request);
            return Ok(());
        }
        let warn = match self.find_subject(request) {
            Some((pod, _)) => {
                let policy = self.read_policy(request.namespace, "warn").await?;
                let found = self.list_violations(policy, pod);
                (!found.is_empty()).then(|| {
                    format!(
                        "would violate PodSecurity {:?}: {found}",
                        policy.to_string()
                    )
                })
            }
            None => None,
        };
        request.warnings.extend(warn);
        Ok(())
    }

    async fn validate(&self, request: &AdmissionRequest<'_>) -> Result<(), ApiError> {
        if is_namespace(request) {
            return check_labels(&request.object, request.old.as_ref());
        }
        let Some((pod, is_pod)) = self.find_subject(request) else {
            return Ok(());
        };
        let audit = self.read_policy(request.namespace, "audit").await?;
        self.annotate_violations(audit, pod);
        if !is_pod {
            return Ok(());
        }
        let policy = self.read_policy(request.namespace, "enforce").await?;
        if policy.level != Level::Privileged || audit.level != Level::Privileged {
            annotate_audit(format!("{PREFIX}enforce-policy"), || policy.to_string());
        }
        // Read again after all mutating plugins: a container that one of them added is checked as
        // well.
        let found = self.list_violations(policy, pod);
        if found.is_empty() {
            return Ok(());
        }
        Err(forbidden_error(
            request,
            format!("violates PodSecurity {:?}: {found}", policy.to_string()),
        ))
    }
}

fn is_namespace(request: &AdmissionRequest<'_>) -> bool {
    let write = matches!(request.operation, Operation::Create | Operation::Update);
    write
        && request.group.is_empty()
        && request.resource == "namespaces"
        && request.subresource.is_empty()
}

/// Validates a namespace's labels: levels and versions must be known. Invalid labels that do not
/// change are ignored, so that other changes stay possible.
fn check_labels(namespace: &Value, old: Option<&Value>) -> Result<(), ApiError> {
    let mut causes = Vec::new();
    // Only values that the write changes.
    let is_new = |label: &str, value: &str| old.is_none_or(|old| old.label(label) != Some(value));
    for mode in MODES {
        let level = format!("{PREFIX}{mode}");
        if let Some(value) = namespace
            .label(&level)
            .filter(|v| Level::parse(v).is_none() && is_new(&level, v))
        {
            causes.push(bad_label(
                &level,
                value,
                "must be one of privileged, baseline, restricted",
            ));
        }
        let version = format!("{PREFIX}{mode}-version");
        if let Some(value) = namespace
            .label(&version)
            .filter(|v| Version::parse(v).is_none() && is_new(&version, v))
        {
            causes.push(bad_label(&version, value, "must be \"latest\" or \"v1.x\""));
        }
    }
    if causes.is_empty() {
        Ok(())
    } else {
        Err(ApiError::invalid("", "Namespace", namespace.name(), causes))
    }
}

fn bad_label(label: &str, value: &str, why: &str) -> Cause {
    Cause {
        reason: "FieldValueInvalid".into(),
        message: format!("Invalid value: {value:?}: {why}"),
        field: format!("metadata.labels[{label}]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(spec: Value, baseline: &str, restricted: &str) {
        for (level, expect) in [(Level::Baseline, baseline), (Level::Restricted, restricted)] {
            let found = list_violations(
                Policy {
                    level,
                    version: Version::Latest,
                },
                &json!({}),
                &spec,
            );
            assert_eq!(found, expect, "{spec}");
        }
    }

    fn safe(container: Value) -> Value {
        let mut context =
            json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}});
        for (key, value) in container.as_object().into_iter().flatten() {
            context[key.as_str()] = value.clone();
        }
        json!({"securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{"name": "c", "securityContext": context}]})
    }

    #[test]
    fn violations_of_both_levels_are_listed() {
        check(safe(json!({})), "", "");
        check(
            safe(json!({"privileged": true, "allowPrivilegeEscalation": true})),
            "privileged (container \"c\" must not set securityContext.privileged=true)",
            "privileged (container \"c\" must not set securityContext.privileged=true), allowPrivilegeEscalation != false (container \"c\" must set securityContext.allowPrivilegeEscalation=false)",
        );
        check(
            safe(json!({"capabilities": {"drop": ["ALL"], "add": ["NET_ADMIN"]}})),
            "non-default capabilities (container \"c\" must not include \"NET_ADMIN\" in securityContext.capabilities.add)",
            "unrestricted capabilities (container \"c\" must not include \"NET_ADMIN\" in securityContext.capabilities.add)",
        );
        check(
            json!({"containers": [{"name": "c"}]}),
            "",
            "allowPrivilegeEscalation != false (container \"c\" must set securityContext.allowPrivilegeEscalation=false), unrestricted capabilities (container \"c\" must set securityContext.capabilities.drop=[\"ALL\"]), runAsNonRoot != true (pod or container \"c\" must set securityContext.runAsNonRoot=true), seccompProfile (pod or container \"c\" must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\")",
        );
        let mut unmasked = safe(json!({"procMount": "Unmasked"}));
        unmasked["hostUsers"] = json!(false);
        let finding =
            "procMount (container \"c\" must not set securityContext.procMount to \"Unmasked\")";
        check(unmasked.clone(), "", finding);
        // The order of the message is upstream's: the check of this level is after capabilities.
        unmasked["volumes"] = json!([{"name": "v", "nfs": {}}]);
        unmasked["containers"][0]["securityContext"]["capabilities"] = Value::Null;
        let others = [
            "unrestricted capabilities (container \"c\" must set securityContext.capabilities.drop=[\"ALL\"])",
            finding,
            "restricted volume types (volume \"v\" uses restricted volume type \"nfs\")",
        ];
        check(unmasked, "", &others.join(", "));
        check(
            safe(json!({"runAsUser": 0})),
            "",
            "runAsUser=0 (container \"c\" must not set runAsUser=0)",
        );
    }

    #[test]
    fn new_labels_must_hold_known_levels_and_versions() {
        let namespace = |key: &str, value: &str| json!({"metadata": {"name": "n", "labels": {format!("{PREFIX}{key}"): value}}});
        for (key, value, good) in [
            ("enforce", "baseline", true),
            ("enforce", "strict", false),
            ("warn", "", false),
            ("enforce-version", "latest", true),
            ("enforce-version", "v1.20", true),
            ("enforce-version", "v1", false),
        ] {
            let namespace = namespace(key, value);
            assert_eq!(
                check_labels(&namespace, None).is_ok(),
                good,
                "{key}={value}"
            );
            assert!(
                check_labels(&namespace, Some(&namespace)).is_ok(),
                "{key}={value} stays"
            );
        }
        let (old, new) = (
            namespace("enforce", "strict"),
            namespace("enforce", "stricter"),
        );
        assert!(check_labels(&new, Some(&old)).is_err());
    }
}
