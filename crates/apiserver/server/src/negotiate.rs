//! Content negotiation: media type, transformation, indentation.

use api_meta::{ApiError, Reason};

/// JSON.
pub const JSON: &str = "application/json";
/// YAML.
pub const YAML: &str = "application/yaml";
/// Kubernetes' protobuf.
pub const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// An encoding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// JSON
    #[default]
    Json,
    /// YAML
    Yaml,
    /// protobuf
    Protobuf,
}

impl Format {
    /// Returns the media type.
    pub fn media_type(self) -> &'static str {
        match self {
            Format::Json => JSON,
            Format::Yaml => YAML,
            Format::Protobuf => PROTOBUF,
        }
    }
}

/// A transformation of the object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transform {
    /// The object itself.
    #[default]
    None,
    /// `meta.k8s.io Table`
    Table,
    /// `meta.k8s.io PartialObjectMetadata`
    Partial,
    /// `meta.k8s.io PartialObjectMetadataList`
    PartialList,
}

/// The negotiated representation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MediaType {
    /// Encoding.
    pub format: Format,
    /// Transformation.
    pub transform: Transform,
    /// Indented JSON.
    pub pretty: bool,
}

/// One range of an Accept header.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MediaRange {
    /// `application/json`, `*/*`, ...
    pub media_type: String,
    /// Parameters other than `q`.
    pub parameters: Vec<(String, String)>,
    /// Weight (`q`).
    pub quality: f32,
}

impl MediaRange {
    /// Returns a parameter's value.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters
            .iter()
            .find(|(k, _)| k == name)
            .map(|(_, v)| v.as_str())
    }
}

/// Parses the ranges of an Accept header, most preferred first.
pub fn parse_ranges(accept: &str) -> Vec<MediaRange> {
    let mut all: Vec<MediaRange> = accept
        .split(',')
        .map(str::trim)
        .filter(|r| !r.is_empty())
        .map(parse_range)
        .collect();
    // A stable sort: equal weights keep the client's order.
    all.sort_by(|a, b| b.quality.total_cmp(&a.quality));
    all
}

fn parse_range(text: &str) -> MediaRange {
    let mut parts = text.split(';').map(str::trim);
    let mut out = MediaRange {
        media_type: parts.next().unwrap_or_default().to_ascii_lowercase(),
        quality: 1.0,
        ..Default::default()
    };
    for (name, value) in parts.filter_map(|part| part.split_once('=')) {
        let value = value.trim().trim_matches('"');
        if name.trim() == "q" {
            // A weight that is no number makes the range unacceptable instead of preferred.
            out.quality = value.parse().unwrap_or(0.0);
        } else {
            out.parameters
                .push((name.trim().to_owned(), value.to_owned()));
        }
    }
    out
}

/// Negotiates the representation of an object, list or watch from an Accept header.
pub fn negotiate_media_type(accept: &str) -> Result<MediaType, ApiError> {
    first_of(accept, |_| true)
}

/// Negotiates the representation of a kind without a protobuf encoding. Its metadata has one.
pub fn media_type_without_protobuf(accept: &str) -> Result<MediaType, ApiError> {
    first_of(accept, |media_type| {
        media_type.format != Format::Protobuf || media_type.transform != Transform::None
    })
}

/// Negotiates the representation of an object without columns: a Table is not acceptable.
pub fn media_type_without_table(accept: &str) -> Result<MediaType, ApiError> {
    first_of(accept, |media_type| {
        media_type.transform != Transform::Table
    })
}

fn first_of(accept: &str, possible: impl Fn(&MediaType) -> bool) -> Result<MediaType, ApiError> {
    if accept.trim().is_empty() {
        return Ok(MediaType::default());
    }
    let ranges = parse_ranges(accept);
    let mut acceptable = ranges
        .iter()
        // RFC 9110: a weight of 0 means "not acceptable".
        .filter(|r| r.quality > 0.0)
        .filter_map(acceptable_type);
    acceptable.find(possible).ok_or_else(not_acceptable)
}

