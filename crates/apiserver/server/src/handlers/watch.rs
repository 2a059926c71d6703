//! GET with `handle_watch`: finds the start revision, then streams.

use super::options;
use super::watch_rules::{self, WatchOptions};
use super::watch_stream::{Frames, Stream};
use crate::body::Body;
use crate::context::Context;
use crate::negotiate::{CBOR_SEQUENCE, Format};
use crate::respond;
use crate::server::Server;
use api_kinds::Resource;
use api_meta::ApiError;
use apiserver_cache::{ResourceCache, Selection, Subscription};
use http::Response;
use std::sync::Arc;

/// The start of a watch: a subscription, or the compacted revision that was requested and the
/// oldest available one.
enum Start {
    Subscribed(Subscription),
    TooOld { requested: i64, oldest: i64 },
}

/// Handles GET with `handle_watch`.
pub async fn handle_watch(
    server: &Arc<Server>,
    context: &Context,
    resource: &Arc<Resource>,
) -> Result<Response<Body>, ApiError> {
    let media_type = context.resource_media_type(resource)?;
    // A YAML stream has no frames: upstream offers none either.
    if media_type.format == Format::Yaml {
        return Err(context.formats.not_acceptable());
    }
    let options = watch_rules::read_options(context)?;
    // Before the stream begins: after its first byte, an error could only be an event.
    let selection = options::parse_selection(context, resource)?;
    let cache = server
        .caches
        .find_cache(&resource.group, &resource.plural)
        .ok_or_else(ApiError::no_such_path)?;
    let frames = Frames::new(context, resource.clone(), media_type);
    let body = match start_watch(server, &cache, selection.clone(), &options).await? {
        Start::Subscribed(subscription) => {
            Stream::create_body(server, subscription, selection, frames, options)
        }
        Start::TooOld { requested, oldest } => {
            // As upstream's watch cache: status 200 and one ERROR event of code 410, on which
            // reflectors list again.
            let error =
                ApiError::expired(format!("too old resource version: {requested} ({oldest})"));
            crate::body::full_body(frames.encode_error(&error))
        }
    };
    let content_type = match media_type.format {
        // Upstream adds the parameter for protobuf, but not for JSON.
        Format::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch",
        // The response has many items, whichever type was accepted.
        Format::Cbor => CBOR_SEQUENCE,
        other => other.media_type(),
    };
    let mut response = respond::raw_response(200, content_type, "");
    *response.body_mut() = body;
    Ok(response)
}

async fn start_watch(
    server: &Server,
    cache: &ResourceCache,
    selection: Selection,
    options: &WatchOptions,
) -> Result<Start, ApiError> {
    let version = options.resource_version.as_str();
    // `resourceVersion=0` and none both start with the existing objects, as upstream's legacy
    // watch.
    let from_present = options.initial_events == Some(true)
        || (matches!(version, "" | "0") && options.initial_events.is_none());
    if from_present {
        let revision = server.registry.wait_for_version(version).await?;
        return Ok(Start::Subscribed(
            cache.subscribe_from_now(selection, revision),
        ));
    }
    let after = match version {
        // Without initial events, the watch begins at the store's revision: the cache may be
        // behind, and would send older changes.
        "" | "0" => server.registry.wait_for_version("").await?,
        text => {
            // The version may come from another server that is ahead of this one.
            server.registry.wait_for_version(text).await?;
            text.parse().unwrap_or(0)
        }
    };
    Ok(match cache.subscribe_after(selection, after) {
        Ok(subscription) => Start::Subscribed(subscription),
        Err(oldest) => Start::TooOld {
            requested: after,
            oldest,
        },
    })
}
