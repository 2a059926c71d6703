//! The rules of a definition before its update. They may use all that a stored rule may, so that a
//! definition which an older or newer server has accepted can be changed.

use crate::visit::visit_schemas;
use api_meta::tree::{list, text};
use serde_json::Value;
use std::collections::HashSet;

/// The expressions of the old definition, of all its versions.
#[derive(Debug, Default)]
pub struct OldRules {
    rules: HashSet<String>,
    messages: HashSet<String>,
}

impl OldRules {
    /// Collects the expressions of schemas.
    pub fn collect(schemas: &[&Value]) -> Self {
        let mut old = OldRules::default();
        for schema in schemas {
            visit_schemas(schema, &mut |node| {
                for rule in list(node, "x-kubernetes-validations") {
                    old.rules.insert(text(rule, "rule").to_owned());
                    let message = text(rule, "messageExpression");
                    if !message.is_empty() {
                        old.messages.insert(message.to_owned());
                    }
                }
                false
            });
        }
        old
    }
}

/// The old definition, as far as it exempts the rules of a changed one.
/// The default is that of a new definition.
#[derive(Clone, Copy, Debug, Default)]
pub struct RuleHistory<'a> {
    /// The old rules.
    pub old: Option<&'a OldRules>,
    /// True if the schema of this version is unchanged: the cost of a single rule has no limit
    /// then, because another release may have estimated it lower.
    pub is_unchanged: bool,
}

impl RuleHistory<'_> {
    pub(crate) fn has_rule(&self, rule: &str) -> bool {
        self.old.is_some_and(|old| old.rules.contains(rule))
    }

    pub(crate) fn has_message(&self, message: &str) -> bool {
        self.old.is_some_and(|old| old.messages.contains(message))
    }
}
