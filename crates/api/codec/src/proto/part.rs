//! A part of a message, to decode without the rest.

use std::collections::BTreeMap;

use api_schema::Message;

/// The members of a message that are decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// All of them.
    Whole,
    /// These, by their names in JSON.
    Members(BTreeMap<&'static str, Part>),
}

impl Part {
    /// Returns the part with the members at paths such as `metadata.labels`. Other paths are left
    /// out.
    pub fn of_paths<'a>(
        message: &'static Message,
        paths: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let mut part = Part::Members(BTreeMap::new());
        for path in paths {
            part.add_path(message, path);
        }
        part
    }

    fn add_path(&mut self, message: &'static Message, path: &str) {
        let (name, rest) = path.split_once('.').unwrap_or((path, ""));
        let (Some(field), Part::Members(members)) = (message.field(name), self) else {
            return;
        };
        match field.ty.message() {
            Some(inner) if !rest.is_empty() => members
                .entry(field.json)
                .or_insert_with(|| Part::Members(BTreeMap::new()))
                .add_path(inner, rest),
            _ => drop(members.insert(field.json, Part::Whole)),
        }
    }

    /// Returns the whole object except `metadata.managedFields`, which take much of its time.
    pub fn without_managed_fields(message: &'static Message) -> Self {
        let names =
            |message: &'static Message| message.json_names().map(|name| (name, Part::Whole));
        let mut members: BTreeMap<_, _> = names(message).collect();
        let metadata = message.field("metadata");
        if let Some(metadata) = metadata.and_then(|field| field.ty.message()) {
            let kept = names(metadata).filter(|(name, _)| *name != "managedFields");
            members.insert("metadata", Part::Members(kept.collect()));
        }
        Part::Members(members)
    }

    /// Returns the part of a member; `None` if it is not decoded.
    pub(super) fn member(&self, name: &str) -> Option<&Part> {
        match self {
            Part::Whole => Some(self),
            Part::Members(members) => members.get(name),
        }
    }
}
