//! Filters of HTTPRoutes. A route with a filter that is unknown or can't be applied is refused:
//! served without the filter, it would not be what its author wrote.

use http::StatusCode;
use http::header::{HeaderName, HeaderValue};
use http::uri::PathAndQuery;

use crate::action::{HeaderEdit, PathEdit, Redirect, Rewrite, is_editable};
use crate::gateway_api::{
    HeaderModifier, HttpHeader, PathModifier, RequestRedirect, RouteFilter, UrlRewrite,
    describe_others,
};
use crate::host::HostPattern;

/// Maximum number of headers that a filter changes, each way.
const MAX_HEADERS: usize = 64;

/// The filters of a rule or a backend.
#[derive(Debug, Default)]
pub(crate) struct Filters {
    pub(crate) request_headers: HeaderEdit,
    pub(crate) response_headers: HeaderEdit,
    pub(crate) redirect: Option<Redirect>,
    pub(crate) rewrite: Option<Rewrite>,
}

/// Returns the filters.
///
/// # Errors
/// A sentence for the status of the route.
pub(crate) fn compile_filters(filters: &[RouteFilter]) -> Result<Filters, String> {
    let mut compiled = Filters::default();
    let mut seen: Vec<&str> = Vec::new();
    for filter in filters {
        let kind = filter.kind.as_str();
        if seen.contains(&kind) {
            return Err(format!("the filter {kind} is repeated"));
        }
        seen.push(kind);
        if let Some(problem) = describe_others(&format!("the filter {kind}"), &filter.others)
            && is_supported(kind)
        {
            return Err(problem);
        }
        let missing = || format!("the filter {kind} has no field of its own");
        match kind {
            "RequestHeaderModifier" => {
                let found = filter.request_header_modifier.as_ref();
                compiled.request_headers = compile_headers(found.ok_or_else(missing)?)?;
            }
            "ResponseHeaderModifier" => {
                let found = filter.response_header_modifier.as_ref();
                compiled.response_headers = compile_headers(found.ok_or_else(missing)?)?;
            }
            "RequestRedirect" => {
                let found = filter.request_redirect.as_ref();
                compiled.redirect = Some(compile_redirect(found.ok_or_else(missing)?)?);
            }
            "URLRewrite" => {
                let found = filter.url_rewrite.as_ref();
                compiled.rewrite = Some(compile_rewrite(found.ok_or_else(missing)?)?);
            }
            other => return Err(format!("the filter {other} is not supported")),
        }
    }
    Ok(compiled)
}

/// Returns whether a filter is supported. The fields of others are not worth a message.
fn is_supported(kind: &str) -> bool {
    matches!(
        kind,
        "RequestHeaderModifier" | "ResponseHeaderModifier" | "RequestRedirect" | "URLRewrite"
    )
}

fn compile_headers(modifier: &HeaderModifier) -> Result<HeaderEdit, String> {
    let HeaderModifier { set, add, remove } = modifier;
    if [set.len(), add.len(), remove.len()]
        .into_iter()
        .any(|len| len > MAX_HEADERS)
    {
        return Err(format!("more than {MAX_HEADERS} headers in a filter"));
    }
    let pairs = |headers: &[HttpHeader]| {
        let pair = |header: &HttpHeader| {
            // Refuses line breaks, too.
            let value = HeaderValue::try_from(header.value.as_str());
            let value = value
                .map_err(|_| format!("the value of {} is no value of a header", header.name))?;
            Ok((editable_name(&header.name)?, value))
        };
        headers.iter().map(pair).collect::<Result<Vec<_>, String>>()
    };
    let removed = remove.iter().map(|name| editable_name(name));
    Ok(HeaderEdit {
        set: pairs(set)?,
        add: pairs(add)?,
        remove: removed.collect::<Result<_, _>>()?,
    })
}

fn editable_name(name: &str) -> Result<HeaderName, String> {
    let parsed = HeaderName::try_from(name);
    let parsed = parsed.map_err(|_| format!("{name:?} is no name of a header"))?;
    match is_editable(&parsed) {
        true => Ok(parsed),
        false => Err(format!("the gateway sets {name} itself")),
    }
}

fn compile_redirect(redirect: &RequestRedirect) -> Result<Redirect, String> {
    let scheme = match redirect.scheme.as_deref() {
        None => None,
        Some("http") => Some("http"),
        Some("https") => Some("https"),
        Some(other) => return Err(format!("the scheme {other} is not supported")),
    };
    let status = match redirect.status_code {
        None | Some(302) => StatusCode::FOUND,
        Some(301) => StatusCode::MOVED_PERMANENTLY,
        Some(303) => StatusCode::SEE_OTHER,
        Some(307) => StatusCode::TEMPORARY_REDIRECT,
        Some(308) => StatusCode::PERMANENT_REDIRECT,
        Some(other) => return Err(format!("the status {other} is not supported")),
    };
    Ok(Redirect {
        scheme,
        hostname: redirect.hostname.as_deref().map(parse_name).transpose()?,
        path: redirect.path.as_ref().map(compile_path).transpose()?,
        port: redirect.port,
        status,
    })
}

