//! Sets the priority and the preemption policy of pods from their priority class.

use crate::context::{Context, forbidden_error, is_for, string_at};
use api_meta::{ApiError, Meta};
use apiserver_request::{Admission, AdmissionRequest, Operation};
use serde_json::Value;

const GROUP: &str = "scheduling.k8s.io";
// Above the highest value of a user's class, one billion, so that no workload preempts the control
// plane.
const SYSTEM: [(&str, i64); 2] = [
    ("system-cluster-critical", 2_000_000_000),
    ("system-node-critical", 2_000_001_000),
];

/// Resolves priority classes.
pub struct Priority(pub Context);

struct Class {
    name: String,
    value: i64,
    policy: String,
}

impl Class {
    fn from_object(object: &Value) -> Class {
        let policy = string_at(object, "/preemptionPolicy");
        Class {
            name: object.name().to_owned(),
            value: object
                .get("value")
                .and_then(Value::as_i64)
                .unwrap_or_default(),
            policy: if policy.is_empty() {
                "PreemptLowerPriority".into()
            } else {
                policy.into()
            },
        }
    }
}

#[async_trait::async_trait]
impl Admission for Priority {
    fn name(&self) -> &'static str {
        "Priority"
    }

    async fn admit(&self, request: &mut AdmissionRequest<'_>) -> Result<(), ApiError> {
        if !is_for(request, "", "pods") {
            return Ok(());
        }
        match request.operation {
            Operation::Create => self.resolve_priority(request).await,
            // A pod keeps the priority of its creation: a changed class applies only to new pods.
            Operation::Update => {
                keep_priority(request);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    async fn validate(&self, request: &AdmissionRequest<'_>) -> Result<(), ApiError> {
        let write = matches!(request.operation, Operation::Create | Operation::Update);
        if !is_for(request, GROUP, "priorityclasses")
            || !write
            // With two defaults, the lower one would silently apply to all pods without a class.
            || request.object.get("globalDefault") != Some(&Value::Bool(true))
        {
            return Ok(());
        }
        let other = self
            .default_classes()
            .into_iter()
            // An update of the default class itself stays possible.
            .find(|c| c.name != request.object.name());
        match other {
            Some(class) => Err(forbidden_error(
                request,
                format!(
                    "PriorityClass {} is already marked as default. Only one default can exist",
                    class.name
                ),
            )),
            None => Ok(()),
        }
    }
}

/// Keeps the computed fields if an update omits them.
fn keep_priority(request: &mut AdmissionRequest<'_>) {
    let Some(old) = &request.old else { return };
    for field in ["priority", "preemptionPolicy"] {
        let before = old["spec"].get(field).cloned();
        // Old clients send pods without fields that they do not know.
        if let (Some(before), true) = (
            before,
            request.object["spec"].get(field).is_none_or(Value::is_null),
        ) {
            request.object["spec"][field] = before;
        }
    }
}

impl Priority {
    fn default_classes(&self) -> Vec<Class> {
        let all = self.0.list_objects(GROUP, "priorityclasses", "");
        all.iter()
            .filter(|c| c.get("globalDefault") == Some(&Value::Bool(true)))
            .map(|c| Class::from_object(c))
            .collect()
    }

    async fn resolve_priority(&self, request: &mut AdmissionRequest<'_>) -> Result<(), ApiError> {
        let name = string_at(&request.object, "/spec/priorityClassName").to_owned();
        let class = if name.is_empty() {
            // A race of two writes can leave several defaults. The lowest one does the least harm.
            let lowest = self.default_classes().into_iter().min_by_key(|c| c.value);
            lowest.unwrap_or(Class {
                name: String::new(),
                value: 0,
                policy: "PreemptLowerPriority".into(),
            })
        } else {
            self.find_class(&name).await?.ok_or_else(|| {
                forbidden_error(
                    request,
                    format!("no PriorityClass with name {name} was found"),
                )
            })?
        };
        apply_class(request, &class)
    }

    async fn find_class(&self, name: &str) -> Result<Option<Class>, ApiError> {
        if let Some(object) = self
            .0
            .find_object(GROUP, "priorityclasses", "", name)
            .await?
        {
            return Ok(Some(Class::from_object(&object)));
        }
        // Pods of the control plane can start before the system classes are created.
        let system = SYSTEM.iter().find(|(n, _)| *n == name);
        Ok(system.map(|(name, value)| Class {
            name: (*name).to_owned(),
            value: *value,
            policy: "PreemptLowerPriority".into(),
        }))
    }
}

fn apply_class(request: &mut AdmissionRequest<'_>, class: &Class) -> Result<(), ApiError> {
    let spec = &request.object["spec"];
    if let Some(given) = spec.get("priority").and_then(Value::as_i64)
        // A pod may repeat the computed value: controllers copy whole specs.
        && given != class.value
    {
        return Err(forbidden_error(
            request,
            format!(
                "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller computed {} from the given PriorityClass name",
                class.value
            ),
        ));
    }
    if let Some(given) = spec.get("preemptionPolicy").and_then(Value::as_str)
        && given != class.policy
    {
        return Err(forbidden_error(
            request,
            format!(
                "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission controller computed {} from the given PriorityClass name",
                class.policy
            ),
        ));
    }
    let spec = &mut request.object["spec"];
    // Without a default class the name stays absent, or it would name a class that does not exist.
    if !class.name.is_empty() {
        spec["priorityClassName"] = class.name.clone().into();
    }
    spec["priority"] = class.value.into();
    spec["preemptionPolicy"] = class.policy.clone().into();
    Ok(())
}
