//! Parses the data file, once.
//!
//! The file consists of lines of words: `package SHORT PROTO`, `enum NAME "VALUE"..`, `message NAME
//! [SHAPE]`, and below a message its fields as ` JSON NUMBER TYPE WORD..`. It is a part of the
//! program, so a malformed line is a bug. The test below detects it; otherwise the line is skipped.

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::model::{Enum, Field, ListKind, Message, MessageId, Omit, Schema, Shape, Type};
use crate::names::NameTable;

/// Protobuf numbers below this one are looked up without a search.
const DIRECT_NUMBERS: usize = 64;

const DATA: &str = include_str!("../data/v1.36.txt");

// A process that never decodes an object does not parse the data.
static SCHEMA: LazyLock<Schema> = LazyLock::new(|| Loader::default().load(DATA));

/// Returns the schema of all built-in types.
pub fn schema() -> &'static Schema {
    &SCHEMA
}

impl Message {
    /// Returns the field with a JSON name, which may be a member of an inline field.
    pub fn field(&'static self, json: &str) -> Option<&'static Field> {
        let (owner, index) = self.locate(json)?;
        schema().get(owner).fields.get(usize::from(index))
    }

    /// Returns the position in `fields` of a member with a JSON name; `None` for members of inline
    /// fields, too.
    pub fn own_position(&'static self, json: &str) -> Option<usize> {
        let (owner, index) = self.locate(json)?;
        std::ptr::eq(schema().get(owner), self).then_some(usize::from(index))
    }

    fn locate(&'static self, json: &str) -> Option<(MessageId, u16)> {
        let name_at = |at: u16| {
            self.by_json
                .get(usize::from(at))
                .map_or("", |entry| entry.0)
        };
        let at = self.names.find(json, name_at)?;
        let (_, owner, index) = self.by_json.get(usize::from(at))?;
        Some((*owner, *index))
    }
}

impl Type {
    /// Returns the message that this type is or contains.
    pub fn message(&self) -> Option<&'static Message> {
        match self {
            Type::Message(id) => Some(schema().get(*id)),
            Type::List(inner) | Type::Map(inner) => inner.message(),
            _ => None,
        }
    }
}

#[derive(Default)]
struct Loader {
    packages: HashMap<&'static str, &'static str>,
    enums: HashMap<&'static str, &'static Enum>,
    ids: HashMap<&'static str, MessageId>,
    messages: Vec<Message>,
}

impl Loader {
    fn load(mut self, data: &'static str) -> Schema {
        let names = data
            .lines()
            .filter_map(|line| line.strip_prefix("message "));
        // All names first: messages refer to each other in any order, and some to themselves.
        for (index, line) in names.enumerate() {
            let short = line.split(' ').next().unwrap_or(line);
            self.ids
                .insert(short, MessageId(u16::try_from(index).unwrap_or(u16::MAX)));
        }
        for line in data.lines() {
            self.load_line(line);
        }
        // After all lines, because a field may refer to a type that a later line marks as atomic.
        inherit_atomic(&mut self.messages);
        index_by_json(&mut self.messages);
        self.messages.iter_mut().for_each(index_by_number);
        let by_name = (0..)
            .map(MessageId)
            .zip(&self.messages)
            .map(|(id, message)| (message.name, id))
            .collect::<HashMap<_, _>>();
        Schema {
            messages: self.messages,
            by_name,
        }
    }

    // Fields are most of the lines, so their prefix is compared first.
    fn load_line(&mut self, line: &'static str) {
        if let Some(field) = line.strip_prefix(' ') {
            self.load_field(field);
        } else if let Some(rest) = line.strip_prefix("message ") {
            self.load_message(rest);
        } else if let Some((short, proto)) = line
            .strip_prefix("package ")
            .and_then(|rest| rest.split_once(' '))
        {
            self.packages.insert(short, proto);
        } else if let Some((name, values)) = line
            .strip_prefix("enum ")
            .and_then(|rest| rest.split_once(' '))
        {
            let values: Vec<&str> = values.split('"').skip(1).step_by(2).collect();
            self.enums
                .insert(name, Box::leak(Box::new(Enum { name, values })));
        }
    }

    fn load_message(&mut self, line: &'static str) {
        let (short, shape) = line.split_once(' ').unwrap_or((line, ""));
        let (package, name) = short.rsplit_once('.').unwrap_or(("", short));
        let proto = self.packages.get(package).copied().unwrap_or(package);
        self.messages.push(Message {
            name: String::leak(format!("{proto}.{name}")),
            shape: shape_of(shape),
            atomic: shape == "atomic",
            fields: Vec::new(),
            by_number: Vec::new(),
            permanent: Vec::new(),
            positions: Vec::new(),
            by_json: Vec::new(),
            names: NameTable::default(),
        });
    }

