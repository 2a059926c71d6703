//! Types that rules see: what a schema declares for the checker, the cost estimate and the
//! evaluator of CEL.

use crate::format::StringFormat;
use crate::model::{Additional, ListKind, MapKind, Schema, ValueType};
use api_cel::cost::Range;
use api_cel::escaping::escape;
use api_cel::schema::{JsonForm, JsonSchema};
use api_cel::{SizeEstimates, Type, TypeProvider};
use std::collections::HashMap;
use std::sync::Arc;

/// Size limit of a request in bytes, from which sizes without a limit are estimated.
pub(crate) const MAX_REQUEST_SIZE: u64 = 3 * 1024 * 1024;
/// Longest and shortest JSON forms, in bytes.
const MIN_STRING: u64 = 2;
const MIN_DURATION: u64 = 3;
const MAX_DURATION: u64 = 32;
const DATE: u64 = 12;
const MIN_TIME: u64 = 21;
const MAX_TIME: u64 = 32;

/// The type of a schema node.
#[derive(Debug)]
pub(crate) struct Declared {
    /// Name of an object type; unique among the types of a schema.
    name: String,
    form: JsonForm,
    /// Type for the checker.
    pub(crate) value_type: Type,
    /// Greatest number of elements, entries or characters.
    max_elements: u64,
    /// Least number of bytes of a value in JSON.
    min_size: u64,
    /// Type of elements or of the values of a map.
    pub(crate) inner: Option<Arc<Declared>>,
    fields: Vec<Field>,
    list_keys: Vec<String>,
}

#[derive(Debug)]
struct Field {
    name: Arc<str>,
    escaped: Option<String>,
    declared: Arc<Declared>,
}

impl Declared {
    fn simple(form: JsonForm, value_type: Type, min_size: u64, max_elements: u64) -> Self {
        Self {
            name: String::new(),
            form,
            value_type,
            max_elements,
            min_size,
            inner: None,
            fields: Vec::new(),
            list_keys: Vec::new(),
        }
    }

    /// Returns the type of a field, by its name in JSON.
    pub(crate) fn field(&self, name: &str) -> Option<&Arc<Declared>> {
        let at = self
            .fields
            .binary_search_by(|field| (*field.name).cmp(name))
            .ok()?;
        self.fields.get(at).map(|field| &field.declared)
    }

    /// Returns the type of a field, by the identifier that rules use.
    fn escaped_field(&self, name: &str) -> Option<&Arc<Declared>> {
        let mut fields = self.fields.iter();
        let field = fields.find(|field| field.escaped.as_deref() == Some(name))?;
        Some(&field.declared)
    }

    /// Returns how often values of this type fit into a request at most.
    pub(crate) fn max_cardinality(&self) -> u64 {
        MAX_REQUEST_SIZE / (self.min_size + 1)
    }
}

impl JsonSchema for Declared {
    fn form(&self) -> JsonForm {
        self.form
    }

    fn type_name(&self) -> &str {
        &self.name
    }

    fn property(&self, name: &str) -> Option<&dyn JsonSchema> {
        self.field(name).map(|field| &**field as &dyn JsonSchema)
    }

    fn items(&self) -> Option<&dyn JsonSchema> {
        self.inner.as_deref().map(|inner| inner as &dyn JsonSchema)
    }

    fn values(&self) -> Option<&dyn JsonSchema> {
        self.items()
    }

    fn list_keys(&self) -> &[String] {
        &self.list_keys
    }
}

/// Declares the types of a schema. Equal nodes have one type.
#[derive(Default)]
pub(crate) struct Declarer {
    // Nodes by address, which stay allocated as long as the schema that is declared.
    known: HashMap<(*const Schema, bool), Option<Arc<Declared>>>,
    names: usize,
}

impl Declarer {
    /// Returns the type of a node; none if rules can't see it. `is_root`: the root of a resource,
    /// whose type and name are always visible.
    pub(crate) fn declare(&mut self, schema: &Schema, is_root: bool) -> Option<Arc<Declared>> {
        let key = (std::ptr::from_ref(schema), is_root);
        if let Some(known) = self.known.get(&key) {
            return known.clone();
        }
        let declared = self.build(schema, is_root).map(Arc::new);
        self.known.insert(key, declared.clone());
        declared
    }

