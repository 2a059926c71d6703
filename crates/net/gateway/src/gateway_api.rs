//! The kinds of the Gateway API (`gateway.networking.k8s.io`), as far as the gateway reads them.
//!
//! Fields that are not implemented are read, too, so that an object with them is refused and not
//! served without them: they may restrict access. This includes fields of later releases.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::Value;

use client::DynamicObject;

use crate::rule::Age;

/// API group of the kinds.
pub const GROUP: &str = "gateway.networking.k8s.io";

/// Fields that the gateway does not know, or does not support.
pub type OtherFields = BTreeMap<String, Value>;

/// Returns a sentence about the fields that an object has and the gateway does not support.
pub fn describe_others(place: &str, others: &OtherFields) -> Option<String> {
    let names: Vec<&str> = others.keys().map(String::as_str).collect();
    (!names.is_empty()).then(|| format!("not supported in {place}: {}", names.join(", ")))
}

/// An object of the Gateway API.
#[derive(Clone, Debug)]
pub struct GatewayObject<S> {
    /// The metadata.
    pub metadata: ObjectMeta,
    /// The specification; the error if it can't be decoded.
    pub spec: Result<S, String>,
    /// The status as it is stored.
    pub status: Value,
}

impl<S: DeserializeOwned> GatewayObject<S> {
    /// Decodes an object.
    pub fn decode(object: &DynamicObject) -> Self {
        let spec = object.rest.get("spec").unwrap_or(&Value::Null);
        Self {
            metadata: object.metadata.clone(),
            spec: S::deserialize(spec).map_err(|error| error.to_string()),
            status: object.rest.get("status").cloned().unwrap_or_default(),
        }
    }
}

impl<S> GatewayObject<S> {
    /// Returns the name.
    pub fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    /// Returns the namespace.
    pub fn namespace(&self) -> &str {
        self.metadata.namespace.as_deref().unwrap_or_default()
    }

    /// Returns the age.
    pub fn age(&self) -> Age {
        read_age(&self.metadata)
    }
}

/// Returns the age of an object. One without a creation time is the newest.
pub fn read_age(metadata: &ObjectMeta) -> Age {
    let created = metadata.creation_timestamp.as_ref();
    let (namespace, name) = (metadata.namespace.as_deref(), metadata.name.as_deref());
    Age {
        created: created.map_or(i64::MAX, |time| time.0.as_second()),
        key: format!(
            "{}/{}",
            namespace.unwrap_or_default(),
            name.unwrap_or_default()
        ),
    }
}

/// Specification of a GatewayClass.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GatewayClassSpec {
    pub controller_name: String,
    pub parameters_ref: Option<Value>,
}

/// Specification of a Gateway.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GatewaySpec {
    pub gateway_class_name: String,
    #[serde(default)]
    pub listeners: Vec<Listener>,
    #[serde(default)]
    pub addresses: Vec<Value>,
    pub infrastructure: Option<Infrastructure>,
    /// Namespaces of ListenerSets.
    pub allowed_listeners: Option<AllowedListeners>,
    /// Verification of clients by certificate, among others.
    pub tls: Option<Value>,
    #[serde(flatten)]
    pub others: OtherFields,
}

/// ListenerSets that may attach to a Gateway.
#[derive(Clone, Debug, Deserialize)]
pub struct AllowedListeners {
    #[serde(default)]
    pub namespaces: RouteNamespaces,
}

/// Attributes of the infrastructure of a Gateway.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Infrastructure {
    #[serde(default)]
    pub labels: BTreeMap<String, Value>,
    #[serde(default)]
    pub annotations: BTreeMap<String, Value>,
    pub parameters_ref: Option<Value>,
    #[serde(flatten)]
    pub others: OtherFields,
}

/// A listener of a Gateway.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Listener {
    pub name: String,
    #[serde(default)]
    pub hostname: String,
    pub port: u16,
    pub protocol: String,
    pub tls: Option<ListenerTls>,
    #[serde(default)]
    pub allowed_routes: AllowedRoutes,
    #[serde(flatten)]
    pub others: OtherFields,
}

/// TLS of a listener.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListenerTls {
    pub mode: Option<String>,
    #[serde(default)]
    pub certificate_refs: Vec<ObjectRef>,
    #[serde(default)]
    pub options: BTreeMap<String, Value>,
    #[serde(flatten)]
    pub others: OtherFields,
}