    fn load_field(&mut self, line: &'static str) {
        let mut words = line.split(' ');
        let (Some(json), Some(number), Some(ty)) = (words.next(), words.next(), words.next())
        else {
            return;
        };
        let mut field = Field {
            // An inline field has no name, but each position of the line needs a word.
            json: if json == "-" { "" } else { json },
            // Protobuf counts from 1, so zero is free for fields that only exist in JSON.
            number: number.parse().unwrap_or(0),
            ty: self.parse_type(ty.trim_start_matches('*')),
            pointer: ty.starts_with('*'),
            inline: false,
            omit: Omit::Never,
            required: false,
            list: ListKind::Default,
            patch_merge: false,
            patch_replace: false,
            patch_retain_keys: false,
            patch_key: "",
            default: "",
            values: None,
        };
        words.for_each(|word| self.load_word(&mut field, word));
        let Some(message) = self.messages.last_mut() else {
            return;
        };
        let index = u16::try_from(message.fields.len()).unwrap_or(u16::MAX);
        if field.number != 0 {
            // Go declares fields in another order than that of their numbers, and gogo encodes by
            // number.
            let at = message
                .by_number
                .partition_point(|i| message.fields[usize::from(*i)].number < field.number);
            message.by_number.insert(at, index);
        }
        if field.inline || field.omit == Omit::Never {
            message.permanent.push(index);
        }
        message.fields.push(field);
    }

    fn load_word(&self, field: &mut Field, word: &'static str) {
        match word.split_once('=').unwrap_or((word, "")) {
            ("inline", _) => field.inline = true,
            ("omitempty", _) => field.omit = Omit::Empty,
            ("omitzero", _) => field.omit = Omit::Zero,
            ("required", _) => field.required = true,
            ("atomic", _) => field.list = ListKind::Atomic,
            ("granular", _) => field.list = ListKind::Granular,
            ("set", _) => field.list = ListKind::Set,
            ("map", keys) => field.list = ListKind::Map(keys.split(',').collect::<Vec<_>>().leak()),
            // Strategic merge and server-side apply have markers of their own, because they
            // disagree: ports of a Service are merged by `port` in a patch, and by `port` and
            // `protocol` in an apply.
            ("merge", _) => field.patch_merge = true,
            ("replace", _) => field.patch_replace = true,
            ("retainkeys", _) => field.patch_retain_keys = true,
            ("key", key) => field.patch_key = key,
            ("default", text) => field.default = text,
            ("enum", name) => field.values = self.enums.get(name).copied(),
            _ => {}
        }
    }

    fn parse_type(&self, text: &'static str) -> Type {
        if let Some(inner) = text.strip_prefix("[]") {
            return Type::List(Box::new(self.parse_type(inner)));
        }
        if let Some(inner) = text.strip_prefix("map:") {
            return Type::Map(Box::new(self.parse_type(inner)));
        }
        match text {
            "bool" => Type::Bool,
            "int32" => Type::Int32,
            "int64" => Type::Int64,
            "uint32" => Type::Uint32,
            "uint64" => Type::Uint64,
            "double" => Type::Double,
            "string" => Type::String,
            "bytes" => Type::Bytes,
            name => Type::Message(self.ids.get(name).copied().unwrap_or(MessageId(0))),
        }
    }
}

fn shape_of(word: &str) -> Shape {
    match word {
        // The word `atomic` may stand here as well. It is a rule for merges and no form of its own.
        "time" => Shape::Time,
        "microtime" => Shape::MicroTime,
        "duration" => Shape::Duration,
        "quantity" => Shape::Quantity,
        "intorstring" => Shape::IntOrString,
        "rawextension" => Shape::RawExtension,
        "fieldsv1" => Shape::FieldsV1,
        "json" => Shape::Json,
        "items" => Shape::Items,
        "schemaorbool" => Shape::SchemaOrBool,
        "schemaorarray" => Shape::SchemaOrArray,
        "schemaorstringarray" => Shape::SchemaOrStringArray,
        _ => Shape::Struct,
    }
}

/// Makes fields of an atomic type atomic, unless they specify otherwise.
fn inherit_atomic(messages: &mut [Message]) {
    // `+structType=atomic` is a marker of the type, as for LabelSelector, and server-side apply
    // looks at the field.
    let atomic: Vec<bool> = messages.iter().map(|message| message.atomic).collect();
    for field in messages.iter_mut().flat_map(|message| &mut message.fields) {
        if let (Type::Message(id), ListKind::Default) = (&field.ty, field.list)
            && atomic.get(usize::from(id.0)) == Some(&true)
        {
            field.list = ListKind::Atomic;
        }
    }
}

