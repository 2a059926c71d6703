//! Discovery, OpenAPI, `/version` and the documents of service account token verification.

use crate::body::Body;
use crate::context::Context;
use crate::discovery_documents::{Discovery, RemoteOpenApi};
use crate::respond;
use crate::server::Server;
use crate::version::GIT_VERSION;
use api_kinds::{EmulatedRelease, Release};
use api_meta::ApiError;
use api_openapi::{CustomResources, Definition};
use apiserver_cache::Entry;
use http::Response;
use serde_json::{Value, json};
use std::sync::Arc;

/// Returns the document of `/version`.
pub fn version_info(emulated: &EmulatedRelease) -> Value {
    let EmulatedRelease {
        release,
        min_compatibility,
        ..
    } = emulated;
    // Clients compare gitVersion as a semantic version, in which the part after `+` does not count.
    json!({"major": Release::CURRENT.major.to_string(), "minor": Release::CURRENT.minor.to_string(),
        "emulationMajor": release.major.to_string(), "emulationMinor": release.minor.to_string(),
        "minCompatibilityMajor": min_compatibility.major.to_string(),
        "minCompatibilityMinor": min_compatibility.minor.to_string(),
        "gitVersion": GIT_VERSION, "gitCommit": "", "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z", "goVersion": "go1.26", "compiler": "rustc",
        "platform": format!("linux/{}", go_architecture())})
}

fn go_architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// Responds to discovery paths; `None` for other paths.
pub async fn respond_discovery(
    server: &Server,
    context: &Context,
    path: &str,
) -> Result<Option<Response<Body>>, ApiError> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    match parts.as_slice() {
        [] => Ok(Some(respond::plain_json(
            200,
            &json!({"paths": Discovery::list_paths(server.caches.served().resources())}),
        ))),
        ["api"] | ["apis"] | ["apis", _] | ["api", _] | ["apis", _, _] => {
            let served = server.caches.served();
            server.discovery.respond_document(
                served.resources(),
                &server.aggregation.remote_versions(),
                context,
                &parts,
            )
        }
        // Without service accounts there are no keys to verify tokens with, so that the path does
        // not exist.
        ["openid", "v1", "jwks"] => Ok(server.authn.accounts().map(|accounts| {
            let keys = serde_json::to_vec(&accounts.jwks()).unwrap_or_default();
            respond::raw_response(200, "application/jwk-set+json", keys)
        })),
        ["openapi", ..] => {
            let custom = collect_custom(server);
            let remote = RemoteOpenApi {
                paths: server.aggregation.openapi_paths(),
                documents: match parts.as_slice() {
                    [_, "v2"] => server.aggregation.openapi_v2(),
                    _ => Vec::new(),
                },
            };
            let openapi = server.discovery.openapi();
            openapi
                .respond_openapi(context, &parts, custom, remote)
                .await
        }
        [".well-known", "openid-configuration"] => Ok(server.authn.accounts().map(|accounts| {
            respond::plain_json(
                200,
                &accounts.openid_configuration(&server.external_address),
            )
        })),
        _ => Ok(None),
    }
}

/// A definition in the watch cache.
struct CachedDefinition(Arc<Entry>);

impl Definition for CachedDefinition {
    fn revision(&self) -> i64 {
        self.0.revision
    }

    fn load(&self) -> Option<Value> {
        self.0.decode_tree().ok()
    }
}

/// Returns the custom resources that are served now, with their definitions.
fn collect_custom(server: &Server) -> CustomResources {
    let served = server.caches.served();
    let definitions = served.find_cache("apiextensions.k8s.io", "customresourcedefinitions");
    let collected = CustomResources::new(served.resources(), |name| {
        let entry = definitions?.get(name)?;
        Some(Arc::new(CachedDefinition(entry)) as Arc<dyn Definition>)
    });
    collected.with_cbor(server.formats.cbor)
}
