//! Which webhooks are called for a request, and with which version of its object.

use crate::attributes::Attributes;
use crate::hook::{Hook, SelectorField};
use crate::kinds::{GroupVersionKind, GroupVersionResource, Kinds, ReviewTarget};
use crate::labels::{NamespaceLabels, matches_objects};
use crate::rules::RuleTarget;
use api_meta::ApiError;
use apiserver_request::Objects;
use serde_json::Value;
use std::sync::Arc;

/// A webhook that is to be called.
pub struct Invocation {
    pub hook: Arc<Hook>,
    /// The resource that a rule matched, which may be an equivalent one.
    pub resource: GroupVersionResource,
    /// The kind that the webhook receives.
    pub kind: GroupVersionKind,
}

/// Finds the resource that a rule matches: that of the request, or an equivalent one.
///
/// # Errors
/// The kind of the equivalent resource is unknown.
pub fn match_rules(
    hook: &Hook,
    attributes: &Attributes<'_>,
    kinds: &dyn Kinds,
) -> Result<Option<ReviewTarget>, ApiError> {
    let covers = |resource: &GroupVersionResource| {
        let target = RuleTarget {
            operation: attributes.operation.as_str(),
            resource,
            subresource: attributes.subresource,
            namespace: attributes.namespace,
        };
        hook.rules.iter().position(|rule| rule.matches(&target))
    };
    // An exact match of any rule comes before equivalents: the client's version needs no
    // conversion.
    if covers(&attributes.resource).is_some() {
        let kind = attributes.kind.clone();
        return Ok(Some((attributes.resource.clone(), kind)));
    }
    if !hook.is_equivalent {
        return Ok(None);
    }
    // The rule that comes first decides between several versions.
    let equivalents = kinds.equivalent_resources(&attributes.resource);
    let first = equivalents
        .into_iter()
        .filter_map(|resource| Some((covers(&resource)?, resource)))
        .min_by_key(|(rule, _)| *rule);
    let Some((_, resource)) = first else {
        return Ok(None);
    };
    match kinds.find_kind(&resource, attributes.subresource) {
        Some(kind) => Ok(Some((resource, kind))),
        None => Err(ApiError::internal(format!(
            "unable to convert to {}: unknown kind",
            resource.resource
        ))),
    }
}

/// Returns whether the selectors of a webhook match, with the objects as they are now.
///
/// # Errors
/// An invalid selector, or a namespace that does not exist.
pub async fn match_selectors(
    hook: &Hook,
    attributes: &Attributes<'_>,
    (object, old): (&Value, Option<&Value>),
    namespace: &mut NamespaceLabels,
    objects: &dyn Objects,
) -> Result<bool, ApiError> {
    let selected = match &hook.objects {
        SelectorField::Everything => true,
        SelectorField::Some(selector) => matches_objects(selector, object, old),
        SelectorField::Invalid(why) => return Err(ApiError::internal(why)),
    };
    if !selected {
        return Ok(false);
    }
    match &hook.namespaces {
        SelectorField::Everything => Ok(true),
        SelectorField::Some(selector) => {
            namespace
                .matches(selector, attributes, object, objects)
                .await
        }
        SelectorField::Invalid(why) => Err(ApiError::internal(why)),
    }
}
