//! The status of a definition.

use crate::approval::approval_condition;
use crate::definition::{find_condition, is_true};
use crate::names::AcceptedNames;
use crate::resources::BuildError;
use crate::structure::KIND as NON_STRUCTURAL;
use api_meta::tree::{get, make, set, text};
use api_strategy::definition::{Condition, remove_condition, set_condition};
use serde_json::{Value, json};

/// Type of the condition of definitions whose resources can't be built. A type of its own:
/// `Established` must stay true while clients use what an earlier spec defined.
const SERVING_FAILED: &str = "ServingFailed";

/// Returns the next status of a definition; `None` if nothing changes. `names` is the decision
/// about its names, unless it has them all, `structure` the condition of its schemas, and `failure`
/// the reason why its resources can't be built. `installed` means that this server serves its
/// resources.
pub fn find_next_status(
    definition: &Value,
    names: Option<&AcceptedNames>,
    structure: Option<&Condition>,
    failure: Option<&BuildError>,
    installed: bool,
) -> Option<Value> {
    let before = get(definition, "status");
    // Without the spec: a copy of its schemas takes longer than all decisions.
    let mut new = json!({"status": before});
    if let Some(names) = names {
        apply_names(&mut new, names);
    }
    // In a write of its own, so that other servers install the resources before clients rely on
    // them.
    if installed && is_true(definition, "NamesAccepted") && !is_true(definition, "Established") {
        set_changed(&mut new, &established_condition(definition));
    }
    match structure {
        Some(condition) => set_changed(&mut new, condition),
        None => remove_condition(&mut new, NON_STRUCTURAL),
    }
    match failure {
        Some(error) => set_changed(&mut new, &build_failure_condition(error)),
        None => remove_condition(&mut new, SERVING_FAILED),
    }
    if let Some(condition) = approval_condition(definition) {
        set_changed(&mut new, &condition);
    }
    let status = new.get_mut("status").map(Value::take)?;
    (status != *before).then_some(status)
}

/// Returns the condition of a definition whose resources can't be built. Upstream has none:
/// requests for the resource fail there. The text depends on the definition only, because several
/// servers write it, and some of them may still serve an earlier one.
fn build_failure_condition(error: &BuildError) -> Condition {
    let message = format!(
        "the resource is not served, or only as an earlier spec defined it, until the spec is corrected: {error}"
    );
    Condition::new(SERVING_FAILED, "True", "InvalidDefinition", message)
}

fn apply_names(definition: &mut Value, names: &AcceptedNames) {
    let accepted = names.condition.status == "True";
    if let Some(status) = make(definition, "status") {
        set(status, "acceptedNames", names.names.clone());
    }
    set_changed(definition, &names.condition);
    // As upstream, a definition stays established under the names that it has, even if it requests
    // one that is in use.
    if is_true(definition, "Established") {
        return;
    }
    let known = find_condition(definition, "Established").is_some();
    if accepted {
        let message = "the initial names have been accepted";
        set_changed(definition, &established("False", "Installing", message));
    } else if !known {
        // As upstream, an earlier reason stays, such as an invalid CA bundle.
        let message = "not all names are accepted";
        set_changed(definition, &established("False", "NotAccepted", message));
    }
}

fn established_condition(definition: &Value) -> Condition {
    let conversion = get(get(definition, "spec"), "conversion");
    if api_validation::has_valid_conversion_bundle(conversion) {
        let message = "the initial names have been accepted";
        established("True", "InitialNamesAccepted", message)
    } else {
        let message = "The conversion webhook CABundle is invalid";
        // As upstream's establishing controller: such a webhook could not convert any object.
        established("False", "InvalidCABundle", message)
    }
}

fn established(status: &'static str, reason: &'static str, message: &str) -> Condition {
    Condition::new("Established", status, reason, message)
}

