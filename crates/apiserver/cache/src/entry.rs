//! One object of a cache.

use crate::kept_tree::KeptTree;
use crate::kind::StoredKind;
use crate::object_bytes::ObjectBytes;
use api_kinds::{ObjectSchema, Resource};
use api_meta::ApiError;
use apiserver_convert::{
    Part, StoredError, check_managed_fields, codec, convert_object, decode_message, decode_stored,
    message_to_json, set_resource_version, stored_message, stored_version,
};
use bytes::Bytes;
use serde_json::Value;
use std::sync::{Arc, OnceLock};

/// An object at a revision: the values that selectors need, and its encodings, each created at most
/// once. Of a built-in kind, the protobuf message is what the object is decoded from.
///
/// The JSON tree is kept only for readers that need it again and again: it takes several times the
/// memory of the bytes.
#[derive(Debug)]
pub struct Entry {
    /// `NAMESPACE/NAME`, or `NAME` for cluster scope.
    pub key: Arc<str>,
    /// `metadata.resourceVersion`.
    pub revision: i64,
    kind: Arc<StoredKind>,
    content: Content,
    labels: Box<[(Box<str>, Box<str>)]>,
    /// Values of the kind's selectable fields, in their order.
    fields: Box<[Box<str>]>,
    json: OnceLock<Bytes>,
    proto: OnceLock<Bytes>,
    cbor: OnceLock<Bytes>,
    tree: KeptTree,
    broken: Option<Box<str>>,
    /// Stored in another version, from which only the converter of the definition leads here.
    foreign: bool,
}

/// The bytes from which an object is decoded.
#[derive(Clone, Debug)]
enum Content {
    /// The protobuf message with its revision: what clients read. It takes the place of the stored
    /// bytes, which hold the same.
    Message(ObjectBytes),
    /// The stored bytes of a custom resource, or of another version than the storage version.
    Stored(ObjectBytes),
}

impl Content {
    fn new(resource: &Resource, value: &[u8], revision: i64) -> Self {
        let message = stored_message(resource, value);
        match message.and_then(|message| set_resource_version(message, revision)) {
            Some(bytes) => Content::Message(bytes.into()),
            // A slice of the response would keep a whole page of a list in memory.
            None => Content::Stored(value.to_vec().into()),
        }
    }

    fn at_revision(&self, revision: i64) -> Self {
        let Content::Message(bytes) = self else {
            return self.clone();
        };
        let changed = bytes.get().ok();
        match changed.and_then(|bytes| set_resource_version(&bytes, revision)) {
            Some(bytes) => Content::Message(bytes.into()),
            None => self.clone(),
        }
    }

    fn bytes(&self) -> &ObjectBytes {
        match self {
            Content::Message(bytes) | Content::Stored(bytes) => bytes,
        }
    }

    fn decode(&self, resource: &Resource) -> Result<Value, StoredError> {
        match self {
            Content::Message(bytes) => decode_message(resource, &bytes.get()?, &Part::Whole),
            Content::Stored(bytes) => decode_stored(resource, &bytes.get()?),
        }
    }

    fn compress(&self) -> Option<Self> {
        let compressed = self.bytes().compress()?;
        Some(match self {
            Content::Message(_) => Content::Message(compressed),
            Content::Stored(_) => Content::Stored(compressed),
        })
    }
}

/// The form in which a caller needs an object that it reads from the store, apart from its entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// JSON, or nothing: the shortest way to labels and fields.
    Json,
    /// The tree, of a protobuf message without managedFields.
    Tree,
}

/// An object that was read from the store, in the form that was needed or in that of its bytes.
pub(crate) enum Decoded {
    /// The JSON of a protobuf message.
    Json(Vec<u8>),
    /// The tree.
    Tree(Arc<Value>),
    /// The tree of a protobuf message without managedFields, which are half of many objects.
    Part(Arc<Value>),
    /// Nothing: the object can't be decoded.
    Broken,
}

impl Entry {
    /// Reads an object of the store. One that can't be decoded is kept with the error, so that
    /// reads report it.
    pub fn new(kind: &Arc<StoredKind>, key: &str, value: &[u8], revision: i64) -> Self {
        Self::with_decoded(kind, key, value, revision, Form::Json).0
    }

