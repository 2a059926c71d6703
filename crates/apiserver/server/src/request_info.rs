//! What a method and path ask for.

use crate::query::Query;
use api_meta::fields::FieldSelector;
use apiserver_request::RequestInfo;
use http::Method;
use percent_encoding::percent_decode_str;

/// A path that is refused before anybody looks at what it names.
#[derive(Debug, PartialEq, Eq)]
pub enum BadPath {
    /// Not UTF-8, or a broken escape, or a NUL.
    Malformed,
    /// Has `.`, `..` or empty segments; the clean form.
    Unclean(String),
}

/// Subresources of namespaces, which stand where a resource in the namespace would.
const OF_NAMESPACE: [&str; 2] = ["status", "finalize"];

/// Reads a request's path; `raw` is as sent.
pub fn parse(method: &Method, raw: &str, query: &Query) -> Result<RequestInfo, BadPath> {
    let path = decoded(raw)?;
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let mut info =
        RequestInfo { path: path.clone(), verb: method.as_str().to_ascii_lowercase(), ..RequestInfo::default() };
    let rest = match parts.as_slice() {
        ["api", version, rest @ ..] => {
            info.version = (*version).to_owned();
            rest
        }
        ["apis", group, version, rest @ ..] => {
            (info.group, info.version) = ((*group).to_owned(), (*version).to_owned());
            rest
        }
        _ => return Ok(info),
    };
    if rest.is_empty() {
        return Ok(info);
    }
    info.verb = verb_of(method).to_owned();
    let rest = match rest {
        ["watch", rest @ ..] if !rest.is_empty() => {
            info.verb = "watch".into();
            rest
        }
        rest => rest,
    };
    fill_resource(&mut info, rest, &path);
    fill_collection_verb(&mut info, query);
    Ok(info)
}

fn decoded(raw: &str) -> Result<String, BadPath> {
    let bytes = raw.as_bytes();
    let broken = bytes.iter().enumerate().any(|(at, b)| {
        *b == b'%' && !bytes.get(at + 1..at + 3).is_some_and(|hex| hex.iter().all(u8::is_ascii_hexdigit))
    });
    if broken {
        return Err(BadPath::Malformed);
    }
    let path = percent_decode_str(raw).decode_utf8().map_err(|_| BadPath::Malformed)?.into_owned();
    if path.contains('\0') {
        return Err(BadPath::Malformed);
    }
    // What follows a proxy subresource belongs to somebody else and is passed on as it is.
    let own = path.find("/proxy/").map_or(path.as_str(), |at| &path[..at]);
    let inner = own.strip_prefix('/').unwrap_or(own);
    let inner = inner.strip_suffix('/').unwrap_or(inner);
    let unclean = !inner.is_empty() && inner.split('/').any(|part| matches!(part, "" | "." | ".."));
    if unclean { Err(BadPath::Unclean(clean(&path))) } else { Ok(path) }
}

/// The path without `.` and empty segments, `..` resolved.
fn clean(path: &str) -> String {
    let mut out: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(out.pop()),
            part => out.push(part),
        }
    }
    format!("/{}", out.join("/"))
}

fn verb_of(method: &Method) -> &'static str {
    match *method {
        Method::POST => "create",
        Method::GET | Method::HEAD => "get",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "",
    }
}

fn fill_resource(info: &mut RequestInfo, rest: &[&str], path: &str) {
    info.is_resource = true;
    let mut rest = rest;
    if let ["namespaces", namespace, inner @ ..] = rest {
        info.namespace = (*namespace).to_owned();
        if let Some(first) = inner.first()
            && !OF_NAMESPACE.contains(first)
        {
            rest = inner;
        }
    }
    let text = |at: usize| rest.get(at).map(|part| (*part).to_owned()).unwrap_or_default();
    (info.resource, info.name, info.subresource) = (text(0), text(1), text(2));
    if rest.len() > 3 {
        let marker = format!("/{}/", info.subresource);
        info.rest = path.split_once(&marker).map(|(_, rest)| rest.to_owned()).unwrap_or_default();
    }
}

/// Without a name a read is a list (or watch), a delete is of a collection.
fn fill_collection_verb(info: &mut RequestInfo, query: &Query) {
    let selects_name =
        || FieldSelector::parse(query.text("fieldSelector")).ok()?.exact("metadata.name").map(str::to_owned);
    if info.name.is_empty() {
        match info.verb.as_str() {
            "get" => info.verb = if query.flag("watch") { "watch" } else { "list" }.to_owned(),
            "delete" => info.verb = "deletecollection".into(),
            _ => {}
        }
        if matches!(info.verb.as_str(), "list" | "watch" | "deletecollection") {
            info.name = selects_name().unwrap_or_default();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn check(method: Method, path: &str, query: &str, expect: &str) {
        let i = parse(&method, path, &Query::parse(query)).unwrap();
        let got = [&i.verb, &i.group, &i.version, &i.namespace, &i.resource, &i.name, &i.subresource, &i.rest];
        assert_eq!(got.map(String::as_str).join(" "), expect, "{path}");
    }

    #[test]
    fn paths() {
        check(Method::GET, "/api/v1/namespaces/d/pods", "", "list  v1 d pods   ");
        check(Method::GET, "/api/v1/pods", "watch=1", "watch  v1  pods   ");
        check(Method::GET, "/api/v1/namespaces/d", "", "get  v1 d namespaces d  ");
        check(Method::PUT, "/api/v1/namespaces/d/finalize", "", "update  v1 d namespaces d finalize ");
        check(Method::POST, "/apis/apps/v1/namespaces/d/deployments", "", "create apps v1 d deployments   ");
        check(Method::GET, "/api/v1/watch/namespaces/d/pods/p", "", "watch  v1 d pods p  ");
        check(Method::GET, "/api/v1/namespaces/d/pods/p/proxy/a/b", "", "get  v1 d pods p proxy a/b");
        check(Method::DELETE, "/api/v1/nodes", "", "deletecollection  v1  nodes   ");
        check(Method::GET, "/version/", "", "get       ");
        assert_eq!(parse(&Method::GET, "/a/../b", &Query::default()), Err(BadPath::Unclean("/b".into())));
        assert_eq!(parse(&Method::GET, "/a/%zz", &Query::default()), Err(BadPath::Malformed));
    }
}