/// Routes that may attach to a listener.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AllowedRoutes {
    #[serde(default)]
    pub namespaces: RouteNamespaces,
    #[serde(default)]
    pub kinds: Vec<RouteKind>,
    #[serde(flatten)]
    pub others: OtherFields,
}

/// Namespaces of routes that may attach.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RouteNamespaces {
    pub from: Option<String>,
    pub selector: Option<LabelSelector>,
}

/// A kind of routes.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RouteKind {
    pub group: Option<String>,
    pub kind: String,
}

/// A reference to a Secret or a Service.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectRef {
    #[serde(default)]
    pub group: String,
    pub kind: Option<String>,
    pub name: String,
    pub namespace: Option<String>,
    pub port: Option<u16>,
}

/// Specification of an HTTPRoute.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpRouteSpec {
    #[serde(default)]
    pub parent_refs: Vec<ParentRef>,
    #[serde(default)]
    pub hostnames: Vec<String>,
    /// Absent: one rule that matches everything and has no backend.
    #[serde(default)]
    pub rules: Vec<RouteRule>,
    #[serde(flatten)]
    pub others: OtherFields,
}

/// A reference to the Gateway to which a route attaches.
#[derive(Clone, Debug, Deserialize, serde::Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ParentRef {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub section_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
}

impl ParentRef {
    /// Returns the key of the Gateway; `None` for a parent of another kind.
    pub fn gateway_key(&self, own_namespace: &str) -> Option<String> {
        let is_gateway = self.group.as_deref().is_none_or(|group| group == GROUP)
            && self.kind.as_deref().is_none_or(|kind| kind == "Gateway");
        let namespace = self.namespace.as_deref().unwrap_or(own_namespace);
        is_gateway.then(|| format!("{namespace}/{}", self.name))
    }
}

/// A rule of an HTTPRoute.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RouteRule {
    /// Read so that it is no other field; it has no effect.
    #[serde(default, rename = "name")]
    _name: IgnoredAny,
    #[serde(default)]
    pub matches: Vec<RouteMatch>,
    #[serde(default)]
    pub filters: Vec<RouteFilter>,
    #[serde(default)]
    pub backend_refs: Vec<BackendRef>,
    pub timeouts: Option<RouteTimeouts>,
    #[serde(flatten)]
    pub others: OtherFields,
}

/// A match of requests.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RouteMatch {
    pub path: Option<ValueMatch>,
    #[serde(default)]
    pub headers: Vec<NamedMatch>,
    #[serde(default)]
    pub query_params: Vec<NamedMatch>,
    pub method: Option<String>,
    #[serde(flatten)]
    pub others: OtherFields,
}

/// A match of a path.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ValueMatch {
    #[serde(rename = "type")]
    pub kind: Option<String>,
    pub value: Option<String>,
}

/// A match of a header or query parameter.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NamedMatch {
    #[serde(rename = "type")]
    pub kind: Option<String>,
    pub name: String,
    pub value: String,
}

/// A filter of a rule or backend.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RouteFilter {
    #[serde(rename = "type")]
    pub kind: String,
    pub request_header_modifier: Option<HeaderModifier>,
    pub response_header_modifier: Option<HeaderModifier>,
    pub request_redirect: Option<RequestRedirect>,
    pub url_rewrite: Option<UrlRewrite>,
    #[serde(flatten)]
    pub others: OtherFields,
}

/// Changes of headers.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HeaderModifier {
    #[serde(default)]
    pub set: Vec<HttpHeader>,
    #[serde(default)]
    pub add: Vec<HttpHeader>,
    #[serde(default)]
    pub remove: Vec<String>,
}

/// A header with its value.
#[derive(Clone, Debug, Deserialize)]
pub struct HttpHeader {
    pub name: String,
    pub value: String,
}

/// A redirect.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestRedirect {
    pub scheme: Option<String>,
    pub hostname: Option<String>,
    pub path: Option<PathModifier>,
    pub port: Option<u16>,
    pub status_code: Option<u16>,
}

/// A change of host and path.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UrlRewrite {
    pub hostname: Option<String>,
    pub path: Option<PathModifier>,
}

/// A change of the path.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PathModifier {
    #[serde(rename = "type")]
    pub kind: String,
    pub replace_full_path: Option<String>,
    pub replace_prefix_match: Option<String>,
}

/// A backend of a rule.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BackendRef {
    #[serde(flatten)]
    pub object: ObjectRef,
    pub weight: Option<u32>,
    #[serde(default)]
    pub filters: Vec<RouteFilter>,
    #[serde(flatten)]
    pub others: OtherFields,
}

