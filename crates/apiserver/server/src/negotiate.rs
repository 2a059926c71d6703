//! Content negotiation: media type, transformation, indentation.

use api_meta::{ApiError, Reason};

/// JSON.
pub const JSON: &str = "application/json";
/// YAML.
pub const YAML: &str = "application/yaml";
/// Kubernetes' protobuf.
pub const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
/// CBOR: one item.
pub const CBOR: &str = "application/cbor";
/// CBOR: the items of a watch.
pub const CBOR_SEQUENCE: &str = "application/cbor-seq";

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
    /// CBOR
    Cbor,
}

impl Format {
    /// Returns the media type.
    pub fn media_type(self) -> &'static str {
        match self {
            Format::Json => JSON,
            Format::Yaml => YAML,
            Format::Protobuf => PROTOBUF,
            Format::Cbor => CBOR,
        }
    }
}

/// The formats that a server offers for resources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Formats {
    /// CBOR beside the others.
    pub cbor: bool,
}

impl Formats {
    /// Returns the media types in upstream's order.
    fn media_types(self) -> &'static [&'static str] {
        if self.cbor {
            &[JSON, YAML, PROTOBUF, CBOR]
        } else {
            &[JSON, YAML, PROTOBUF]
        }
    }

    /// Returns the format with that media type.
    fn find(self, media_type: &str) -> Option<Format> {
        let all = [Format::Json, Format::Yaml, Format::Protobuf, Format::Cbor];
        all.into_iter()
            .filter(|format| *format != Format::Cbor || self.cbor)
            .find(|format| format.media_type() == media_type)
    }

    /// Negotiates the representation of an object, list or watch from an Accept header.
    pub fn negotiate(self, accept: &str) -> Result<MediaType, ApiError> {
        self.first_of(accept, |_| true)
    }

    /// Negotiates the representation of a kind without a protobuf encoding. Its metadata has one.
    pub fn negotiate_without_protobuf(self, accept: &str) -> Result<MediaType, ApiError> {
        self.first_of(accept, |media_type| {
            media_type.format != Format::Protobuf || media_type.transform != Transform::None
        })
    }

    /// Negotiates the representation of an object without columns: a Table is not acceptable.
    pub fn negotiate_without_table(self, accept: &str) -> Result<MediaType, ApiError> {
        self.first_of(accept, |media_type| {
            media_type.transform != Transform::Table
        })
    }

    fn first_of(
        self,
        accept: &str,
        possible: impl Fn(&MediaType) -> bool,
    ) -> Result<MediaType, ApiError> {
        if accept.trim().is_empty() {
            return Ok(MediaType::default());
        }
        let ranges = parse_ranges(accept);
        let mut acceptable = ranges
            .iter()
            // RFC 9110: a weight of 0 means "not acceptable".
            .filter(|r| r.quality > 0.0)
            .filter_map(|range| self.accept_range(range));
        acceptable
            .find(possible)
            .ok_or_else(|| self.not_acceptable())
    }

    fn accept_range(self, range: &MediaRange) -> Option<MediaType> {
        let format = match range.media_type.as_str() {
            // JSON is the first of upstream's serializers, which wildcards get.
            "application/*" | "*/*" => Format::Json,
            media_type => self.find(media_type)?,
        };
        let transform = match range.parameter("as") {
            None => Transform::None,
            // Other groups have their own transformations, such as discovery, which resources do
            // not have.
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
    pub fn not_acceptable(self) -> ApiError {
        let accepted = self.media_types().join(", ");
        let text = format!("only the following media types are accepted: {accepted}");
        ApiError::new(Reason::NotAcceptable, text)
    }

    /// Returns the format of a body by its Content-Type; an empty one is JSON.
    pub fn body_format(self, content_type: &str) -> Result<Format, ApiError> {
        match media_type(content_type).as_str() {
            "" => Ok(Format::Json),
            media_type => self
                .find(media_type)
                .ok_or_else(|| unsupported_media_type(self.media_types())),
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

    const FORMATS: Formats = Formats { cbor: false };
    const WITH_CBOR: Formats = Formats { cbor: true };

    #[test]
    fn cbor_is_offered_if_enabled() {
        assert_eq!(WITH_CBOR.negotiate(CBOR).unwrap().format, Format::Cbor);
        let table = format!("{CBOR};as=Table;v=v1;g=meta.k8s.io");
        let table = WITH_CBOR.negotiate(&table).unwrap();
        assert_eq!(
            (table.format, table.transform),
            (Format::Cbor, Transform::Table)
        );
        assert_eq!(WITH_CBOR.body_format(CBOR).unwrap(), Format::Cbor);
        // As upstream: the media type of watches is not one that clients accept.
        let error = WITH_CBOR.negotiate(CBOR_SEQUENCE).unwrap_err();
        assert!(error.message.ends_with(", application/cbor"), "{error}");
        let error = FORMATS.negotiate(CBOR).unwrap_err();
        assert!(!error.message.contains("cbor"), "{error}");
        let preferred = FORMATS.negotiate(&format!("{CBOR},application/json;q=0.9"));
        assert_eq!(preferred.unwrap().format, Format::Json);
        let error = FORMATS.body_format(CBOR).unwrap_err();
        assert_eq!(error.reason, Reason::UnsupportedMediaType);
        assert!(!error.message.contains("cbor"), "{error}");
    }

    #[test]
    fn accept_headers() {
        let check = |accept: &str, format: Format| {
            assert_eq!(
                FORMATS.negotiate(accept).unwrap().format,
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
        let table = FORMATS
            .negotiate("application/json;as=Table;v=v1;g=meta.k8s.io,application/json")
            .unwrap();
        assert_eq!(table.transform, Transform::Table);
        let plain = FORMATS
            .negotiate_without_table(
                "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
            )
            .unwrap();
        assert_eq!(plain.transform, Transform::None);
        let protobuf = "application/vnd.kubernetes.protobuf";
        let fallback = FORMATS.negotiate_without_protobuf(&format!("{protobuf},application/yaml"));
        assert_eq!(fallback.unwrap().format, Format::Yaml);
        let only = FORMATS.negotiate_without_protobuf(protobuf);
        assert_eq!(only.unwrap_err().reason, Reason::NotAcceptable);
        let metadata = format!("{protobuf};as=PartialObjectMetadata;v=v1;g=meta.k8s.io");
        assert!(FORMATS.negotiate_without_protobuf(&metadata).is_ok());
        let only_table =
            FORMATS.negotiate_without_table("application/json;as=Table;v=v1;g=meta.k8s.io");
        assert_eq!(only_table.unwrap_err().reason, Reason::NotAcceptable);
        let list = FORMATS
            .negotiate("application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io")
            .unwrap();
        assert_eq!(list.transform, Transform::PartialList);
        assert!(FORMATS.negotiate("text/csv").is_err());
        assert!(
            FORMATS
                .negotiate("application/json;as=Chart;v=v1;g=meta.k8s.io")
                .is_err()
        );
    }
}