/// Sets a condition if it differs in more than its time.
fn set_changed(definition: &mut Value, condition: &Condition) {
    let same = find_condition(definition, condition.kind).is_some_and(|old| {
        text(old, "status") == condition.status
            && text(old, "reason") == condition.reason
            && text(old, "message") == condition.message
    });
    if !same {
        set_condition(definition, condition);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::names::{TakenNames, accept_names};
    use crate::structure::structure_condition;

    fn fresh() -> Value {
        json!({"spec": {"group": "example.com",
                "names": {"plural": "foos", "singular": "foo", "kind": "Foo", "listKind": "FooList"},
                "versions": [{"name": "v1", "schema": {"openAPIV3Schema": {"type": "object"}}}]},
            "status": {"acceptedNames": {"plural": "", "kind": ""}, "storedVersions": ["v1"]}})
    }

    /// Returns the definition with its next status.
    fn update_conditions(
        definition: &Value,
        names: Option<&AcceptedNames>,
        installed: bool,
    ) -> Option<Value> {
        let structure = structure_condition(definition, &[]);
        let status = find_next_status(definition, names, structure.as_ref(), None, installed)?;
        let mut new = definition.clone();
        new["status"] = status;
        Some(new)
    }

    fn next(definition: &Value, kind: &str, installed: bool) -> Option<Value> {
        let other = json!({"kind": kind});
        let mut taken = TakenNames::default();
        taken.add_names(&other);
        let names = accept_names(definition, &taken);
        update_conditions(definition, Some(&names), installed)
    }

    fn conditions(definition: &Value) -> Vec<(&str, &str, &str)> {
        definition["status"]["conditions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|c| (text(c, "type"), text(c, "status"), text(c, "reason")))
            .collect()
    }

    #[test]
    fn names_are_accepted_before_the_definition_is_established() {
        let first = next(&fresh(), "Other", false).unwrap();
        assert_eq!(
            conditions(&first),
            [
                ("NamesAccepted", "True", "NoConflicts"),
                ("Established", "False", "Installing")
            ]
        );
        assert_eq!(update_conditions(&first, None, false), None);
        let second = update_conditions(&first, None, true).unwrap();
        assert_eq!(
            conditions(&second)[1],
            ("Established", "True", "InitialNamesAccepted")
        );
        assert_eq!(update_conditions(&second, None, true), None);
    }

    #[test]
    fn conflict_keeps_a_definition_from_being_established() {
        let first = next(&fresh(), "Foo", false).unwrap();
        let expect = [
            ("NamesAccepted", "False", "KindConflict"),
            ("Established", "False", "NotAccepted"),
        ];
        assert_eq!(conditions(&first), expect);
        assert_eq!(next(&first, "Foo", true), None);
        let free = next(&first, "Other", false).unwrap();
        assert_eq!(conditions(&free)[1], ("Established", "False", "Installing"));
    }

    #[test]
    fn established_definition_stays_so_when_new_names_conflict() {
        let first = next(&fresh(), "Other", false).unwrap();
        let mut serving = update_conditions(&first, None, true).unwrap();
        serving["spec"]["names"]["kind"] = json!("Bar");
        let changed = next(&serving, "Bar", true).unwrap();
        let expect = [
            ("NamesAccepted", "False", "KindConflict"),
            ("Established", "True", "InitialNamesAccepted"),
        ];
        assert_eq!(conditions(&changed), expect);
        assert_eq!(changed["status"]["acceptedNames"]["kind"], "Foo");
    }

    #[test]
    fn broken_bundle_keeps_a_definition_from_being_established() {
        let mut first = next(&fresh(), "Other", false).unwrap();
        first["spec"]["conversion"] = json!({"strategy": "Webhook",
            "webhook": {"clientConfig": {"url": "https://a.example.com", "caBundle": "Zm9v"}}});
        let second = update_conditions(&first, None, true).unwrap();
        assert_eq!(
            conditions(&second)[1],
            ("Established", "False", "InvalidCABundle")
        );
        assert_eq!(update_conditions(&second, None, true), None);
    }

    #[test]
    fn failure_to_build_is_a_condition_until_the_build_succeeds() {
        let first = next(&fresh(), "Other", false).unwrap();
        let failure = BuildError::NoStorage;
        let mut failed = first.clone();
        failed["status"] = find_next_status(&first, None, None, Some(&failure), false).unwrap();
        let expect = [
            ("NamesAccepted", "True", "NoConflicts"),
            ("Established", "False", "Installing"),
            ("ServingFailed", "True", "InvalidDefinition"),
        ];
        assert_eq!(conditions(&failed), expect);
        let again = find_next_status(&failed, None, None, Some(&failure), false);
        assert_eq!(again, None, "the text is the same");
        let repaired = update_conditions(&failed, None, true).unwrap();
        let expect = ("Established", "True", "InitialNamesAccepted");
        assert_eq!(conditions(&repaired)[1..], [expect]);
    }

    #[test]
    fn schema_that_became_structural_loses_its_condition() {
        let mut old = fresh();
        old["spec"]["preserveUnknownFields"] = json!(true);
        let marked = update_conditions(&old, None, false).unwrap();
        assert_eq!(
            conditions(&marked),
            [("NonStructuralSchema", "True", "Violations")]
        );
        let mut changed = marked;
        changed["spec"]["preserveUnknownFields"] = json!(false);
        let cleared = update_conditions(&changed, None, false).unwrap();
        assert!(conditions(&cleared).is_empty());
    }
}