    /// As [`Entry::new`]; returns the decoded object, too.
    pub(crate) fn with_decoded(
        kind: &Arc<StoredKind>,
        key: &str,
        value: &[u8],
        revision: i64,
        form: Form,
    ) -> (Self, Decoded) {
        let mut entry = Entry {
            key: key.into(),
            revision,
            kind: kind.clone(),
            content: Content::new(&kind.resource, value, revision),
            labels: Box::default(),
            fields: Box::default(),
            json: OnceLock::new(),
            proto: OnceLock::new(),
            cbor: OnceLock::new(),
            tree: KeptTree::default(),
            broken: None,
            foreign: false,
        };
        let read = match (&entry.content, form) {
            (Content::Message(bytes), Form::Json) => {
                bytes.get().and_then(|bytes| read_message(kind, &bytes))
            }
            (Content::Message(bytes), Form::Tree) => bytes
                .get()
                .and_then(|bytes| read_observed_part(kind, &bytes)),
            _ => decode_stored(&kind.resource, value).map(|mut tree| {
                set_revision(&mut tree, revision);
                (Selectable::of(kind, &tree), Decoded::Tree(Arc::new(tree)))
            }),
        };
        match read {
            Ok((selectable, decoded)) => {
                (entry.labels, entry.fields) = (selectable.labels, selectable.fields);
                if let Decoded::Tree(tree) = &decoded {
                    entry.foreign = is_foreign(&kind.resource, tree);
                }
                (entry, decoded)
            }
            Err(e) => {
                tracing::error!(kind = %kind.resource.kind, key, error = %e, "a stored object can't be decoded");
                entry.broken = Some(e.to_string().into());
                (entry, Decoded::Broken)
            }
        }
    }

    /// Returns the same object under another description of its kind.
    pub(crate) fn with_kind(&self, kind: &Arc<StoredKind>) -> Self {
        match &self.content {
            Content::Stored(bytes) => match bytes.get() {
                Ok(bytes) => Entry::new(kind, &self.key, &bytes, self.revision),
                Err(_) => self.at_revision(self.revision),
            },
            // Only custom resources change their description, and they are not stored as protobuf.
            Content::Message(_) => self.at_revision(self.revision),
        }
    }

    /// Returns the same object with another revision, as DELETED events carry it.
    pub fn at_revision(&self, revision: i64) -> Self {
        self.with_content(revision, self.content.at_revision(revision))
    }

    /// Returns a copy for the history: without encodings, and compressed if that saves much. `None`
    /// if it would not be smaller.
    pub(crate) fn shrink(&self) -> Option<Self> {
        let compressed = self.content.compress();
        let mut encodings = [&self.json, &self.proto, &self.cbor].into_iter();
        let is_bare = encodings.all(|encoding| encoding.get().is_none()) && !self.tree.is_kept();
        if compressed.is_none() && is_bare {
            return None;
        }
        let content = compressed.unwrap_or_else(|| self.content.clone());
        Some(self.with_content(self.revision, content))
    }

    fn with_content(&self, revision: i64, content: Content) -> Self {
        Entry {
            key: self.key.clone(),
            revision,
            kind: self.kind.clone(),
            content,
            labels: self.labels.clone(),
            fields: self.fields.clone(),
            json: OnceLock::new(),
            proto: OnceLock::new(),
            cbor: OnceLock::new(),
            tree: KeptTree::default(),
            broken: self.broken.clone(),
            foreign: self.foreign,
        }
    }

    /// Returns the namespace, empty for cluster scope.
    pub fn namespace(&self) -> &str {
        self.key
            .split_once('/')
            .map_or("", |(namespace, _)| namespace)
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        self.key
            .split_once('/')
            .map_or(&*self.key, |(_, name)| name)
    }

    /// Returns the number of bytes of the stored object.
    pub fn stored_size(&self) -> usize {
        self.content.bytes().len()
    }