    fn build(&mut self, schema: &Schema, is_root: bool) -> Option<Declared> {
        if schema.int_or_string {
            let longest = schema
                .max_length()
                // The limit counts characters, each of up to 4 bytes.
                .map_or(MAX_REQUEST_SIZE - 2, |limit| limit.saturating_mul(4));
            return Some(Declared::simple(JsonForm::Dynamic, Type::Dyn, 1, longest));
        }
        match schema.value_type? {
            ValueType::Array => self.build_list(schema),
            ValueType::Object => match &schema.additional {
                // A resource root never is a map: it has the fields of its type.
                Some(Additional::Schema(values)) => self.build_map(schema, values),
                _ => Some(self.build_object(schema, is_root)),
            },
            ValueType::String => Some(build_string(schema)),
            ValueType::Boolean => Some(Declared::simple(JsonForm::Dynamic, Type::Bool, 4, 0)),
            ValueType::Integer => Some(Declared::simple(JsonForm::Int, Type::Int, 1, 0)),
            ValueType::Number => Some(Declared::simple(JsonForm::Double, Type::Double, 1, 0)),
            ValueType::Unknown => None,
        }
    }

    fn build_list(&mut self, schema: &Schema) -> Option<Declared> {
        let items = schema.items.as_deref()?;
        let inner = self.declare(items, items.embedded)?;
        let form = match schema.list_type {
            Some(ListKind::Set) => JsonForm::Set,
            Some(ListKind::Map) => JsonForm::MapList,
            _ => JsonForm::List,
        };
        let estimated = (MAX_REQUEST_SIZE - 2) / (inner.min_size + 1);
        let limit = schema.checks.as_ref().and_then(|checks| checks.max_items);
        let mut list = Declared::simple(
            form,
            Type::list(inner.value_type.clone()),
            2,
            limit.map_or(estimated, clamp_limit),
        );
        list.list_keys = schema.map_keys().iter().map(ToString::to_string).collect();
        list.inner = Some(inner);
        Some(list)
    }

    fn build_map(&mut self, schema: &Schema, values: &Schema) -> Option<Declared> {
        let inner = self.declare(values, values.embedded)?;
        let estimated = (MAX_REQUEST_SIZE - 2) / (inner.min_size + 6);
        let checks = schema.checks.as_ref();
        let limit = checks.and_then(|checks| checks.max_properties);
        let mut map = Declared::simple(
            JsonForm::Map,
            Type::map(Type::String, inner.value_type.clone()),
            2,
            limit.map_or(estimated, clamp_limit),
        );
        map.inner = Some(inner);
        Some(map)
    }

    fn build_object(&mut self, schema: &Schema, is_root: bool) -> Declared {
        let name = self.next_name();
        let mut object = Declared::simple(JsonForm::Object, Type::object(&name), 2, 0);
        object.name = name;
        let required = schema.checks.as_ref().map(|checks| &checks.required);
        for property in &schema.properties {
            if is_root && ROOT_FIELDS.contains(&&*property.name) {
                continue;
            }
            let Some(declared) = self.declare(&property.schema, property.schema.embedded) else {
                continue;
            };
            let is_required = required.is_some_and(|all| all.contains(&property.name));
            if is_required && property.schema.default.is_none() {
                object.min_size += property.name.len() as u64 + declared.min_size + 4;
            }
            object.fields.push(Field::new(&property.name, declared));
        }
        if is_root {
            let name = self.next_name();
            add_root_fields(schema, &mut object, name);
        }
        object.fields.sort_by(|a, b| a.name.cmp(&b.name));
        object
    }

    fn next_name(&mut self) -> String {
        self.names += 1;
        format!("selfType{}", self.names)
    }
}

/// Fields that each resource has.
const ROOT_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];

fn add_root_fields(schema: &Schema, object: &mut Declared, metadata_name: String) {
    let text = || {
        let longest = MAX_REQUEST_SIZE - 2;
        let text = Declared::simple(JsonForm::String, Type::String, MIN_STRING, longest);
        Arc::new(text)
    };
    let value_type = Type::object(&metadata_name);
    let mut metadata = Declared::simple(JsonForm::Object, value_type, 2, 0);
    metadata.name = metadata_name;
    for field in ["generateName", "name"] {
        metadata.fields.push(Field::new(&field.into(), text()));
    }
    let metadata = Arc::new(metadata);
    let required = schema.checks.as_ref().map(|checks| &checks.required);
    for (field, declared) in ROOT_FIELDS.into_iter().zip([text(), text(), metadata]) {
        if required.is_some_and(|all| all.iter().any(|name| &**name == field)) {
            object.min_size += field.len() as u64 + declared.min_size + 4;
        }
        object.fields.push(Field::new(&field.into(), declared));
    }
}