fn acceptable_type(range: &MediaRange) -> Option<MediaType> {
    let format = match range.media_type.as_str() {
        // JSON is the first of upstream's serializers, which wildcards get.
        JSON | "application/*" | "*/*" => Format::Json,
        YAML => Format::Yaml,
        PROTOBUF => Format::Protobuf,
        _ => return None,
    };
    let transform = match range.parameter("as") {
        None => Transform::None,
        // Other groups have their own transformations, such as discovery, which resources do not
        // have.
        Some(_) if range.parameter("g") != Some("meta.k8s.io") => return None,
        Some(_) if !matches!(range.parameter("v"), Some("v1" | "v1beta1")) => return None,
        // Upstream has no protobuf form of tables, because their cells have no schema.
        Some("Table") if format != Format::Protobuf => Transform::Table,
        Some("PartialObjectMetadata") => Transform::Partial,
        Some("PartialObjectMetadataList") => Transform::PartialList,
        // The client's next range decides, as kubectl expects from servers that lack a
        // transformation.
        Some(_) => return None,
    };
    Some(MediaType {
        format,
        transform,
        pretty: false,
    })
}

/// Returns a 406 error.
pub fn not_acceptable() -> ApiError {
    let text = format!("only the following media types are accepted: {JSON}, {YAML}, {PROTOBUF}");
    ApiError::new(Reason::NotAcceptable, text)
}

/// Returns a 406 error for the metadata of one object where the response is a list, and the
/// reverse.
pub fn wrong_plurality(transform: Transform, kind: &str) -> ApiError {
    let (requested, what) = match transform {
        Transform::PartialList => ("PartialObjectMetadataList", "not a list"),
        _ => ("PartialObjectMetadata", "a list"),
    };
    ApiError::new(
        Reason::NotAcceptable,
        format!("you requested {requested}, but the requested object is {what} ({kind})"),
    )
}

/// Returns the format of a body by its Content-Type; an empty one is JSON.
pub fn body_format(content_type: &str) -> Result<Format, ApiError> {
    match media_type(content_type).as_str() {
        "" | JSON => Ok(Format::Json),
        YAML => Ok(Format::Yaml),
        PROTOBUF => Ok(Format::Protobuf),
        _ => Err(unsupported_media_type(&[JSON, YAML, PROTOBUF])),
    }
}

/// Returns a Content-Type without parameters, in lower case.
pub fn media_type(content_type: &str) -> String {
    content_type
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase()
}

/// Returns a 415 error.
pub fn unsupported_media_type(accepted: &[&str]) -> ApiError {
    let text = "the body of the request was in an unknown format - accepted media types include: ";
    ApiError::new(
        Reason::UnsupportedMediaType,
        format!("{text}{}", accepted.join(", ")),
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn accept_headers() {
        let check = |accept: &str, format: Format| {
            assert_eq!(
                negotiate_media_type(accept).unwrap().format,
                format,
                "{accept}"
            )
        };
        check("", Format::Json);
        check("*/*", Format::Json);
        check("text/html, application/yaml;q=0.3", Format::Yaml);
        check(
            "application/vnd.kubernetes.protobuf;q=0.1,application/json;q=0.9",
            Format::Json,
        );
        check(
            "application/vnd.kubernetes.protobuf,application/json",
            Format::Protobuf,
        );
        let table =
            negotiate_media_type("application/json;as=Table;v=v1;g=meta.k8s.io,application/json")
                .unwrap();
        assert_eq!(table.transform, Transform::Table);
        let plain = media_type_without_table(
            "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
        )
        .unwrap();
        assert_eq!(plain.transform, Transform::None);
        let protobuf = "application/vnd.kubernetes.protobuf";
        let fallback = media_type_without_protobuf(&format!("{protobuf},application/yaml"));
        assert_eq!(fallback.unwrap().format, Format::Yaml);
        let only = media_type_without_protobuf(protobuf);
        assert_eq!(only.unwrap_err().reason, Reason::NotAcceptable);
        let metadata = format!("{protobuf};as=PartialObjectMetadata;v=v1;g=meta.k8s.io");
        assert!(media_type_without_protobuf(&metadata).is_ok());
        let only_table = media_type_without_table("application/json;as=Table;v=v1;g=meta.k8s.io");
        assert_eq!(only_table.unwrap_err().reason, Reason::NotAcceptable);
        let list = negotiate_media_type(
            "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
        )
        .unwrap();
        assert_eq!(list.transform, Transform::PartialList);
        assert!(negotiate_media_type("text/csv").is_err());
        assert!(negotiate_media_type("application/json;as=Chart;v=v1;g=meta.k8s.io").is_err());
    }
}