    /// Returns keys and values of the labels, sorted by key.
    pub(crate) fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        self.labels.iter().map(|(key, value)| (&**key, &**value))
    }

    /// Returns a label's value.
    pub fn label(&self, key: &str) -> Option<&str> {
        let at = self.labels.binary_search_by(|(k, _)| (**k).cmp(key)).ok()?;
        self.labels.get(at).map(|(_, v)| &**v)
    }

    /// Returns a selectable field's value.
    pub fn field(&self, name: &str) -> Option<&str> {
        match name {
            "metadata.name" => Some(self.name()),
            "metadata.namespace" => Some(self.namespace()),
            _ => {
                let at = self.kind.selectable_names().position(|f| *f == name)?;
                self.fields.get(at).map(|v| &**v)
            }
        }
    }

    /// Returns the object's kind.
    pub fn kind(&self) -> &Arc<StoredKind> {
        &self.kind
    }

    /// Returns whether only the converter of the definition can build the object in this version.
    pub fn needs_converter(&self, resource: &Resource) -> bool {
        let kind = &self.kind.resource;
        kind.schema.converter().is_some() && (self.foreign || !resource.is_same_version(kind))
    }

    /// Returns whether the object is stored in another version than the storage version, or, of a
    /// built-in kind, in another encoding than protobuf.
    pub fn is_outdated(&self) -> bool {
        match (&self.kind.resource.schema, &self.content) {
            (ObjectSchema::Custom(_), Content::Stored(bytes)) => {
                let version = self.kind.resource.api_version();
                let found = bytes.get().ok().and_then(|bytes| stored_version(&bytes));
                found.is_some_and(|found| found != version)
            }
            // The message of the storage version would be kept instead of the stored bytes.
            (ObjectSchema::BuiltIn(_), Content::Stored(_)) => self.broken.is_none(),
            (_, Content::Message(_)) => false,
        }
    }

    /// Fails closed: relabelled without its converter, the object would be wrong.
    fn require_conversion(&self, resource: &Resource) -> Result<(), ApiError> {
        if !self.needs_converter(resource) {
            return Ok(());
        }
        let kind = &self.kind.resource.kind;
        let text = format!(
            "{kind} {:?} was not converted to {}",
            self.key, resource.version
        );
        Err(ApiError::internal(text))
    }

    /// Decodes the object in the stored version. With a converter, it may be an older one.
    pub fn decode_tree(&self) -> Result<Value, ApiError> {
        let decoded = match &self.broken {
            None => self
                .content
                .decode(&self.kind.resource)
                .map_err(|e| e.to_string()),
            Some(reason) => Err(reason.to_string()),
        };
        let mut tree = decoded.map_err(|reason| self.undecodable_error(&reason))?;
        set_revision(&mut tree, self.revision);
        Ok(tree)
    }

    /// Returns the object as [`Self::decode_tree`], decoded once for all callers if it is small.
    pub(crate) fn shared_tree(&self) -> Result<Arc<Value>, ApiError> {
        self.tree
            .get_or_decode(&self.kind.trees, || self.decode_tree())
    }

    /// Decodes the object for observers: in the stored version, without managedFields where that
    /// saves time. `None` if it can't be decoded.
    pub(crate) fn decode_observed(&self) -> Option<Value> {
        let (None, Content::Message(bytes)) = (&self.broken, &self.content) else {
            return self.decode_tree().ok();
        };
        let kind = &self.kind;
        decode_message(&kind.resource, &bytes.get().ok()?, &kind.parts.observed).ok()
    }

    fn undecodable_error(&self, reason: &str) -> ApiError {
        let text = format!(
            "{} {:?} in the store can't be decoded: {reason}",
            self.kind.resource.kind, self.key
        );
        ApiError::internal(text)
    }

    /// Decodes the object in a served version.
    pub fn tree_as(&self, resource: &Resource) -> Result<Value, ApiError> {
        self.require_conversion(resource)?;
        Ok(convert_object(
            &self.kind.resource,
            resource,
            self.decode_tree()?,
        ))
    }

    /// Checks that the object can be encoded in a served version: then its encodings have no error.
    ///
    /// # Errors
    /// The stored object can't be decoded, or it was not converted.
    pub fn check_readable(&self, resource: &Resource) -> Result<(), ApiError> {
        self.require_conversion(resource)?;
        match &self.broken {
            Some(reason) => Err(self.undecodable_error(reason)),
            None => Ok(()),
        }
    }

    /// Returns JSON as [`Self::encode_json`], without keeping it.
    pub fn encode_json_once(&self, resource: &Resource) -> Result<Bytes, ApiError> {
        match self.json.get() {
            Some(bytes) if resource.is_same_version(&self.kind.resource) => Ok(bytes.clone()),
            _ => Ok(self.write_json(resource)?.into()),
        }
    }

    fn write_json(&self, resource: &Resource) -> Result<Vec<u8>, ApiError> {
        if let Content::Message(bytes) = &self.content
            && resource.is_same_version(&self.kind.resource)
            && self.broken.is_none()
        {
            let json = bytes.get();
            let json = json.and_then(|bytes| message_to_json(&self.kind.resource, &bytes));
            return json.map_err(|e| self.undecodable_error(&e.to_string()));
        }
        Ok(codec::encode_json(
            &resource.schema,
            &self.tree_as(resource)?,
        ))
    }

    /// Returns JSON in a served version, without a newline.
    pub fn encode_json(&self, resource: &Resource) -> Result<Bytes, ApiError> {
        self.require_conversion(resource)?;
        self.encode_once(resource, &self.json, || self.write_json(resource))
    }

    /// Returns the protobuf message (without envelope) in a served version.
    pub fn encode_proto(&self, resource: &Resource) -> Result<Bytes, ApiError> {
        if let Content::Message(bytes) = &self.content
            && resource.is_same_version(&self.kind.resource)
            && self.broken.is_none()
        {
            let undecodable = |e: StoredError| self.undecodable_error(&e.to_string());
            return bytes.get().map_err(undecodable);
        }
        // Negotiation offers no protobuf for kinds without it, so that this is a bug of a caller.
        let missing = || ApiError::internal("this kind has no protobuf encoding");
        self.encode_once(resource, &self.proto, || {
            let tree = self.tree_as(resource)?;
            codec::encode_proto(&resource.schema, &tree).ok_or_else(missing)
        })
    }

    /// Returns CBOR in a served version, without a mark.
    pub fn encode_cbor(&self, resource: &Resource) -> Result<Bytes, ApiError> {
        self.encode_once(resource, &self.cbor, || {
            let tree = self.tree_as(resource)?;
            Ok(codec::encode_cbor(&resource.schema, &tree))
        })
    }

    fn encode_once(
        &self,
        resource: &Resource,
        made: &OnceLock<Bytes>,
        encode: impl Fn() -> Result<Vec<u8>, ApiError>,
    ) -> Result<Bytes, ApiError> {
        // Only the storage version is kept encoded. Other versions are rare, and keeping each would
        // multiply the memory of every object.
        if !resource.is_same_version(&self.kind.resource) {
            return Ok(encode()?.into());
        }
        if let Some(bytes) = made.get() {
            return Ok(bytes.clone());
        }
        let mut bytes = encode()?;
        // The bytes live as long as the object: the spare capacity of the encoder would, too.
        bytes.shrink_to_fit();
        Ok(made.get_or_init(|| bytes.into()).clone())
    }

    /// Keeps the JSON of the decoded object.
    pub(crate) fn prepare_json(&self, decoded: &Decoded) {
        let json = match decoded {
            // A copy of the right size: the buffer has room for more.
            Decoded::Json(json) => Bytes::copy_from_slice(json),
            Decoded::Tree(tree) if !self.foreign => {
                codec::encode_json(&self.kind.resource.schema, tree).into()
            }
            Decoded::Tree(_) | Decoded::Part(_) | Decoded::Broken => return,
        };
        self.json.get_or_init(|| json);
    }
}

