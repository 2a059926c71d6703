//! Names of definitions, and their conflicts.

use crate::definition::{accepted_names, names};
use api_meta::tree::{list, set, text, texts};
use api_strategy::definition::Condition;
use serde_json::{Value, json};
use std::collections::HashSet;

/// The names that the definitions of a group have accepted.
#[derive(Clone, Debug, Default)]
pub struct TakenNames<'a> {
    resources: HashSet<&'a str>,
    kinds: HashSet<&'a str>,
}

impl<'a> TakenNames<'a> {
    /// Adds the accepted names of a definition.
    pub fn add_names(&mut self, accepted: &'a Value) {
        let resources = [text(accepted, "plural"), text(accepted, "singular")];
        let resources = resources.into_iter().chain(texts(accepted, "shortNames"));
        self.resources.extend(resources);
        let kinds = [text(accepted, "kind"), text(accepted, "listKind")];
        self.kinds.extend(kinds);
    }
}

/// The names that a definition may use.
#[derive(Clone, Debug)]
pub struct AcceptedNames {
    /// `status.acceptedNames`.
    pub names: Value,
    /// The condition NamesAccepted.
    pub condition: Condition,
}

/// Accepts the requested names that no definition of the group has; for the others, the names that
/// were accepted before remain. `taken` includes the names of the definition itself.
pub fn accept_names(definition: &Value, taken: &TakenNames<'_>) -> AcceptedNames {
    let (requested, before) = (names(definition), accepted_names(definition));
    // Both fields are present even if empty: Go's type has no `omitempty` for them.
    let mut accepted = json!({"plural": text(before, "plural"), "kind": text(before, "kind")});
    for field in ["singular", "listKind"] {
        set_present(&mut accepted, field, text(before, field));
    }
    let mut short = list(before, "shortNames").to_vec();
    // The last conflict is reported, in this order.
    let mut conflict: Option<(&'static str, String)> = None;
    let check = |field: &str, used: &HashSet<&str>| {
        let (wanted, own) = (text(requested, field), text(before, field));
        (wanted != own && used.contains(wanted)).then(|| in_use(wanted))
    };
    for (field, reason) in [
        ("plural", "PluralConflict"),
        ("singular", "SingularConflict"),
    ] {
        match check(field, &taken.resources) {
            Some(problem) => conflict = Some((reason, problem)),
            None => set_present(&mut accepted, field, text(requested, field)),
        }
    }
    match check_short_names(requested, before, taken) {
        // As upstream, all short names are accepted or none.
        Some(problem) => conflict = Some(("ShortNamesConflict", problem)),
        None => short = list(requested, "shortNames").to_vec(),
    }
    for (field, reason) in [("kind", "KindConflict"), ("listKind", "ListKindConflict")] {
        match check(field, &taken.kinds) {
            Some(problem) => conflict = Some((reason, problem)),
            None => set_present(&mut accepted, field, text(requested, field)),
        }
    }
    for (field, values) in [
        ("shortNames", short),
        // Categories are meant to be shared, so that they never conflict.
        ("categories", list(requested, "categories").to_vec()),
    ] {
        if !values.is_empty() {
            set(&mut accepted, field, values);
        }
    }
    let condition = match conflict {
        Some((reason, message)) => Condition::new("NamesAccepted", "False", reason, message),
        None => Condition::new("NamesAccepted", "True", "NoConflicts", "no conflicts found"),
    };
    AcceptedNames {
        names: accepted,
        condition,
    }
}

/// Returns whether the definition has all its names. A missing list is an empty one.
pub(crate) fn has_all_names(definition: &Value) -> bool {
    let (requested, accepted) = (names(definition), accepted_names(definition));
    ["plural", "singular", "kind", "listKind"]
        .iter()
        .all(|field| text(requested, field) == text(accepted, field))
        && ["shortNames", "categories"]
            .iter()
            .all(|field| list(requested, field) == list(accepted, field))
}

fn check_short_names(requested: &Value, before: &Value, taken: &TakenNames<'_>) -> Option<String> {
    let own = texts(before, "shortNames");
    let mut problems: Vec<String> = Vec::new();
    for name in texts(requested, "shortNames") {
        // `taken` includes the names of the definition itself, which are no conflict.
        let problem = in_use(name);
        if !own.contains(&name) && taken.resources.contains(name) && !problems.contains(&problem) {
            problems.push(problem);
        }
    }
    join_problems(problems)
}

/// Joins messages like Go's aggregated errors.
pub(crate) fn join_problems(mut problems: Vec<String>) -> Option<String> {
    match problems.len() {
        0 => None,
        1 => problems.pop(),
        _ => Some(format!("[{}]", problems.join(", "))),
    }
}

fn in_use(name: &str) -> String {
    format!("{name:?} is already in use")
}

fn set_present(names: &mut Value, field: &str, value: &str) {
    if !value.is_empty() {
        set(names, field, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(names: Value, accepted: Value) -> Value {
        json!({"spec": {"group": "example.com", "names": names}, "status": {"acceptedNames": accepted}})
    }

    fn foo() -> Value {
        json!({"plural": "foos", "singular": "foo", "shortNames": ["f"], "kind": "Foo", "listKind": "FooList"})
    }

    fn taken(names: &[Value]) -> TakenNames<'_> {
        let mut taken = TakenNames::default();
        for names in names {
            taken.add_names(names);
        }
        taken
    }

    #[test]
    fn free_names_are_accepted_with_the_categories() {
        let mut names = foo();
        names["categories"] = json!(["all"]);
        let fresh = definition(names.clone(), json!({"plural": "", "kind": ""}));
        let accepted = accept_names(&fresh, &taken(&[json!({"plural": "", "kind": ""})]));
        assert_eq!(accepted.names, names);
        let condition = accepted.condition;
        assert_eq!(
            (condition.status, condition.reason),
            ("True", "NoConflicts")
        );
        assert_eq!(condition.message, "no conflicts found");
    }

    #[test]
    fn each_name_that_another_definition_has_is_a_conflict() {
        // The cases of upstream's naming controller: what the other definition has, the reason.
        for (other, reason, message) in [
            (
                json!({"plural": "foos"}),
                "PluralConflict",
                "\"foos\" is already in use",
            ),
            (
                json!({"singular": "foos"}),
                "PluralConflict",
                "\"foos\" is already in use",
            ),
            (
                json!({"shortNames": ["foo"]}),
                "SingularConflict",
                "\"foo\" is already in use",
            ),
            (
                json!({"plural": "f"}),
                "ShortNamesConflict",
                "\"f\" is already in use",
            ),
            (
                json!({"kind": "Foo"}),
                "KindConflict",
                "\"Foo\" is already in use",
            ),
            (
                json!({"listKind": "Foo"}),
                "KindConflict",
                "\"Foo\" is already in use",
            ),
            (
                json!({"kind": "FooList"}),
                "ListKindConflict",
                "\"FooList\" is already in use",
            ),
            (
                json!({"plural": "foos", "kind": "Foo"}),
                "KindConflict",
                "\"Foo\" is already in use",
            ),
        ] {
            let accepted = accept_names(
                &definition(foo(), Value::Null),
                &taken(std::slice::from_ref(&other)),
            );
            let condition = accepted.condition;
            assert_eq!(
                (condition.status, condition.reason),
                ("False", reason),
                "{other}"
            );
            assert_eq!(condition.message, message, "{other}");
        }
    }

    #[test]
    fn several_short_names_are_reported_together() {
        let mut names = foo();
        names["shortNames"] = json!(["a", "b", "c"]);
        let others = [json!({"shortNames": ["a", "c"]})];
        let others = taken(&others);
        let accepted = accept_names(&definition(names, Value::Null), &others);
        assert_eq!(
            accepted.condition.message,
            "[\"a\" is already in use, \"c\" is already in use]"
        );
        assert_eq!(accepted.names.get("shortNames"), None);
        assert_eq!(accepted.names["plural"], "foos", "the others are accepted");
    }

    #[test]
    fn conflicting_name_keeps_the_one_accepted_before() {
        let mut wanted = foo();
        wanted["singular"] = json!("bar");
        let all = [foo(), json!({"plural": "bars", "singular": "bar"})];
        let all = taken(&all);
        let accepted = accept_names(&definition(wanted, foo()), &all);
        assert_eq!(accepted.condition.reason, "SingularConflict");
        assert_eq!(accepted.names["singular"], "foo");
    }

    #[test]
    fn own_names_do_not_conflict() {
        let mut wanted = foo();
        wanted["shortNames"] = json!(["f", "fo"]);
        let accepted = accept_names(&definition(wanted.clone(), foo()), &taken(&[foo()]));
        assert_eq!(accepted.condition.status, "True");
        assert_eq!(accepted.names, wanted);
    }

    #[test]
    fn empty_lists_are_no_difference() {
        let mut accepted = foo();
        accepted["categories"] = json!([]);
        assert!(has_all_names(&definition(foo(), accepted)));
        assert!(!has_all_names(&definition(
            foo(),
            json!({"plural": "", "kind": ""})
        )));
    }
}
