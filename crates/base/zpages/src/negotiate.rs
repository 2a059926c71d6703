//! The representation that a client accepts.

use std::collections::HashMap;

use serde_json::Value;

/// Group of both kinds.
const GROUP: &str = "config.k8s.io";
/// Versions of both kinds. The first is deprecated.
const VERSIONS: [&str; 2] = ["v1alpha1", "v1beta1"];

/// An encoder of objects as CBOR.
pub(crate) type CborEncoder = fn(&Value) -> Vec<u8>;

/// The representation of a page.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Format {
    Text,
    /// An object of a version.
    Object(&'static str, ObjectEncoding),
}

/// The encoding of an object.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ObjectEncoding {
    Json,
    Yaml,
    Cbor(CborEncoder),
}

impl ObjectEncoding {
    pub(crate) fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Yaml => "application/yaml",
            Self::Cbor(_) => "application/cbor",
        }
    }

    pub(crate) fn encode(self, object: &Value) -> Vec<u8> {
        match self {
            Self::Json => format!("{object}\n").into_bytes(),
            // Maps with names as keys can always be written.
            Self::Yaml => serde_yaml::to_string(object)
                .unwrap_or_default()
                .into_bytes(),
            Self::Cbor(encode) => encode(object),
        }
    }
}

/// One range of an Accept header.
struct Clause<'a> {
    main: &'a str,
    sub: &'a str,
    quality: f32,
    parameters: HashMap<&'a str, &'a str>,
}

/// Returns the representation that an Accept header selects; None if it accepts no possible one.
/// JSON, YAML and CBOR must name group, version and kind, because the pages have no default
/// version.
pub(crate) fn negotiate_format(
    accept: &str,
    kind: &str,
    cbor: Option<CborEncoder>,
) -> Option<Format> {
    if accept.trim().is_empty() {
        return Some(Format::Text);
    }
    let mut clauses: Vec<Clause<'_>> = accept.split(',').filter_map(parse_clause).collect();
    // As in upstream: by quality, then the specific type before a wildcard.
    clauses.sort_by(|a, b| {
        b.quality
            .total_cmp(&a.quality)
            .then((a.main == "*").cmp(&(b.main == "*")))
            .then((a.sub == "*").cmp(&(b.sub == "*")))
    });
    clauses
        .iter()
        .find_map(|clause| clause.select_format(kind, cbor))
}

fn parse_clause(text: &str) -> Option<Clause<'_>> {
    let mut parts = text.split(';').map(str::trim);
    let (main, sub) = match parts.next()? {
        "*" => ("*", "*"),
        range => range.split_once('/')?,
    };
    let parameters: HashMap<_, _> = parts
        .filter_map(|parameter| parameter.split_once('='))
        .map(|(name, value)| (name.trim(), value.trim()))
        .collect();
    let quality = parameters.get("q").and_then(|q| q.parse().ok());
    Some(Clause {
        main: main.trim(),
        sub: sub.trim(),
        quality: quality.unwrap_or(1.0),
        parameters,
    })
}

impl Clause<'_> {
    fn select_format(&self, kind: &str, cbor: Option<CborEncoder>) -> Option<Format> {
        let is_set = |name| self.parameters.get(name).is_some_and(|v| !v.is_empty());
        // Neither streams nor other server versions exist for these pages.
        if is_set("stream") || is_set("sv") {
            return None;
        }
        let covers = |main, sub| {
            (self.main == main && (self.sub == sub || self.sub == "*"))
                || (self.main == "*" && self.sub == "*")
        };
        let converts = ["as", "g", "v"]
            .iter()
            .any(|name| self.parameters.contains_key(name));
        if !converts {
            return covers("text", "plain").then_some(Format::Text);
        }
        let version = self.requested_version(kind)?;
        let encoding = if covers("application", "json") {
            ObjectEncoding::Json
        } else if covers("application", "yaml") {
            ObjectEncoding::Yaml
        } else {
            ObjectEncoding::Cbor(cbor.filter(|_| covers("application", "cbor"))?)
        };
        Some(Format::Object(version, encoding))
    }

    fn requested_version(&self, kind: &str) -> Option<&'static str> {
        let parameter = |name| self.parameters.get(name).copied().unwrap_or_default();
        if parameter("g") != GROUP || parameter("as") != kind {
            return None;
        }
        VERSIONS.into_iter().find(|v| *v == parameter("v"))
    }
}

/// Returns whether clients should move to a newer version.
pub(crate) fn is_deprecated(version: &str) -> bool {
    version == VERSIONS[0]
}

/// Returns the API version of an object.
pub(crate) fn api_version(version: &str) -> String {
    format!("{GROUP}/{version}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: Option<(&str, &str)> = Some(("text/plain", ""));
    const JSON: Option<(&str, &str)> = Some(("application/json", "v1beta1"));
    const YAML: Option<(&str, &str)> = Some(("application/yaml", "v1beta1"));
    const CBOR: Option<(&str, &str)> = Some(("application/cbor", "v1beta1"));

    /// Returns the media type and the version of the selected format.
    fn negotiate(accept: &str, cbor: Option<CborEncoder>) -> Option<(&'static str, &'static str)> {
        match negotiate_format(accept, "Statusz", cbor)? {
            Format::Text => TEXT,
            Format::Object(version, encoding) => Some((encoding.media_type(), version)),
        }
    }

    #[test]
    fn accept_header_selects_the_format_as_in_upstream() {
        let beta = "v=v1beta1;g=config.k8s.io;as=Statusz";
        for (accept, format) in [
            ("", TEXT),
            ("text/plain", TEXT),
            ("*/*", TEXT),
            ("text/*;q=0.3", TEXT),
            ("application/xml", None),
            ("application/json", None),
            ("application/json;v=v1beta1;g=config.k8s.io", None),
            ("application/json;v=v1;g=config.k8s.io;as=Statusz", None),
            ("application/json;v=v1beta1;g=config.k8s.io;as=Flagz", None),
            (
                "application/json;v=foo;g=config.k8s.io;as=Statusz,*/*",
                TEXT,
            ),
            (
                "application/json;v=v1alpha1;g=config.k8s.io;as=Statusz",
                Some(("application/json", "v1alpha1")),
            ),
            (&format!("application/json;{beta}"), JSON),
            (
                &format!("application/yaml; {}", beta.replace(';', "; ")),
                YAML,
            ),
            (&format!("application/cbor;{beta}"), None),
            (&format!("text/plain;{beta}"), None),
            (&format!("application/json;stream=watch;{beta}"), None),
            (&format!("text/plain;q=0.5,application/yaml;{beta}"), YAML),
            (&format!("*/*,application/json;{beta}"), JSON),
        ] {
            assert_eq!(negotiate(accept, None), format, "{accept:?}");
        }
        for (accept, format) in [
            (format!("application/cbor;{beta}"), CBOR),
            (
                format!("application/cbor;{beta},application/json;{beta}"),
                CBOR,
            ),
            (format!("*/*;{beta}"), JSON),
            ("application/cbor".to_owned(), None),
        ] {
            let found = negotiate(&accept, Some(|_| Vec::new()));
            assert_eq!(found, format, "{accept:?}");
        }
    }
}
