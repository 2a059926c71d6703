//! Sums over the resources of a pod.

use crate::context::{list, text};
use api_meta::Quantity;
use serde_json::Value;
use std::collections::BTreeMap;

/// Amounts by resource name.
pub type Amounts = BTreeMap<String, Quantity>;

/// Parses a quantity from a string or number.
pub fn quantity(value: &Value) -> Option<Quantity> {
    match value {
        Value::String(s) => s.parse().ok(),
        Value::Number(n) => n.to_string().parse().ok(),
        _ => None,
    }
}

/// Parses a resource list.
pub fn amounts(value: Option<&Value>) -> Amounts {
    let entries = value.and_then(Value::as_object).into_iter().flatten();
    entries
        .filter_map(|(k, v)| Some((k.clone(), quantity(v)?)))
        .collect()
}

/// Adds `more` to `sum`.
pub fn add(sum: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        let total = sum.get(name).map_or(*amount, |have| have.plus(*amount));
        sum.insert(name.clone(), total);
    }
}

fn raise(sum: &mut Amounts, other: &Amounts) {
    for (name, amount) in other {
        if sum.get(name).is_none_or(|have| have < amount) {
            sum.insert(name.clone(), *amount);
        }
    }
}

/// Returns the requests or limits of a pod: the sum of containers and sidecars, or the largest init
/// step, plus overhead. `field` is `requests` or `limits`.
pub fn of_pod(pod: &Value, field: &str) -> Amounts {
    let of = |c: &Value| amounts(c.get("resources").and_then(|r| r.get(field)));
    let mut sum = Amounts::new();
    list(pod, "/spec/containers")
        .iter()
        .for_each(|c| add(&mut sum, &of(c)));
    let mut sidecars = Amounts::new();
    let mut start = Amounts::new();
    for container in list(pod, "/spec/initContainers") {
        let mut now = sidecars.clone();
        add(&mut now, &of(container));
        if text(container, "/restartPolicy") == "Always" {
            sidecars = now.clone();
        }
        raise(&mut start, &now);
    }
    add(&mut sum, &sidecars);
    raise(&mut sum, &start);
    let level = amounts(pod.pointer("/spec/resources").and_then(|r| r.get(field)));
    sum.extend(level);
    if field == "requests" {
        add(&mut sum, &amounts(pod.pointer("/spec/overhead")));
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn init_containers_count_by_their_largest_step() {
        let c = |cpu: &str, policy: &str| json!({"resources": {"requests": {"cpu": cpu}}, "restartPolicy": policy});
        let pod = json!({"spec": {"containers": [c("1", ""), c("500m", "")], "initContainers": [c("200m", "Always"), c("3", "")],
            "overhead": {"cpu": "100m"}}});
        assert_eq!(of_pod(&pod, "requests")["cpu"].to_string(), "3300m");
    }
}
