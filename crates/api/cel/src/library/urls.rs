//! Library of Kubernetes for URLs.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;

use crate::error::EvalError;
use crate::function::{Function, Implementation, Overload};
use crate::library::Library;
use crate::types::Type;
use crate::value::{Key, Object, Text, Value};

use super::costs::{
    accessor_cost, check_parsed, copy_cost, estimate_accessor, estimate_conversion, traverse_once,
};
use super::web_address::{WebAddress, check_request_uri, parse_url};

/// A URL as a value, with its text for comparisons.
struct Url {
    address: WebAddress,
    text: String,
}

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "url({})", self.text)
    }
}

fn url_type() -> Type {
    Type::object("kubernetes.URL")
}

impl Object for Url {
    fn object_type(&self) -> Type {
        url_type()
    }

    fn is_equal(&self, other: &dyn Object) -> bool {
        let other: Option<&Url> = other.as_any().downcast_ref();
        // The texts decide, as upstream: `%62` and `b` are different paths.
        other.is_some_and(|other| self.text == other.text)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Returns the library.
pub fn library() -> Library {
    let getter = |name, id, result, run: Implementation| {
        let overload = Overload::receiver(id, vec![url_type()], result, run);
        Function::new(
            name,
            vec![overload.with_cost(accessor_cost, estimate_accessor)],
        )
    };
    let parse = Overload::global("string_to_url", vec![Type::String], url_type(), url);
    let is_url = Overload::global("is_url_string", vec![Type::String], Type::Bool, is_url);
    let parameters = Type::map(Type::String, Type::list(Type::String));
    let query = Overload::receiver("url_get_query", vec![url_type()], parameters, query);
    Library {
        name: "kubernetes.urls",
        functions: vec![
            Function::new(
                "url",
                vec![parse.with_cost(traverse_once, estimate_conversion)],
            ),
            // Without a cost of its own: upstream's table lacks `isURL`, so it costs 1.
            Function::new("isURL", vec![is_url]),
            getter("getScheme", "url_get_scheme", Type::String, scheme),
            getter("getHost", "url_get_host", Type::String, host),
            getter("getHostname", "url_get_hostname", Type::String, hostname),
            getter("getPort", "url_get_port", Type::String, port),
            getter(
                "getEscapedPath",
                "url_get_escaped_path",
                Type::String,
                escaped_path,
            ),
            Function::new(
                "getQuery",
                vec![query.with_cost(query_cost, estimate_accessor)],
            ),
        ],
        ..Library::default()
    }
}

/// Returns the cost of the texts that `getQuery` copies.
fn query_cost<'v>(values: &[Value<'v>], _: &Value<'v>) -> Option<u64> {
    let url: Option<&Url> = values.first().and_then(Value::downcast);
    Some(copy_cost(url.map_or(0, |url| url.text.len())))
}

fn take_text<'a>(values: &'a [Value<'_>]) -> Result<&'a str, EvalError> {
    match values {
        [Value::String(text)] => Ok(text),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn take_url<'a>(values: &'a [Value<'_>]) -> Result<&'a WebAddress, EvalError> {
    let url: Option<&Url> = values.first().and_then(Value::downcast);
    url.map(|url| &url.address).ok_or(EvalError::NoSuchOverload)
}

fn url<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    let text = take_text(values)?;
    check_parsed(text)?;
    let parsed = parse_url(text).map_err(|error| {
        EvalError::message(format!(
            "URL parse error during conversion from string: {error}"
        ))
    })?;
    let text = parsed.to_string();
    Ok(Value::object(Url {
        address: parsed,
        text,
    }))
}

fn is_url<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    let text = take_text(values)?;
    let is_url = check_parsed(text).is_ok() && check_request_uri(text).is_ok();
    Ok(Value::Bool(is_url))
}

fn scheme<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    Ok(Value::string(take_url(values)?.scheme()))
}

fn host<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    Ok(Value::string(take_url(values)?.host()))
}

fn hostname<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    Ok(Value::string(take_url(values)?.hostname()))
}

fn port<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    Ok(Value::string(take_url(values)?.port()))
}

fn escaped_path<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    Ok(Value::string(take_url(values)?.escaped_path()))
}

fn query<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    let parameters = take_url(values)?.parameters();
    let entries: BTreeMap<Key<'v>, Value<'v>> = parameters
        .into_iter()
        .map(|(name, texts)| {
            let texts = texts.into_iter().map(Value::string).collect();
            (Key::String(Text::Shared(name.into())), Value::list(texts))
        })
        .collect();
    Ok(Value::map(entries))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn urls_are_equal_by_their_text() {
        let url = |text: &str| url(&[Value::string(text)]).unwrap();
        for (left, right, expected) in [
            ("HTTP://a/b", "http://a/b", true),
            ("http://a/%62", "http://a/b", false),
            ("http://a", "http://a/", false),
        ] {
            let equal = crate::compare::equal(&url(left), &url(right));
            assert_eq!(equal, expected, "{left} {right}");
        }
    }

    #[test]
    fn query_is_a_map_of_lists() {
        let url = url(&[Value::string("http://a/?k=1&k=2&x")]).unwrap();
        let Value::Map(map) = query(&[url]).unwrap() else {
            panic!("no map")
        };
        let Some(Value::List(texts)) = map.get_field("k") else {
            panic!("no list")
        };
        assert_eq!((map.len(), texts.len()), (2, 2));
    }

    #[test]
    fn long_urls_are_rejected_and_copies_are_charged() {
        let long = || Value::string(format!("/{}", "a".repeat(70_000)));
        assert!(url(&[long()]).is_err());
        assert!(matches!(is_url(&[long()]).unwrap(), Value::Bool(false)));
        let url = url(&[Value::string(format!("/?{}", "a".repeat(11_024)))]).unwrap();
        assert!(query_cost(&[url], &Value::Null) > Some(1_000));
    }

    #[test]
    fn relative_references_are_no_urls() {
        for (text, expected) in [("/a", true), ("a", false), ("", false), ("mailto:x", true)] {
            let found = is_url(&[Value::string(text)]).unwrap();
            assert!(
                matches!(found, Value::Bool(flag) if flag == expected),
                "{text}"
            );
        }
    }
}
