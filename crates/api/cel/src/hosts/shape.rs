//! Object types that Kubernetes declares for variables: types for the checker, and schemas by which
//! the evaluator reads JSON.

use std::collections::HashMap;
use std::sync::Arc;

use crate::environment::TypeProvider;
use crate::escaping::unescape;
use crate::schema::{JsonForm, JsonSchema};
use crate::types::Type;

/// Name of the type that a JSON value has without any form.
const BOOL: &str = "bool";
const QUANTITY: &str = "kubernetes.Quantity";

/// A type of JSON values.
#[derive(Debug, Clone)]
pub struct Shape {
    form: JsonForm,
    name: &'static str,
    fields: Vec<(&'static str, Arc<Shape>)>,
    inner: Option<Arc<Shape>>,
    unescapes_keys: bool,
}

impl Shape {
    fn simple(form: JsonForm) -> Arc<Shape> {
        Arc::new(Shape {
            form,
            name: "",
            fields: Vec::new(),
            inner: None,
            unescapes_keys: false,
        })
    }

    /// Creates the type of any value.
    pub fn any() -> Arc<Shape> {
        Shape::simple(JsonForm::Dynamic)
    }

    /// Creates the type of strings.
    pub fn text() -> Arc<Shape> {
        Shape::simple(JsonForm::String)
    }

    /// Creates the type of whole numbers.
    pub fn int() -> Arc<Shape> {
        Shape::simple(JsonForm::Int)
    }

    /// Creates the type of times.
    pub fn time() -> Arc<Shape> {
        Shape::simple(JsonForm::DateTime)
    }

    /// Creates the type of booleans.
    pub fn flag() -> Arc<Shape> {
        Arc::new(Shape {
            form: JsonForm::Dynamic,
            name: BOOL,
            fields: Vec::new(),
            inner: None,
            unescapes_keys: false,
        })
    }

    /// Creates the type of quantities, which are values of their library and no JSON.
    pub fn quantity() -> Arc<Shape> {
        Arc::new(Shape {
            form: JsonForm::Dynamic,
            name: QUANTITY,
            fields: Vec::new(),
            inner: None,
            unescapes_keys: false,
        })
    }

    /// Creates the type of lists.
    pub fn list(inner: Arc<Shape>) -> Arc<Shape> {
        Arc::new(Shape {
            form: JsonForm::List,
            name: "",
            fields: Vec::new(),
            inner: Some(inner),
            unescapes_keys: false,
        })
    }

    /// Creates the type of maps with strings as keys.
    pub fn map(inner: Arc<Shape>) -> Arc<Shape> {
        Arc::new(Shape {
            form: JsonForm::Map,
            name: "",
            fields: Vec::new(),
            inner: Some(inner),
            unescapes_keys: false,
        })
    }

    /// Creates the type of maps whose keys expressions may escape, as the names of fields.
    pub fn escaped_map(inner: Arc<Shape>) -> Arc<Shape> {
        Arc::new(Shape {
            unescapes_keys: true,
            ..Shape::clone(&Shape::map(inner))
        })
    }

    /// Creates an object type.
    pub fn object(
        name: &'static str,
        fields: impl IntoIterator<Item = (&'static str, Arc<Shape>)>,
    ) -> Arc<Shape> {
        let fields = fields.into_iter().collect();
        Arc::new(Shape {
            form: JsonForm::Object,
            name,
            fields,
            inner: None,
            unescapes_keys: false,
        })
    }

    /// Returns the type for the checker.
    pub fn value_type(&self) -> Type {
        let inner = || {
            self.inner
                .as_ref()
                .map_or(Type::Dyn, |inner| inner.value_type())
        };
        match self.form {
            // No JSON form stands for booleans or quantities, so the name distinguishes them from
            // any value.
            JsonForm::Dynamic if self.name == BOOL => Type::Bool,
            JsonForm::Dynamic if self.name == QUANTITY => Type::object(QUANTITY),
            JsonForm::Dynamic => Type::Dyn,
            JsonForm::Int => Type::Int,
            JsonForm::Double => Type::Double,
            JsonForm::String => Type::String,
            JsonForm::Bytes => Type::Bytes,
            JsonForm::Date | JsonForm::DateTime => Type::Timestamp,
            JsonForm::Duration => Type::Duration,
            JsonForm::List | JsonForm::Set | JsonForm::MapList => Type::list(inner()),
            JsonForm::Map => Type::map(Type::String, inner()),
            JsonForm::Object => Type::object(self.name),
        }
    }

    fn find(&self, name: &str) -> Option<&Arc<Shape>> {
        self.fields
            .iter()
            .find(|(field, _)| *field == name)
            .map(|(_, shape)| shape)
    }
}

impl JsonSchema for Shape {
    fn form(&self) -> JsonForm {
        self.form
    }

    fn type_name(&self) -> &str {
        self.name
    }

    fn property(&self, name: &str) -> Option<&dyn JsonSchema> {
        self.find(name).map(|shape| &**shape as &dyn JsonSchema)
    }