fn compile_rewrite(rewrite: &UrlRewrite) -> Result<Rewrite, String> {
    let hostname = rewrite.hostname.as_deref().map(parse_name).transpose()?;
    Ok(Rewrite {
        // A host name is a valid header.
        hostname: hostname.and_then(|name| HeaderValue::try_from(name).ok()),
        path: rewrite.path.as_ref().map(compile_path).transpose()?,
    })
}

fn parse_name(name: &str) -> Result<String, String> {
    match HostPattern::parse_gateway(name) {
        Some(HostPattern::Exact(name)) => Ok(name),
        _ => Err(format!("{name:?} is not a hostname")),
    }
}

fn compile_path(path: &PathModifier) -> Result<PathEdit, String> {
    let check = |value: &Option<String>| {
        let value = value.as_deref().unwrap_or_default();
        let is_path = value.is_empty() || value.starts_with('/');
        let has_end = value.contains(['?', '#']);
        let is_valid = is_path && !has_end && format!("/{value}").parse::<PathAndQuery>().is_ok();
        match is_valid {
            true => Ok(value.to_owned()),
            false => Err(format!("{value:?} is not a path")),
        }
    };
    match path.kind.as_str() {
        "ReplaceFullPath" => {
            let full = check(&path.replace_full_path)?;
            Ok(PathEdit::Full(if full.is_empty() {
                "/".to_owned()
            } else {
                full
            }))
        }
        "ReplacePrefixMatch" => Ok(PathEdit::Prefix(check(&path.replace_prefix_match)?)),
        other => Err(format!("the change of a path {other} is not supported")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::{Value, json};

    fn compile(filter: Value) -> Result<Filters, String> {
        compile_filters(&[serde_json::from_value(filter).unwrap()])
    }

    fn set(name: &str, value: &str) -> Value {
        json!({"type": "RequestHeaderModifier",
            "requestHeaderModifier": {"set": [{"name": name, "value": value}]}})
    }

    fn redirect(fields: Value) -> Value {
        json!({"type": "RequestRedirect", "requestRedirect": fields})
    }

    #[test]
    fn filter_that_cannot_be_applied_refuses_the_route() {
        let rewrite = |path: &str| {
            json!({"type": "URLRewrite", "urlRewrite":
            {"path": {"type": "ReplaceFullPath", "replaceFullPath": path}}})
        };
        for (filter, problem) in [
            (set("x-team", "a b"), None),
            (
                set("x-team", "a\r\nx-admin: 1"),
                Some("no value of a header"),
            ),
            (set("x-team\r\nx", "a"), Some("no name of a header")),
            (set("Transfer-Encoding", "chunked"), Some("itself")),
            (set("X-Forwarded-For", "1.1.1.1"), Some("itself")),
            (
                redirect(json!({"scheme": "https", "statusCode": 301})),
                None,
            ),
            (
                redirect(json!({"hostname": "a.com/@b"})),
                Some("not a hostname"),
            ),
            (
                redirect(json!({"hostname": "*.a.com"})),
                Some("not a hostname"),
            ),
            (
                redirect(json!({"scheme": "javascript"})),
                Some("not supported"),
            ),
            (redirect(json!({"statusCode": 200})), Some("not supported")),
            (rewrite("/x"), None),
            (rewrite("/x?admin=1"), Some("not a path")),
            (rewrite("//x y"), Some("not a path")),
            (json!({"type": "RequestMirror"}), Some("not supported")),
            (json!({"type": "ExtensionRef"}), Some("not supported")),
            (json!({"type": "URLRewrite"}), Some("no field")),
            (
                json!({"type": "CORS", "cors": {"allowOrigins": ["*"]}}),
                Some("the filter CORS is not supported"),
            ),
            (
                json!({"type": "URLRewrite", "urlRewrite": {}, "cors": {}}),
                Some("not supported in the filter URLRewrite: cors"),
            ),
        ] {
            let found = compile(filter.clone()).err();
            assert_eq!(found.is_some(), problem.is_some(), "{filter}: {found:?}");
            let found = found.unwrap_or_default();
            assert!(
                found.contains(problem.unwrap_or_default()),
                "{filter}: {found}"
            );
        }
    }
}