/// The values that selectors need.
struct Selectable {
    labels: Box<[(Box<str>, Box<str>)]>,
    fields: Box<[Box<str>]>,
}

impl Selectable {
    fn of(kind: &StoredKind, tree: &Value) -> Self {
        Selectable {
            labels: labels_of(tree),
            fields: fields_of(kind, tree),
        }
    }
}

/// Reads a message of the stored version. Its JSON shows that all of it can be decoded.
fn read_message(kind: &StoredKind, bytes: &[u8]) -> Result<(Selectable, Decoded), StoredError> {
    let json = message_to_json(&kind.resource, bytes)?;
    let tree = decode_message(&kind.resource, bytes, &kind.parts.selected)?;
    Ok((Selectable::of(kind, &tree), Decoded::Json(json)))
}

/// Reads what observers need of a message of the stored version, and checks that the rest can be
/// decoded.
fn read_observed_part(
    kind: &StoredKind,
    bytes: &[u8],
) -> Result<(Selectable, Decoded), StoredError> {
    check_managed_fields(&kind.resource, bytes)?;
    let tree = decode_message(&kind.resource, bytes, &kind.parts.observed)?;
    Ok((Selectable::of(kind, &tree), Decoded::Part(Arc::new(tree))))
}

fn is_foreign(resource: &Resource, tree: &Value) -> bool {
    let version = tree.get("apiVersion").and_then(Value::as_str);
    resource.schema.converter().is_some() && version != Some(&resource.api_version())
}

/// Sets `metadata.resourceVersion`.
pub(crate) fn set_revision(tree: &mut Value, revision: i64) {
    if let Some(metadata) = tree.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert(
            "resourceVersion".into(),
            Value::String(revision.to_string()),
        );
    }
}

fn fields_of(kind: &StoredKind, tree: &Value) -> Box<[Box<str>]> {
    let own = kind.resource.selectable_fields.iter();
    let own = own.map(|field| (field, &kind.resource));
    // Versions differ in their name only, so that the paths of all lead through the stored object.
    let others = kind.other_fields.iter().map(|(field, row)| (field, row));
    own.chain(others)
        .map(|(field, row)| {
            api_kinds::selectable_value(row, tree, field)
                .as_ref()
                .into()
        })
        .collect()
}

fn labels_of(tree: &Value) -> Box<[(Box<str>, Box<str>)]> {
    let labels = api_meta::tree::find(tree, "/metadata/labels");
    let Some(labels) = labels.and_then(Value::as_object) else {
        return Box::default();
    };
    let mut all: Vec<(Box<str>, Box<str>)> = labels
        .iter()
        .map(|(k, v)| (k.as_str().into(), v.as_str().unwrap_or_default().into()))
        .collect();
    all.sort();
    all.into()
}