    fn items(&self) -> Option<&dyn JsonSchema> {
        self.inner.as_deref().map(|shape| shape as &dyn JsonSchema)
    }

    fn values(&self) -> Option<&dyn JsonSchema> {
        self.items()
    }

    fn unescapes_keys(&self) -> bool {
        self.unescapes_keys
    }
}

/// Resolves the object types of shapes, those of patches, and those of other providers.
#[derive(Default)]
pub struct ShapeTypes {
    shapes: HashMap<&'static str, Arc<Shape>>,
    has_patches: bool,
    others: Vec<Arc<dyn TypeProvider>>,
}

/// Type of an operation of a JSON Patch.
const JSON_PATCH: &str = "JSONPatch";
/// Type of the object of an apply configuration; its fields are `Object.spec` and so on.
const OBJECT: &str = "Object";

fn is_patch_object(name: &str) -> bool {
    name == OBJECT
        || name
            .strip_prefix(OBJECT)
            .is_some_and(|rest| rest.starts_with('.'))
}

impl ShapeTypes {
    /// Creates a provider of the object types that are part of the given shapes.
    pub fn new<'s>(shapes: impl IntoIterator<Item = &'s Arc<Shape>>) -> Self {
        let mut types = ShapeTypes::default();
        for shape in shapes {
            types.add(shape);
        }
        types
    }

    /// Adds the types `JSONPatch` and `Object`, by which expressions create patches.
    #[must_use]
    pub fn with_patches(mut self) -> Self {
        self.has_patches = true;
        self
    }

    /// Adds another provider, as for the type of the variable `variables`.
    #[must_use]
    pub fn with_other(mut self, other: Option<Arc<dyn TypeProvider>>) -> Self {
        self.others.extend(other);
        self
    }

    fn add(&mut self, shape: &Arc<Shape>) {
        if shape.form == JsonForm::Object {
            self.shapes.insert(shape.name, shape.clone());
        }
        // Shapes are constants of this crate, a few levels deep.
        for (_, field) in &shape.fields {
            self.add(field);
        }
        if let Some(inner) = &shape.inner {
            self.add(inner);
        }
    }

    fn find_patch_field(&self, type_name: &str, field: &str) -> Option<Type> {
        match (type_name, field) {
            _ if !self.has_patches => None,
            (JSON_PATCH, "op" | "path" | "from") => Some(Type::String),
            (JSON_PATCH, "value") => Some(Type::Dyn),
            _ if is_patch_object(type_name) => Some(Type::Dyn),
            _ => None,
        }
    }

    fn has_patch_type(&self, name: &str) -> bool {
        self.has_patches && (name == JSON_PATCH || is_patch_object(name))
    }
}

impl TypeProvider for ShapeTypes {
    fn find_field(&self, type_name: &str, field: &str) -> Option<Type> {
        match self.shapes.get(type_name) {
            Some(shape) => shape
                .find(&unescape(field)?)
                .map(|field| field.value_type()),
            None => self.find_patch_field(type_name, field).or_else(|| {
                let mut others = self.others.iter();
                others.find_map(|other| other.find_field(type_name, field))
            }),
        }
    }

    fn has_type(&self, type_name: &str) -> bool {
        self.shapes.contains_key(type_name)
            || self.has_patch_type(type_name)
            || self.others.iter().any(|other| other.has_type(type_name))
    }

    fn find_type(&self, name: &str) -> Option<Type> {
        // Expressions create patches only: all other objects come from the host.
        if self.has_patch_type(name) {
            return Some(Type::object(name));
        }
        self.others.iter().find_map(|other| other.find_type(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_their_escaped_and_their_own_name() {
        let shape = Shape::object("t", [("namespace", Shape::text()), ("a-b", Shape::int())]);
        let types = ShapeTypes::new([&shape]);
        for (field, expected) in [
            ("namespace", Some(Type::String)),
            ("__namespace__", Some(Type::String)),
            ("a__dash__b", Some(Type::Int)),
            ("other", None),
        ] {
            assert_eq!(types.find_field("t", field), expected, "{field}");
        }
    }

    #[test]
    fn types_inside_of_lists_and_maps_are_known() {
        let inner = Shape::object("inner", [("flag", Shape::flag())]);
        let outer = Shape::object("outer", [("all", Shape::map(Shape::list(inner)))]);
        let types = ShapeTypes::new([&outer]);
        assert!(types.has_type("inner"));
        let all = types.find_field("outer", "all");
        let expected = Type::map(Type::String, Type::list(Type::object("inner")));
        assert_eq!(all, Some(expected));
    }

    #[test]
    fn patch_types_exist_only_where_patches_are_made() {
        let with = ShapeTypes::default().with_patches();
        let without = ShapeTypes::default();
        for name in ["JSONPatch", "Object", "Object.spec.containers"] {
            assert!(with.has_type(name), "{name}");
            assert!(!without.has_type(name), "{name}");
        }
        assert!(!with.has_type("Objects"));
        assert_eq!(with.find_field("JSONPatch", "other"), None);
    }
}
