//! ResourceClaims with administrative access: checks that validation can't do, because it does not
//! see the namespace.

use crate::registry::Registry;
use crate::strategy::as_rule_version;
use crate::write::Write;
use api_validation::{ADMIN_ACCESS_LABEL, FieldError, validate_admin_access};
use serde_json::Value;

impl Registry {
    /// Returns the errors of the administrative access that an object requests. An error that the
    /// old object already had is ignored, so that other changes stay possible if the namespace lost
    /// its label.
    pub(crate) fn check_admin_access(
        &self,
        write: &Write,
        new: &Value,
        old: Option<&Value>,
    ) -> Vec<FieldError> {
        if !write.subresource.is_empty() {
            return Vec::new();
        }
        let find_errors =
            |object: &Value| validate_admin_access(write.kind(), &as_rule_version(write, object));
        let errors = find_errors(new);
        let known = old.is_some_and(|old| find_errors(old) == errors);
        if errors.is_empty() || known || self.grants_admin_access(&write.namespace) {
            return Vec::new();
        }
        errors
    }

    fn grants_admin_access(&self, namespace: &str) -> bool {
        let found = self
            .caches
            .find_cache("", "namespaces")
            .and_then(|cache| cache.get(&cache.kind().object_key("", namespace)));
        found.is_some_and(|namespace| namespace.label(ADMIN_ACCESS_LABEL) == Some("true"))
    }
}
