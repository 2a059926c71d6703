//! Custom resources: upstream's order of checks on create, update and status update.

use super::problems::{add_problems, check_embedded_metadata};
use crate::field::{Errors, FieldError, Path};
use crate::metadata::{NameRule, validate_metadata, validate_metadata_update};
use api_meta::Kind;
use api_meta::tree::{opt, text};
use api_structural::{
    FieldPath, ScalePaths, Schema, validate_embedded, validate_lists, validate_part,
    validate_scale, validate_value,
};
use serde_json::Value;

/// The rules of one version of a custom resource. Rules in CEL run after them, unless
/// [`CustomResourceRules::blocks_rules`].
#[derive(Clone, Copy, Debug)]
pub struct CustomResourceRules<'a> {
    /// Group, version, kind and scope.
    pub kind: Kind<'a>,
    /// The schema of the version.
    pub schema: &'a Schema,
    /// The paths of the subresource `scale`, if the version has it.
    pub scale: Option<&'a ScalePaths>,
}

impl CustomResourceRules<'_> {
    /// Validates a new object.
    pub fn validate_create(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Errors::default();
        // The schema says nothing about an object of another type, so no further error would help
        // the client.
        if !self.validate_type(object, &mut errors) {
            return errors.0;
        }
        // Upstream's order: metadata, schema, scale, embedded objects, lists. Clients compare the
        // first message.
        let path = Path::ROOT.child("metadata");
        validate_metadata(object, self.kind, NameRule::Subdomain, &path, &mut errors);
        add_problems(validate_value(self.schema, object, None), &mut errors);
        self.validate_scale(object, true, &mut errors);
        self.validate_embedded(object, &mut errors);
        add_problems(
            validate_lists(self.schema, object, &FieldPath::ROOT),
            &mut errors,
        );
        errors.0
    }

    /// Validates a changed object. Parts that haven't changed may violate the schema.
    pub fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Errors::default();
        if !self.validate_type(new, &mut errors) {
            return errors.0;
        }
        self.validate_metadata_update(new, old, &mut errors);
        add_problems(validate_value(self.schema, new, Some(old)), &mut errors);
        self.validate_scale(new, true, &mut errors);
        self.validate_embedded(new, &mut errors);
        self.validate_new_duplicates(new, old, &mut errors);
        errors.0
    }

    /// Validates a write to the subresource `status`.
    pub fn validate_status_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Errors::default();
        if !self.validate_type(new, &mut errors) {
            return errors.0;
        }
        self.validate_metadata_update(new, old, &mut errors);
        if let (Some(status), Some(schema)) = (new.get("status"), self.schema.property("status")) {
            // Without an old status there is nothing that could be unchanged.
            let old = opt(old, "status");
            add_problems(validate_part(schema, status, old, "status"), &mut errors);
        }
        // The old `spec` is kept by this request, so the client can't repair its replicas.
        self.validate_scale(new, false, &mut errors);
        self.validate_new_duplicates(new, old, &mut errors);
        errors.0
    }

    /// Returns whether rules in CEL are not evaluated because of these errors.
    pub fn blocks_rules(errors: &[FieldError]) -> bool {
        use crate::field::ErrorKind::{NotSupported, Required, TooLong, TooMany, TypeInvalid};
        // The rules were compiled for the schema's types, and their cost was estimated with its
        // limits on lengths. Values that break either could not be evaluated safely.
        let blocking = [NotSupported, Required, TooLong, TooMany, TypeInvalid];
        errors.iter().any(|error| blocking.contains(&error.kind))
    }

    fn validate_type(&self, object: &Value, errors: &mut Errors) -> bool {
        let version = match self.kind.group {
            "" => self.kind.version.to_owned(),
            group => format!("{group}/{}", self.kind.version),
        };
        for (field, wanted) in [("kind", self.kind.kind), ("apiVersion", &version)] {
            let found = text(object, field);
            if found != wanted {
                let detail = format!("must be {wanted}");
                errors.invalid(&Path::ROOT.child(field), found, detail);
            }
        }
        errors.len() == 0
    }

    fn validate_metadata_update(&self, new: &Value, old: &Value, errors: &mut Errors) {
        let path = Path::ROOT.child("metadata");
        validate_metadata_update(new, old, self.kind, NameRule::Subdomain, &path, errors);
    }

    fn validate_scale(&self, object: &Value, with_spec: bool, errors: &mut Errors) {
        if let Some(scale) = self.scale {
            add_problems(validate_scale(scale, object, with_spec), errors);
        }
    }

    fn validate_embedded(&self, object: &Value, errors: &mut Errors) {
        let path = FieldPath::ROOT;
        let check = &check_embedded_metadata;
        add_problems(
            validate_embedded(self.schema, object, false, check, &path),
            errors,
        );
    }

    /// Reports duplicates in lists unless the old object had some.
    fn validate_new_duplicates(&self, new: &Value, old: &Value, errors: &mut Errors) {
        // The lists of both objects are not matched with each other: one old duplicate exempts all
        // lists, as upstream.
        let found = validate_lists(self.schema, new, &FieldPath::ROOT);
        if !found.is_empty() && validate_lists(self.schema, old, &FieldPath::ROOT).is_empty() {
            add_problems(found, errors);
        }
    }
}

#[cfg(test)]
mod tests;
