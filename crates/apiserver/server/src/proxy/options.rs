//! The options of a connection: parsed once, changed by admission, and then used.
//!
//! Invariant: a connection is made with the options that admission has seen, never with the query.

use crate::context::Context;
use api_meta::ApiError;
use api_meta::tree::{list, text};
use apiserver_streams::Streams;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde_json::{Map, Value};

/// Characters of a path that are escaped.
const PATH: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'/')
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~');
const STREAMS: [&str; 4] = ["stdin", "stdout", "stderr", "tty"];

/// The options object of a connection, in canonical form.
pub struct ConnectOptions {
    object: Value,
    /// The path behind a proxy, decoded, as the client has sent it.
    sent_path: String,
}

impl ConnectOptions {
    /// Parses the query and the path into an object of this kind.
    ///
    /// # Errors
    /// A port that is no number.
    pub fn parse(context: &Context, kind: &str) -> Result<Self, ApiError> {
        let mut fields = Map::new();
        let mut sent_path = String::new();
        fields.insert("kind".into(), kind.into());
        fields.insert("apiVersion".into(), "v1".into());
        match kind {
            "PodExecOptions" => {
                insert_streams(&mut fields, context);
                let command: Vec<&str> = context.query.all("command").collect();
                if !command.is_empty() {
                    fields.insert("command".into(), command.into());
                }
            }
            "PodAttachOptions" => insert_streams(&mut fields, context),
            "PodPortForwardOptions" => {
                let ports = parse_ports(context)?;
                if !ports.is_empty() {
                    fields.insert("ports".into(), ports.into());
                }
            }
            _ => {
                // Decoded, so that no encoding hides a path from a policy.
                sent_path = percent_decode_str(&context.info.rest)
                    .decode_utf8_lossy()
                    .into_owned();
                if !sent_path.is_empty() {
                    fields.insert("path".into(), sent_path.clone().into());
                }
            }
        }
        Ok(ConnectOptions {
            object: Value::Object(fields),
            sent_path,
        })
    }

    /// Takes the object out, for admission.
    pub fn take_object(&mut self) -> Value {
        self.object.take()
    }

    /// Replaces the object by that of admission.
    pub fn replace_object(&mut self, object: Value) {
        self.object = object;
    }

    /// Returns the container, empty for the default one.
    pub fn container(&self) -> &str {
        text(&self.object, "container")
    }

    /// Returns the words of the command.
    pub fn command(&self) -> impl Iterator<Item = &str> {
        let words = list(&self.object, "command").iter();
        words.filter_map(Value::as_str)
    }

    /// Returns the ports to forward.
    pub fn ports(&self) -> impl Iterator<Item = i64> {
        let ports = list(&self.object, "ports").iter();
        ports.filter_map(Value::as_i64)
    }

    /// Returns the streams.
    pub fn streams(&self) -> Streams {
        let is_set = |name| self.object.get(name) == Some(&Value::Bool(true));
        let [stdin, stdout, stderr, tty] = STREAMS.map(is_set);
        Streams {
            stdin,
            stdout,
            stderr,
            tty,
        }
    }

    /// Returns the path at the backend, with the query of the request.
    pub fn backend_path(&self, context: &Context) -> String {
        let path = text(&self.object, "path");
        let path = if path == self.sent_path {
            // As sent: backends may tell encodings of one path apart.
            match context.info.rest.as_str() {
                "" => "/".to_owned(),
                rest => rest.to_owned(),
            }
        } else {
            utf8_percent_encode(&clean_path(path), PATH).to_string()
        };
        match context.raw_query.as_str() {
            "" => path,
            query => format!("{path}?{query}"),
        }
    }
}

fn insert_streams(fields: &mut Map<String, Value>, context: &Context) {
    for name in STREAMS {
        if context.query.flag(name) {
            fields.insert(name.to_owned(), true.into());
        }
    }
    let container = context.query.text("container");
    if !container.is_empty() {
        fields.insert("container".into(), container.into());
    }
}

fn parse_ports(context: &Context) -> Result<Vec<u16>, ApiError> {
    let lists = context.query.all("ports");
    let ports = lists.flat_map(|ports| ports.split(','));
    ports
        .map(|port| {
            let is_number = port.bytes().all(|byte| byte.is_ascii_digit());
            let number = Some(port).filter(|_| is_number);
            number.and_then(|port| port.parse().ok()).ok_or_else(|| {
                ApiError::bad_request(format!("cannot convert to []int32: {port:?} is no port"))
            })
        })
        .collect()
}

/// Resolves `.` and `..` in a path of a mutation, as upstream. The result begins with a slash.
fn clean_path(path: &str) -> String {
    let mut words = Vec::new();
    for word in path.split('/') {
        match word {
            "" | "." => {}
            ".." => drop(words.pop()),
            word => words.push(word),
        }
    }
    let end = match path.ends_with('/') && !words.is_empty() {
        true => "/",
        false => "",
    };
    format!("/{}{end}", words.join("/"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn parse(path: &str, kind: &str) -> (Context, Result<ConnectOptions, ApiError>) {
        let uri = format!("/api/v1/namespaces/d/pods/p/{path}");
        let request = http::Request::get(uri).body(()).unwrap();
        let context = Context::new(request.into_parts().0).unwrap();
        let options = ConnectOptions::parse(&context, kind);
        (context, options)
    }

    #[test]
    fn options_have_the_fields_of_their_kind() {
        let query = "stdin=1&tty=false&command=a&command=b&container=c&ports=1,2&ports=3";
        for (kind, path, expect) in [
            (
                "PodExecOptions",
                "exec",
                json!({"stdin": true, "container": "c", "command": ["a", "b"]}),
            ),
            (
                "PodAttachOptions",
                "attach",
                json!({"stdin": true, "container": "c"}),
            ),
            (
                "PodPortForwardOptions",
                "portforward",
                json!({"ports": [1, 2, 3]}),
            ),
            ("PodProxyOptions", "proxy", json!({})),
            ("PodProxyOptions", "proxy/%61/b/", json!({"path": "/a/b/"})),
        ] {
            let (_, options) = parse(&format!("{path}?{query}"), kind);
            let mut object = options.unwrap().take_object();
            let fields = object.as_object_mut().unwrap();
            assert_eq!(fields.remove("kind"), Some(kind.into()));
            assert_eq!(fields.remove("apiVersion"), Some("v1".into()));
            assert_eq!(object, expect, "{path}");
        }
    }

    #[test]
    fn ports_are_numbers() {
        for ports in ["x", "", "1,", "+1", "-1", "65536"] {
            let (_, options) = parse(
                &format!("portforward?ports={ports}"),
                "PodPortForwardOptions",
            );
            assert_eq!(options.err().map(|e| e.code()), Some(400), "{ports:?}");
        }
    }

    #[test]
    fn path_of_a_mutation_replaces_that_of_the_request() {
        for (sent, mutated, expect) in [
            ("proxy/%61%2Fb?q=1", None, "/%61%2Fb?q=1"),
            ("proxy", None, "/"),
            ("proxy/a?q=1", Some("/x y/%2e?z"), "/x%20y/%252e%3Fz?q=1"),
            ("proxy/a", Some("x/../../y//z/"), "/y/z/"),
            ("proxy/a", Some(""), "/"),
        ] {
            let (context, options) = parse(sent, "PodProxyOptions");
            let mut options = options.unwrap();
            if let Some(path) = mutated {
                options.replace_object(json!({"kind": "PodProxyOptions", "path": path}));
            }
            assert_eq!(options.backend_path(&context), expect, "{sent} {mutated:?}");
        }
    }
}