/// Timeouts of a rule.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RouteTimeouts {
    pub request: Option<String>,
    pub backend_request: Option<String>,
    #[serde(flatten)]
    pub others: OtherFields,
}

/// Specification of a ReferenceGrant.
#[derive(Clone, Debug, Deserialize)]
pub struct ReferenceGrantSpec {
    #[serde(default)]
    pub from: Vec<GrantFrom>,
    #[serde(default)]
    pub to: Vec<GrantTo>,
}

/// Kind and namespace of objects that may refer.
#[derive(Clone, Debug, Deserialize)]
pub struct GrantFrom {
    pub group: String,
    pub kind: String,
    pub namespace: String,
}

/// Objects to which they may refer.
#[derive(Clone, Debug, Deserialize)]
pub struct GrantTo {
    pub group: String,
    pub kind: String,
    pub name: Option<String>,
}

/// Returns whether an object of `from` (kind, namespace) may refer to `to` (kind of the core group,
/// namespace, name). References across namespaces need a grant in the namespace of `to`.
pub fn may_refer(
    grants: &[GatewayObject<ReferenceGrantSpec>],
    from: (&str, &str),
    to: (&str, &str, &str),
) -> bool {
    let (from_kind, from_namespace) = from;
    let (to_kind, to_namespace, to_name) = to;
    let allows = |spec: &ReferenceGrantSpec| {
        let is_from = |item: &GrantFrom| {
            item.group == GROUP && item.kind == from_kind && item.namespace == from_namespace
        };
        let is_to = |item: &GrantTo| {
            let name = item.name.as_deref().filter(|name| !name.is_empty());
            item.group.is_empty() && item.kind == to_kind && name.is_none_or(|name| name == to_name)
        };
        spec.from.iter().any(is_from) && spec.to.iter().any(is_to)
    };
    from_namespace == to_namespace
        || grants
            .iter()
            .filter(|grant| grant.namespace() == to_namespace)
            .any(|grant| grant.spec.as_ref().is_ok_and(allows))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn reference_to_another_namespace_needs_a_grant_in_it() {
        let grant = |namespace: &str, from: Value, to: Value| {
            let object = json!({"metadata": {"name": "g", "namespace": namespace},
                "spec": {"from": [from], "to": [to]}});
            GatewayObject::decode(&serde_json::from_value(object).unwrap())
        };
        let from = |kind: &str, namespace: &str| json!({"group": GROUP, "kind": kind, "namespace": namespace});
        let to = |kind: &str| json!({"group": "", "kind": kind});
        let named = json!({"group": "", "kind": "Service", "name": "web"});
        let other_name = json!({"group": "", "kind": "Service", "name": "db"});
        let other_group = json!({"group": "x", "kind": "HTTPRoute", "namespace": "a"});
        for (grants, is_allowed) in [
            (vec![], false),
            (
                vec![grant("b", from("HTTPRoute", "a"), to("Service"))],
                true,
            ),
            (vec![grant("b", from("HTTPRoute", "a"), named)], true),
            (vec![grant("b", from("HTTPRoute", "a"), other_name)], false),
            (
                vec![grant("b", from("HTTPRoute", "a"), to("Secret"))],
                false,
            ),
            (
                vec![grant("b", from("HTTPRoute", "c"), to("Service"))],
                false,
            ),
            (vec![grant("b", from("Gateway", "a"), to("Service"))], false),
            (vec![grant("b", other_group, to("Service"))], false),
            (
                vec![grant("a", from("HTTPRoute", "a"), to("Service"))],
                false,
            ),
        ] {
            let found = may_refer(&grants, ("HTTPRoute", "a"), ("Service", "b", "web"));
            assert_eq!(found, is_allowed, "{grants:?}");
        }
        assert!(may_refer(&[], ("HTTPRoute", "a"), ("Service", "a", "web")));
    }

    #[test]
    fn parent_of_another_kind_is_no_gateway() {
        let parent = |value: Value| serde_json::from_value::<ParentRef>(value).unwrap();
        for (value, key) in [
            (json!({"name": "g"}), Some("n/g")),
            (json!({"name": "g", "namespace": "m"}), Some("m/g")),
            (json!({"name": "g", "kind": "Service", "group": ""}), None),
        ] {
            assert_eq!(
                parent(value.clone()).gateway_key("n").as_deref(),
                key,
                "{value}"
            );
        }
    }
}
