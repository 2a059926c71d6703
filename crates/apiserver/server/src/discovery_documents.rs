//! Discovery documents over HTTP: negotiates form and encoding.

mod openapi;

use crate::body::{Body, full_body};
use crate::context::Context;
use crate::negotiate::{self, Format, Formats, JSON, MediaType, PROTOBUF};
use crate::respond;
use api_kinds::ResourceSet;
use api_meta::ApiError;
use api_openapi::discovery;
use api_schema::schema;
use apiserver_aggregator::{RemoteVersion, merge_aggregated, merge_group, merge_groups};
use http::header::{CONTENT_TYPE, ETAG, HeaderValue, VARY};
use http::{Response, StatusCode};
use openapi::OpenApi;
pub use openapi::RemoteOpenApi;
use serde_json::Value;

/// The discovery documents of this server.
pub struct Discovery {
    /// `host:port` for clients.
    address: String,
    openapi: OpenApi,
}

/// The requested form of a root document.
enum Form {
    /// `APIVersions`, `APIGroupList`
    Plain(MediaType),
    /// `APIGroupDiscoveryList` in a version
    Aggregated(&'static str, Format),
}

impl Discovery {
    /// Creates the documents of a server at `address`.
    pub fn new(address: &str) -> Self {
        Discovery {
            address: address.to_owned(),
            openapi: OpenApi::default(),
        }
    }

    /// Returns the OpenAPI documents.
    pub fn openapi(&self) -> &OpenApi {
        &self.openapi
    }

    /// Lists the paths for `/`.
    pub fn list_paths(set: &ResourceSet) -> Vec<String> {
        let mut all: Vec<String> = [
            "/.well-known/openid-configuration",
            "/api",
            "/api/v1",
            "/apis",
        ]
        .map(String::from)
        .into();
        for group in set.groups().iter().filter(|group| !group.name.is_empty()) {
            all.push(format!("/apis/{}", group.name));
            all.extend(
                group
                    .versions
                    .iter()
                    .map(|version| format!("/apis/{}/{version}", group.name)),
            );
        }
        let rest = [
            "/flagz",
            "/healthz",
            "/healthz/etcd",
            "/healthz/log",
            "/healthz/ping",
            "/livez",
            "/livez/etcd",
            "/livez/log",
            "/livez/ping",
            "/metrics",
            "/openapi/v2",
            "/openapi/v3",
            "/openid/v1/jwks",
            "/readyz",
            "/readyz/etcd",
            "/readyz/informer-sync",
            "/readyz/log",
            "/readyz/ping",
            "/readyz/shutdown",
            "/statusz",
            "/version",
        ];
        all.extend(rest.map(String::from));
        all
    }

    /// Responds to `/api`, `/apis` and the paths below.
    pub fn respond_document(
        &self,
        set: &ResourceSet,
        remote: &[RemoteVersion],
        context: &Context,
        parts: &[&str],
    ) -> Result<Option<Response<Body>>, ApiError> {
        let document = match parts {
            [root @ ("api" | "apis")] => {
                return self.root_document(set, remote, context, root).map(Some);
            }
            ["apis", group] => {
                let local = discovery::api_group(set, group).unwrap_or_default();
                Some(merge_group(local, group, remote)).filter(|entry| !entry.is_null())
            }
            ["api", version] => discovery::api_resources(set, "", version),
            ["apis", group, version] => discovery::api_resources(set, group, version),
            _ => None,
        };
        match document {
            Some(document) => Ok(Some(meta_object(context.media_type()?, &document))),
            // Upstream has a Status for unknown versions of a known group, and plain text for
            // unknown groups.
            None if parts.len() == 3 && discovery::api_group(set, parts[1]).is_some() => {
                Err(ApiError::no_such_path())
            }
            None => Ok(None),
        }
    }