impl Field {
    fn new(name: &Arc<str>, declared: Arc<Declared>) -> Self {
        Self {
            name: name.clone(),
            escaped: escape(name).map(std::borrow::Cow::into_owned),
            declared,
        }
    }
}

impl Schema {
    fn max_length(&self) -> Option<u64> {
        self.checks.as_ref()?.max_length.map(clamp_limit)
    }
}

fn clamp_limit(limit: i64) -> u64 {
    u64::try_from(limit).unwrap_or(0)
}

fn build_string(schema: &Schema) -> Declared {
    let checks = schema.checks.as_deref();
    let format = checks.and_then(|checks| checks.string_format);
    let longest = MAX_REQUEST_SIZE - 2;
    match format {
        Some(StringFormat::Byte) => {
            let longest = schema.max_length().unwrap_or(longest);
            Declared::simple(JsonForm::Bytes, Type::Bytes, MIN_STRING, longest)
        }
        Some(StringFormat::Duration) => Declared::simple(
            JsonForm::Duration,
            Type::Duration,
            MIN_DURATION,
            MAX_DURATION,
        ),
        Some(StringFormat::Date) => Declared::simple(JsonForm::Date, Type::Timestamp, DATE, DATE),
        Some(StringFormat::DateTime) => {
            Declared::simple(JsonForm::DateTime, Type::Timestamp, MIN_TIME, MAX_TIME)
        }
        _ => {
            let values = checks
                .map(|checks| &*checks.enumeration)
                .unwrap_or_default();
            let longest = match schema.max_length() {
                // The limit counts characters, each of up to 4 bytes.
                Some(limit) => limit.saturating_mul(4),
                None if values.is_empty() => longest,
                None => {
                    let lengths = values.iter().filter_map(|value| value.as_str());
                    lengths.map(str::len).max().unwrap_or(0) as u64
                }
            };
            Declared::simple(JsonForm::String, Type::String, MIN_STRING, longest)
        }
    }
}

/// Returns whether the fields of an object can be compared with those before an update.
pub(crate) fn is_correlatable(schema: &Schema) -> bool {
    !matches!(schema.map_type, Some(MapKind::Unknown))
}

/// The object types below a node, by name.
pub(crate) struct DeclaredTypes {
    by_name: HashMap<String, Arc<Declared>>,
}

impl DeclaredTypes {
    /// Collects the object types below a node.
    pub(crate) fn new(root: &Arc<Declared>) -> Self {
        let mut by_name = HashMap::new();
        let mut pending = vec![root.clone()];
        while let Some(declared) = pending.pop() {
            if declared.form == JsonForm::Object
                && by_name
                    .insert(declared.name.clone(), declared.clone())
                    .is_some()
            {
                continue;
            }
            pending.extend(declared.fields.iter().map(|field| field.declared.clone()));
            pending.extend(declared.inner.clone());
        }
        Self { by_name }
    }
}

impl TypeProvider for DeclaredTypes {
    fn find_field(&self, type_name: &str, field: &str) -> Option<Type> {
        let declared = self.by_name.get(type_name)?.escaped_field(field)?;
        Some(declared.value_type.clone())
    }

    fn has_type(&self, type_name: &str) -> bool {
        self.by_name.contains_key(type_name)
    }
}

/// The sizes that a type bounds, for paths that begin at a variable of that type.
pub(crate) struct DeclaredSizes<'d>(pub(crate) &'d Arc<Declared>);

impl SizeEstimates for DeclaredSizes<'_> {
    fn estimate_size(&self, path: &[String], _: &Type) -> Option<Range> {
        let (_, steps) = path.split_first()?;
        let mut at = self.0;
        for step in steps {
            at = match step.as_str() {
                "@items" | "@values" => at.inner.as_ref()?,
                // Upstream's type of keys has no size.
                "@keys" => return (at.form == JsonForm::Map).then_some(Range::ZERO),
                field => at.escaped_field(field)?,
            };
        }
        Some(Range::new(0, at.max_elements))
    }
}
