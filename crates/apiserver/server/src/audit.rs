//! The audit of requests in the handler chain: its beginning and its end.

use crate::authorize::request_attributes;
use crate::body::Body;
use crate::context::Context;
use crate::exempt::is_long_running;
use crate::server::Server;
use api_meta::ApiError;
use api_meta::text::truncate_text;
use apiserver_audit::{ObjectReference, Record, RequestFacts, UserInfo};
use apiserver_request::{AuditAnnotations, User};
use http::{Response, StatusCode};
use std::net::IpAddr;
use std::sync::Arc;

/// Runs a request; with audit, its stages add to the annotations.
pub async fn collect_annotations<T>(
    annotations: Option<AuditAnnotations>,
    work: impl Future<Output = T>,
) -> T {
    match annotations {
        Some(annotations) => annotations.collect(work).await,
        None => work.await,
    }
}

/// Bytes of each text that an anonymous client has chosen, and addresses, in its events. Anyone may
/// send such requests, and many long events would rotate the log away.
const ANONYMOUS_TEXT: usize = 512;
const ANONYMOUS_ADDRESSES: usize = 8;

/// Begins the audit of a request whose user is known.
///
/// # Errors
/// The event can't be recorded, and the mode of the backend is strict.
pub async fn begin_audit(server: &Server, context: &mut Context) -> Result<(), ApiError> {
    if server.audit.is_none() {
        return Ok(());
    }
    let user = Some(UserInfo::from(&context.user));
    let Some(record) = begin_record(server, context, user) else {
        return Ok(());
    };
    // Before the first event: the request may time out while a backend holds it up.
    context.audit = Some(record.clone());
    if let Err(rejected) = Box::pin(record.send_received()).await {
        record.discard();
        context.audit = None;
        return Err(ApiError::internal(rejected.to_string()));
    }
    Ok(())
}

/// Records a request that is not authenticated, as upstream by one event.
pub async fn audit_unauthenticated(server: &Server, context: &Context, error: &ApiError) {
    if let Some(record) = begin_record(server, context, None) {
        record.set_status(&error.status());
        // Before the wait, in which the client may leave: there is one event only.
        record.discard();
        record.send_started(error.code()).await;
    }
}

fn begin_record(server: &Server, context: &Context, user: Option<UserInfo>) -> Option<Arc<Record>> {
    let auditor = server.audit.as_ref()?;
    let annotations = context.annotations.clone().unwrap_or_default();
    auditor.begin_record(&request_attributes(context), annotations, || {
        collect_facts(context, user)
    })
}

/// Records the response; the body of a long one keeps the record until its end.
pub async fn conclude_audit(context: &mut Context, response: Response<Body>) -> Response<Body> {
    let Some(record) = context.audit.take() else {
        return response;
    };
    let status = response.status();
    if is_long_running(&context.info) || status == StatusCode::SWITCHING_PROTOCOLS {
        Box::pin(record.send_started(status.as_u16())).await;
        return response.map(|body| body.with_record(record));
    }
    Box::pin(record.send_complete(status.as_u16())).await;
    response
}

/// Records a handler that panicked.
pub async fn audit_panic(context: &mut Context) {
    if let Some(record) = context.audit.take() {
        Box::pin(record.send_panic()).await;
    }
}

fn collect_facts(context: &Context, user: Option<UserInfo>) -> RequestFacts {
    let mut facts = collect_all_facts(context, user);
    let user = facts.user.as_ref();
    if user.is_none_or(|user| user.username == User::ANONYMOUS) {
        facts.is_anonymous = true;
        shorten_facts(&mut facts);
    }
    facts
}

/// Shortens what an anonymous client has chosen.
fn shorten_facts(facts: &mut RequestFacts) {
    let shorten = |text: &mut String| {
        text.truncate(truncate_text(text, ANONYMOUS_TEXT).len());
    };
    [&mut facts.uri, &mut facts.verb, &mut facts.user_agent]
        .into_iter()
        .for_each(shorten);
    if let Some(object) = &mut facts.object {
        let ObjectReference {
            resource,
            namespace,
            name,
            api_group,
            api_version,
            subresource,
            ..
        } = object;
        [
            resource,
            namespace,
            name,
            api_group,
            api_version,
            subresource,
        ]
        .into_iter()
        .for_each(shorten);
    }
    let surplus = facts.source_ips.len().saturating_sub(ANONYMOUS_ADDRESSES);
    // The last ones are nearest to this server.
    facts.source_ips.drain(..surplus);
}

fn collect_all_facts(context: &Context, user: Option<UserInfo>) -> RequestFacts {
    let info = &context.info;
    let query = match context.raw_query.as_str() {
        "" => String::new(),
        query => format!("?{query}"),
    };
    RequestFacts {
        audit_id: context.audit_id.to_str().unwrap_or_default().to_owned(),
        uri: format!("{}{query}", context.raw_path),
        verb: info.verb.clone(),
        user,
        source_ips: list_source_addresses(context),
        user_agent: context.header("user-agent").to_owned(),
        object: info.is_resource.then(|| ObjectReference {
            resource: info.resource.clone(),
            namespace: info.namespace.clone(),
            name: info.name.clone(),
            api_group: info.group.clone(),
            api_version: info.version.clone(),
            subresource: info.subresource.clone(),
            ..ObjectReference::default()
        }),
        received: context.received,
        is_anonymous: false,
    }
}

/// Returns the addresses that proxies named, then that of the peer. Only the last one is certain.
fn list_source_addresses(context: &Context) -> Vec<String> {
    let parse = |text: &str| text.trim().parse::<IpAddr>().ok();
    let forwarded = context.header("x-forwarded-for").split(',');
    let mut found: Vec<IpAddr> = forwarded.filter_map(parse).collect();
    let real = parse(context.header("x-real-ip"));
    found.extend(real.filter(|address| !found.contains(address)));
    let peer = context
        .peer
        .as_ref()
        .map(|peer| peer.addr.ip().to_canonical());
    found.extend(peer.filter(|address| found.last() != Some(address)));
    found.iter().map(IpAddr::to_string).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use base_serve::Peer;

    #[test]
    fn address_of_the_peer_is_last() {
        for (forwarded, real, expect) in [
            ("", "", "10.0.0.9"),
            (
                "1.1.1.1, nonsense,2001:db8::1",
                "",
                "1.1.1.1 2001:db8::1 10.0.0.9",
            ),
            ("1.1.1.1", "1.1.1.1", "1.1.1.1 10.0.0.9"),
            ("1.1.1.1", "2.2.2.2", "1.1.1.1 2.2.2.2 10.0.0.9"),
            ("10.0.0.9", "", "10.0.0.9"),
        ] {
            let request = http::Request::get("/api")
                .header("x-forwarded-for", forwarded)
                .header("x-real-ip", real);
            let mut context = Context::new(request.body(()).unwrap().into_parts().0).unwrap();
            context.peer = Some(Peer {
                addr: "10.0.0.9:4711".parse().unwrap(),
                certificates: Arc::default(),
                server_name: None,
            });
            assert_eq!(
                list_source_addresses(&context).join(" "),
                expect,
                "{forwarded} {real}"
            );
        }
    }
}
