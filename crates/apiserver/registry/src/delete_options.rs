//! `DeleteOptions`, parsed and checked.

use api_meta::{ApiError, Cause};
use serde_json::{Value, json};

/// Propagation policy: the fate of dependents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// Dependents lose their owner reference and stay.
    Orphan,
    /// The garbage collector deletes them afterwards.
    Background,
    /// The owner stays until they are deleted.
    Foreground,
}

/// The options of a delete.
#[derive(Clone, Debug, Default)]
pub struct DeleteOptions {
    /// Grace period in seconds; `None` is the kind's default.
    pub grace: Option<i64>,
    /// `None` is the kind's default.
    pub propagation: Option<Propagation>,
    /// The object must have this UID.
    pub uid: Option<String>,
    /// The object must have this resourceVersion.
    pub resource_version: Option<String>,
    /// `orphanDependents: false` was given, the deprecated form of a policy.
    pub cascades_explicitly: bool,
    /// Removes nothing.
    pub dry_run: bool,
    /// As sent, for admission.
    pub raw: Value,
}

impl DeleteOptions {
    /// Parses an options object (null for none).
    pub fn parse(mut raw: Value) -> Result<Self, ApiError> {
        drop_unsafe_option(&mut raw);
        let text = |field: &str| raw.get(field).and_then(Value::as_str);
        let orphan = raw.get("orphanDependents").and_then(Value::as_bool);
        let mut causes = Vec::new();
        let propagation = match text("propagationPolicy") {
            // Without a policy, the deprecated boolean decides: true orphans, false deletes
            // afterwards.
            None | Some("") => orphan.map(|orphan| {
                if orphan {
                    Propagation::Orphan
                } else {
                    Propagation::Background
                }
            }),
            Some("Orphan") => Some(Propagation::Orphan),
            Some("Background") => Some(Propagation::Background),
            Some("Foreground") => Some(Propagation::Foreground),
            Some(other) => {
                causes.push(unsupported_cause(
                    "propagationPolicy",
                    other,
                    &["Background", "Foreground", "Orphan", "nil"],
                ));
                None
            }
        };
        // The deprecated field and its replacement could contradict each other.
        if orphan.is_some() && text("propagationPolicy").is_some() {
            let why = "orphanDependents and deletionPropagation cannot be both set";
            causes.push(invalid_cause(
                "propagationPolicy",
                raw.get("propagationPolicy"),
                why,
            ));
        }
        let dry_run = read_dry_run(raw.get("dryRun"), &mut causes);
        if !causes.is_empty() {
            return Err(ApiError::invalid(
                "meta.k8s.io",
                "DeleteOptions",
                "",
                causes,
            ));
        }
        let precondition = |field: &str| {
            raw.pointer("/preconditions")
                .and_then(|p| p.get(field)?.as_str())
                .map(str::to_owned)
        };
        Ok(DeleteOptions {
            grace: raw.get("gracePeriodSeconds").and_then(Value::as_i64),
            propagation,
            uid: precondition("uid"),
            resource_version: precondition("resourceVersion"),
            cascades_explicitly: orphan == Some(false),
            dry_run,
            raw: with_type(raw),
        })
    }
}

/// Drops an option before validation and admission, as upstream does without the gate
/// `AllowUnsafeMalformedObjectDeletion`.
fn drop_unsafe_option(raw: &mut Value) {
    if let Some(options) = raw.as_object_mut() {
        options.remove("ignoreStoreReadErrorWithClusterBreakingPotential");
    }
}

fn with_type(mut raw: Value) -> Value {
    if raw.is_null() {
        raw = json!({});
    }
    if let Some(map) = raw.as_object_mut() {
        map.insert("kind".into(), "DeleteOptions".into());
        map.insert("apiVersion".into(), "meta.k8s.io/v1".into());
    }
    raw
}

fn read_dry_run(value: Option<&Value>, causes: &mut Vec<Cause>) -> bool {
    let all: Vec<&str> = value
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    causes.extend(
        all.iter()
            .filter(|v| **v != "All")
            .map(|v| unsupported_cause("dryRun", v, &["All"])),
    );
    all.contains(&"All")
}

fn unsupported_cause(field: &str, value: &str, known: &[&str]) -> Cause {
    let known: Vec<String> = known.iter().map(|k| format!("{k:?}")).collect();
    Cause {
        reason: "FieldValueNotSupported".into(),
        message: format!(
            "Unsupported value: {value:?}: supported values: {}",
            known.join(", ")
        ),
        field: field.into(),
    }
}

fn invalid_cause(field: &str, value: Option<&Value>, why: &str) -> Cause {
    let value = value.cloned().unwrap_or_default();
    Cause {
        reason: "FieldValueInvalid".into(),
        message: format!("Invalid value: {value}: {why}"),
        field: field.into(),
    }
}