/// Fills in the lookup by JSON name, including inline members. An outer field hides an inner one,
/// as in Go.
fn index_by_json(messages: &mut [Message]) {
    // Computed once for all messages: a decoder looks up every member of every object by name.
    for index in 0..messages.len() {
        let mut found = Vec::new();
        collect_fields(messages, index, 0, &mut found);
        // The lowest depth wins, as Go's rule for embedded fields says.
        found.sort_by_key(|(name, depth, ..)| (*name, *depth));
        found.dedup_by_key(|(name, ..)| *name);
        messages[index].by_json = found
            .into_iter()
            .map(|(name, _, owner, field)| (name, owner, field))
            .collect();
        let names = messages[index].by_json.iter().map(|(name, ..)| *name);
        messages[index].names = NameTable::new(names);
    }
}

/// Fills in the lookup by protobuf number.
fn index_by_number(message: &mut Message) {
    // Numbers have gaps where the API has removed fields. A larger number would need more memory
    // than a search is worth.
    let numbers = message.fields.iter().map(|field| field.number as usize);
    let last = numbers.filter(|number| *number < DIRECT_NUMBERS).max();
    message.positions = vec![None; last.map_or(0, |last| last + 1)];
    for (position, field) in (0..).zip(&message.fields) {
        let slot = message.positions.get_mut(field.number as usize);
        if let (Some(slot), 1..) = (slot, field.number) {
            *slot = Some(position);
        }
    }
}

fn collect_fields(
    messages: &[Message],
    index: usize,
    depth: u8,
    found: &mut Vec<(&'static str, u8, MessageId, u16)>,
) {
    let owner = MessageId(u16::try_from(index).unwrap_or(u16::MAX));
    for (position, field) in (0..).zip(&messages[index].fields) {
        match (&field.ty, field.inline) {
            (Type::Message(inner), true) => {
                collect_fields(messages, usize::from(inner.0), depth + 1, found)
            }
            (_, true) => {}
            _ => found.push((field.json, depth, owner, position)),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_line_is_understood() {
        for line in DATA.lines().filter(|line| line.starts_with(' ')) {
            let words: Vec<&str> = line[1..].split(' ').collect();
            assert!(
                words.len() >= 3 && words[1].parse::<u32>().is_ok(),
                "{line}"
            );
        }
        assert!(schema().messages().len() > 1000);
        let names: std::collections::HashSet<_> = schema()
            .messages()
            .iter()
            .map(|message| message.name)
            .collect();
        assert_eq!(names.len(), schema().messages().len());
    }

    #[test]
    fn inline_members_are_found_from_the_outside() {
        let volume = schema().message("k8s.io.api.core.v1.Volume").unwrap();
        assert_eq!(
            volume
                .field("emptyDir")
                .unwrap()
                .ty
                .message()
                .unwrap()
                .short_name(),
            "EmptyDirVolumeSource"
        );
        assert_eq!(volume.field("name").unwrap().number, 1);
        assert!(volume.field("volumeSource").is_none());
        let pod = schema().message("k8s.io.api.core.v1.Pod").unwrap();
        assert!(pod.has_type_meta());
        assert_eq!(pod.field_by_number(2).unwrap().json, "spec");
    }

    #[test]
    fn every_field_is_found_by_name_and_number() {
        for message in schema().messages() {
            for (position, field) in message.fields.iter().enumerate() {
                let place = format!("{} {} {}", message.name, field.json, field.number);
                if field.number > 0 {
                    let found = message.field_by_number(field.number).unwrap();
                    assert!(std::ptr::eq(found, field), "{place}");
                }
                if !field.inline {
                    assert_eq!(message.own_position(field.json), Some(position), "{place}");
                }
            }
            for name in message.json_names() {
                assert_eq!(message.field(name).unwrap().json, name, "{}", message.name);
            }
            assert!(message.field_by_number(0).is_none(), "{}", message.name);
            assert!(
                message.field_by_number(70_000).is_none(),
                "{}",
                message.name
            );
            assert!(message.field("").is_none() && message.field("absent").is_none());
        }
    }

    #[test]
    fn merge_keys_are_loaded() {
        let container = schema().message("k8s.io.api.core.v1.Container").unwrap();
        let ports = container.field("ports").unwrap();
        assert_eq!(ports.list, ListKind::Map(&["containerPort", "protocol"]));
        assert!(ports.patch_merge && ports.patch_key == "containerPort");
    }
}