    fn root_document(
        &self,
        set: &ResourceSet,
        remote: &[RemoteVersion],
        context: &Context,
        root: &str,
    ) -> Result<Response<Body>, ApiError> {
        match parse_form(context.header("accept"))? {
            Form::Aggregated(version, format) => {
                let mut document = discovery::aggregated(set, root == "api", version);
                if root == "apis" {
                    merge_aggregated(&mut document, remote);
                }
                Ok(aggregated_response(context, version, format, &document))
            }
            Form::Plain(media_type) if root == "api" => Ok(with_vary(meta_object(
                media_type,
                &discovery::api_versions(&self.address),
            ))),
            Form::Plain(media_type) => {
                let mut document = discovery::api_groups(set);
                merge_groups(&mut document, remote);
                Ok(with_vary(meta_object(media_type, &document)))
            }
        }
    }
}

fn parse_form(accept: &str) -> Result<Form, ApiError> {
    if accept.trim().is_empty() {
        return Ok(Form::Plain(MediaType::default()));
    }
    // kubectl offers the aggregated form first and the plain one as a fallback.
    for range in negotiate::parse_ranges(accept) {
        let format = match range.media_type.as_str() {
            PROTOBUF => Format::Protobuf,
            JSON | "*/*" | "application/*" => Format::Json,
            negotiate::YAML => Format::Yaml,
            _ => continue,
        };
        match (range.parameter("as"), range.parameter("v")) {
            (None, _) => {
                return Ok(Form::Plain(MediaType {
                    format,
                    ..MediaType::default()
                }));
            }
            (Some("APIGroupDiscoveryList"), Some("v2")) if format != Format::Yaml => {
                return Ok(Form::Aggregated("v2", format));
            }
            (Some("APIGroupDiscoveryList"), Some("v2beta1")) if format != Format::Yaml => {
                return Ok(Form::Aggregated("v2beta1", format));
            }
            _ => {}
        }
    }
    Err(Formats::default().not_acceptable())
}

fn aggregated_response(
    context: &Context,
    version: &str,
    format: Format,
    list: &Value,
) -> Response<Body> {
    let message = schema().message(&format!(
        "k8s.io.api.apidiscovery.{version}.APIGroupDiscoveryList"
    ));
    let bytes = match message {
        Some(message) => respond::encode_tree(
            MediaType {
                format,
                ..MediaType::default()
            },
            &message.into(),
            list,
        ),
        None => respond::encode_untyped(MediaType::default(), list),
    };
    // Clients cache discovery by this tag, so that it depends on the content alone and not on the
    // server.
    let tag = discovery::entity_tag(&bytes);
    let media_type = format!(
        "{};g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList",
        format.media_type()
    );
    let mut response = respond::raw_response(200, &media_type, bytes);
    if context.header("if-none-match") == tag {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        *response.body_mut() = full_body("");
        response.headers_mut().remove(CONTENT_TYPE);
    }
    if let Ok(value) = HeaderValue::from_str(&tag) {
        response.headers_mut().insert(ETAG, value);
    }
    with_vary(response)
}

fn with_vary(mut response: Response<Body>) -> Response<Body> {
    response
        .headers_mut()
        // One URL has two documents, which a cache between client and server must not confuse.
        .insert(VARY, HeaderValue::from_static("Accept"));
    response
}

fn meta_object(media_type: MediaType, tree: &Value) -> Response<Body> {
    let kind = tree["kind"].as_str().unwrap_or_default();
    let message = schema().message(&format!("k8s.io.apimachinery.pkg.apis.meta.v1.{kind}"));
    let mut tree = tree.clone();
    if media_type.format == Format::Protobuf {
        tree["apiVersion"] = "v1".into();
    }
    match message {
        Some(message) => respond::raw_response(
            200,
            media_type.format.media_type(),
            respond::encode_tree(media_type, &message.into(), &tree),
        ),
        None => respond::raw_response(
            200,
            JSON,
            respond::encode_untyped(
                MediaType {
                    format: Format::Json,
                    ..media_type
                },
                &tree,
            ),
        ),
    }
}
