//! Lines of the audit log.

use crate::event::{Event, UserInfo};
use std::fmt::Write;

/// The format of lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineFormat {
    /// The event as JSON.
    Json,
    /// A text with some of its fields.
    Legacy,
}

pub(crate) const HEAD: &[u8] = br#"{"kind":"Event","apiVersion":"audit.k8s.io/v1","#;

impl LineFormat {
    /// Writes an event and a line break.
    pub(crate) fn write_line(self, event: &Event, out: &mut Vec<u8>) {
        match self {
            LineFormat::Json => write_json(event, out),
            LineFormat::Legacy => out.extend_from_slice(format_legacy(event).as_bytes()),
        }
        out.push(b'\n');
    }
}

/// Writes an event as JSON.
fn write_json(event: &Event, out: &mut Vec<u8>) {
    out.extend_from_slice(HEAD);
    event.write_members(out);
    out.push(b'}');
}

fn format_legacy(event: &Event) -> String {
    let (username, groups) = match event.head.user.username.as_str() {
        "" => ("<none>", "<none>".to_owned()),
        name => (name, list_groups(&event.head.user, "<none>")),
    };
    let (acting, acting_groups) = match &event.head.impersonated_user {
        Some(user) => (user.username.as_str(), list_groups(user, "<lookup>")),
        None => ("<self>", "<lookup>".to_owned()),
    };
    let named = event
        .head
        .object_ref
        .as_ref()
        .map(|object| &*object.namespace);
    let namespace = named.filter(|name| !name.is_empty()).unwrap_or("<none>");
    let status = event.head.response_status.as_ref();
    let response = status.map_or("<deferred>".to_owned(), |status| status.code.to_string());
    let ip = event
        .head
        .source_ips
        .first()
        .map_or("<unknown>", String::as_str);
    let received = event.tail.request_received_timestamp;
    let fields = [
        ("id", &*event.head.audit_id),
        ("stage", event.head.stage.as_str()),
        ("ip", ip),
        ("method", &event.head.verb),
        ("user", username),
        ("groups", &groups),
        ("as", acting),
        ("asgroups", &acting_groups),
        ("user-agent", &event.head.user_agent),
        ("namespace", namespace),
        ("uri", &event.head.request_uri),
        ("response", &response),
    ];
    let mut line = format!("{received} AUDIT:");
    for (name, value) in fields {
        // Quoted, so that no value of a client ends the line or adds a field.
        let _ = write!(line, " {name}={value:?}");
    }
    line
}

fn list_groups(user: &UserInfo, none: &str) -> String {
    if user.groups.is_empty() {
        return none.to_owned();
    }
    let quoted: Vec<String> = user
        .groups
        .iter()
        .map(|group| format!("{group:?}"))
        .collect();
    quoted.join(",")
}
