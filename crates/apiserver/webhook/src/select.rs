//! The complete decision about one webhook: rules, selectors, match conditions.

use crate::attributes::Attributes;
use crate::conditions::ConditionInput;
use crate::hook::Hook;
use crate::kinds::ReviewTarget;
use crate::labels::NamespaceLabels;
use crate::matching::{Invocation, match_hook};
use crate::plugin::Setup;
use crate::review::build_request;
use crate::versioned::{ObjectVersions, VersionedObjects};
use api_meta::ApiError;
use apiserver_request::AdmissionRequest;
use base_task::{ComputeKind, compute};
use std::sync::Arc;

/// The facts of a request that its webhooks share.
#[derive(Default)]
pub struct Lookups {
    /// Labels of the namespace.
    pub namespace: NamespaceLabels,
    /// The objects in the versions of the webhooks so far.
    pub versions: ObjectVersions,
}

/// Returns the call of a webhook with the objects in its version; None if it does not match.
///
/// # Errors
/// The webhook has a matching rule, but the rest can't be decided.
pub async fn select_hook(
    setup: &Setup,
    request: &AdmissionRequest<'_>,
    attributes: &Attributes<'_>,
    hook: &Arc<Hook>,
    lookups: &mut Lookups,
) -> Result<Option<(Invocation, Arc<VersionedObjects>)>, ApiError> {
    let kinds = &*setup.kinds;
    let objects = (&request.object, request.old.as_ref());
    let namespace = &mut lookups.namespace;
    let found = match_hook(
        hook,
        attributes,
        objects,
        namespace,
        (kinds, &*setup.objects),
    );
    let Some(target) = found.await? else {
        return Ok(None);
    };
    let versions = &mut lookups.versions;
    // After the selectors, because a conversion may call another webhook.
    let versioned = versions.find_or_convert(kinds, attributes, &target, objects);
    // As upstream: the request fails, whatever the webhook's policy says of its own failures.
    let versioned = versioned
        .await
        .map_err(|error| ApiError::internal(error.message))?;
    if !match_conditions(hook, attributes, &target, &versioned).await? {
        return Ok(None);
    }
    let (resource, kind) = target;
    let invocation = Invocation {
        hook: hook.clone(),
        resource,
        kind,
    };
    Ok(Some((invocation, versioned)))
}

/// Returns whether the match conditions of a webhook hold.
///
/// # Errors
/// They can't be evaluated, and the policy is Fail.
async fn match_conditions(
    hook: &Hook,
    attributes: &Attributes<'_>,
    target: &ReviewTarget,
    objects: &VersionedObjects,
) -> Result<bool, ApiError> {
    let Some(conditions) = &hook.conditions else {
        return Ok(true);
    };
    let input = ConditionInput {
        request: &build_request(attributes, target),
        object: &objects.object,
        old_object: &objects.old,
        user: attributes.user,
    };
    let matched = match conditions {
        Ok(conditions) => {
            let client = attributes.user.compute_client();
            compute(client, ComputeKind::Evaluation, || {
                conditions.matches(&input)
            })
            .await
        }
        // If one expression does not compile, every evaluation fails. Upstream still skips the
        // webhook if another condition is false.
        Err(why) => Err(why.clone()),
    };
    match matched {
        Ok(matched) => Ok(matched),
        // As upstream, skipped and not called: the conditions may be meant to keep requests from
        // the webhook.
        Err(why) if hook.ignores_failure => {
            tracing::warn!(
                webhook = hook.name,
                why,
                "match conditions failed, webhook skipped"
            );
            Ok(false)
        }
        Err(why) => Err(ApiError::forbidden(
            &attributes.resource.group,
            &attributes.resource.resource,
            attributes.name,
            &why,
        )),
    }
}
