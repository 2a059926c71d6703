//! Types that describe a message.
//!
//! Everything is loaded once and never freed, so names and nested parts are `'static`.

use crate::names::NameTable;
use std::collections::HashMap;

/// Position of a message in its [`Schema`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MessageId(pub(crate) u16);

/// All messages, by position and by name.
#[derive(Debug)]
pub struct Schema {
    pub(crate) messages: Vec<Message>,
    pub(crate) by_name: HashMap<&'static str, MessageId>,
}

impl Schema {
    /// Returns the message with that proto name, for instance `k8s.io.api.core.v1.Pod`.
    pub fn message(&'static self, name: &str) -> Option<&'static Message> {
        self.by_name.get(name).map(|id| self.get(*id))
    }

    /// Returns the message with an ID of this schema.
    pub fn get(&'static self, id: MessageId) -> &'static Message {
        // Identifiers are only made by the loader, which numbers the messages of this vector.
        &self.messages[usize::from(id.0)]
    }

    /// Returns all messages, sorted by name.
    pub fn messages(&'static self) -> &'static [Message] {
        &self.messages
    }
}

/// One API type.
#[derive(Debug)]
pub struct Message {
    /// Name in the proto files: `k8s.io.api.core.v1.Pod`.
    pub name: &'static str,
    /// Form of its value in JSON and protobuf.
    pub shape: Shape,
    /// True if server-side apply replaces objects of this type as a whole. Fields of this type can
    /// override it.
    pub atomic: bool,
    /// Members in the order of the Go struct, which is the order in JSON. Inline members are
    /// separate fields.
    pub fields: Vec<Field>,
    /// Positions in `fields` in the order of protobuf numbers, without fields that have none.
    pub(crate) by_number: Vec<u16>,
    /// Positions in `fields` of those that are never omitted from JSON, and of inline fields.
    pub(crate) permanent: Vec<u16>,
    /// Positions in `fields` by protobuf number, up to the largest that is searched this way.
    pub(crate) positions: Vec<Option<u16>>,
    /// Fields by JSON name, including members of inline fields, sorted by name.
    pub(crate) by_json: Vec<(&'static str, MessageId, u16)>,
    /// Positions in `by_json`.
    pub(crate) names: NameTable,
}

impl Message {
    /// Returns the fields with a protobuf number, in ascending order.
    pub fn fields_by_number(&'static self) -> impl DoubleEndedIterator<Item = &'static Field> {
        self.positions_by_number().map(|(_, field)| field)
    }

    /// Returns the fields with a protobuf number, in ascending order, with their positions in
    /// `fields`.
    pub fn positions_by_number(
        &'static self,
    ) -> impl DoubleEndedIterator<Item = (usize, &'static Field)> {
        let positions = self.by_number.iter().map(|at| usize::from(*at));
        positions.filter_map(|at| Some((at, self.fields.get(at)?)))
    }

    /// Returns the fields that are never omitted from JSON, and inline fields, which may have such
    /// members.
    pub fn permanent_fields(&'static self) -> impl Iterator<Item = &'static Field> {
        let positions = self.permanent.iter();
        positions.filter_map(|at| self.fields.get(usize::from(*at)))
    }

    /// Returns the field with a protobuf number.
    pub fn field_by_number(&'static self, number: u32) -> Option<&'static Field> {
        // Types such as ObjectReference have a `kind` that is a field with a protobuf number. The
        // kind of an object is only in the envelope there.
        let at = match self.positions.get(number as usize) {
            Some(position) => (*position)?,
            None => self.search_number(number)?,
        };
        self.fields.get(usize::from(at))
    }

    fn search_number(&'static self, number: u32) -> Option<u16> {
        let number_at = |at: &u16| self.fields.get(usize::from(*at)).map_or(0, |f| f.number);
        let at = self.by_number.binary_search_by_key(&number, number_at);
        self.by_number.get(at.ok()?).copied()
    }

    /// Returns the names of the members in JSON, those of inline fields included.
    pub fn json_names(&'static self) -> impl Iterator<Item = &'static str> {
        self.by_json.iter().map(|(name, _, _)| *name)
    }

    /// Returns whether objects of this type have `kind` and `apiVersion`.
    pub fn has_type_meta(&'static self) -> bool {
        self.fields
            .first()
            .is_some_and(|field| field.json == "kind" && field.number == 0)
    }

    /// Returns the Kubernetes name after the last dot: `Pod`.
    pub fn short_name(&self) -> &'static str {
        self.name.rsplit('.').next().unwrap_or(self.name)
    }
}

/// Form of a message outside protobuf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A JSON object with the message's fields.
    Struct,
    /// `metav1.Time`: RFC 3339 with seconds.
    Time,
    /// `metav1.MicroTime`: RFC 3339 with microseconds.
    MicroTime,
    /// `metav1.Duration`: text in Go's form of durations.
    Duration,
    /// `resource.Quantity`.
    Quantity,
    /// `intstr.IntOrString`.
    IntOrString,
    /// `runtime.RawExtension`: any object.
    RawExtension,
    /// `metav1.FieldsV1`: any object.
    FieldsV1,
    /// `apiextensions.JSON`: any value.
    Json,
    /// A named slice that is a message with `items` in protobuf (`ExtraValue`, `Verbs`).
    Items,
    /// `apiextensions.JSONSchemaPropsOrBool`.
    SchemaOrBool,
    /// `apiextensions.JSONSchemaPropsOrArray`.
    SchemaOrArray,
    /// `apiextensions.JSONSchemaPropsOrStringArray`.
    SchemaOrStringArray,
}

/// One member of a message.
#[derive(Debug)]
pub struct Field {
    /// Name in JSON; empty for an inline field.
    pub json: &'static str,
    /// Number in protobuf; 0 if the field does not exist there.
    pub number: u32,
    /// Type of the value.
    pub ty: Type,
    /// True if the Go field is a pointer, so that absent and zero differ.
    pub pointer: bool,
    /// True if the members of this message are inlined into the object in JSON.
    pub inline: bool,
    /// Condition under which the field is omitted from JSON.
    pub omit: Omit,
    /// True if OpenAPI lists the field as required.
    pub required: bool,
    /// Merge semantics of lists, maps and structs in server-side apply.
    pub list: ListKind,
    /// Strategic merge: lists and maps are merged, not replaced.
    pub patch_merge: bool,
    /// Strategic merge: the value is replaced, not merged.
    pub patch_replace: bool,
    /// Strategic merge: only the keys of the patch are kept.
    pub patch_retain_keys: bool,
    /// Strategic merge: the member that identifies an element; empty for lists of primitives.
    pub patch_key: &'static str,
    /// Documented default as JSON text; empty if there is none.
    pub default: &'static str,
    /// The enumeration, if the type is one.
    pub values: Option<&'static Enum>,
}

/// An enumeration.
#[derive(Debug)]
pub struct Enum {
    /// Name in the data: `core.v1.Protocol`.
    pub name: &'static str,
    /// The values, in the order of the data.
    pub values: Vec<&'static str>,
}

/// Type of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Type {
    /// true or false
    Bool,
    /// 32-bit integer
    Int32,
    /// 64-bit integer
    Int64,
    /// 32-bit unsigned integer
    Uint32,
    /// 64-bit unsigned integer
    Uint64,
    /// 64-bit floating point
    Double,
    /// Text
    String,
    /// Bytes, base64 in JSON
    Bytes,
    /// Another message
    Message(MessageId),
    /// List of a type
    List(Box<Type>),
    /// Map from text to a type
    Map(Box<Type>),
}

impl Type {
    /// Returns the type of the elements of a list or map.
    pub fn element(&self) -> Option<&Type> {
        match self {
            Type::List(inner) | Type::Map(inner) => Some(inner),
            _ => None,
        }
    }
}

/// Condition under which Go omits a field from JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Omit {
    /// Never: zero values are written.
    Never,
    /// When empty: false, 0, "", nil pointer, empty list or map.
    Empty,
    /// When zero (`omitzero`); a struct with only zero members, too.
    Zero,
}

/// Merge semantics for server-side apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListKind {
    /// Unspecified: lists are atomic, maps and structs are granular.
    Default,
    /// Replaced as a whole.
    Atomic,
    /// The elements are a set of values.
    Set,
    /// Elements are identified by these members.
    Map(&'static [&'static str]),
    /// Members are merged.
    Granular,
}
