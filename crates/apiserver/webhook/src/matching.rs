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

/// Returns the resource and kind that a webhook receives; None if it does not match.
///
/// # Errors
/// The webhook covers the request, but a selector or the kind can't be decided.
pub async fn match_hook(
    hook: &Hook,
    attributes: &Attributes<'_>,
    subject: (&Value, Option<&Value>),
    labels: &mut NamespaceLabels,
    (kinds, objects): (&dyn Kinds, &dyn Objects),
) -> Result<Option<ReviewTarget>, ApiError> {
    let target = match_rules(hook, attributes, kinds);
    // Before the selectors, so that requests without a webhook cause no look-up.
    if matches!(target, Ok(None)) {
        return Ok(None);
    }
    let selected = match_selectors(hook, attributes, subject, labels, objects).await;
    if matches!(selected, Ok(false)) {
        return Ok(None);
    }
    // The order of upstream's `ShouldCallHook`: it decides which error a client sees.
    let target = target?;
    selected?;
    Ok(target)
}

/// Returns whether the selectors of a webhook match, with the objects as they are now.
///
/// # Errors
/// An invalid selector, or a namespace that does not exist. As upstream, the error of a selector
/// counts only if the other one does not exclude the request.
pub async fn match_selectors(
    hook: &Hook,
    attributes: &Attributes<'_>,
    (object, old): (&Value, Option<&Value>),
    namespace: &mut NamespaceLabels,
    objects: &dyn Objects,
) -> Result<bool, ApiError> {
    let by_object = match &hook.objects {
        SelectorField::Everything => Ok(true),
        SelectorField::Some(selector) => Ok(matches_objects(selector, object, old)),
        SelectorField::Invalid(why) => Err(ApiError::internal(why)),
    };
    // Needs no look-up, so it comes before the namespace.
    if matches!(by_object, Ok(false)) {
        return Ok(false);
    }
    let in_namespace = match &hook.namespaces {
        SelectorField::Everything => true,
        // No selector can exempt objects outside of namespaces, not even one that can't be read.
        _ if attributes.namespace.is_empty() && !attributes.is_namespace() => true,
        SelectorField::Some(selector) => {
            namespace
                .matches(selector, attributes, object, objects)
                .await?
        }
        SelectorField::Invalid(why) => return Err(ApiError::internal(why)),
    };
    Ok(in_namespace && by_object?)
}
