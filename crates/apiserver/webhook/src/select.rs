//! The complete decision about one webhook: rules, selectors, match conditions.

use crate::attributes::Attributes;
use crate::conditions::{ConditionInput, ConditionVerdict};
use crate::hook::Hook;
use crate::kinds::ReviewTarget;
use crate::labels::NamespaceLabels;
use crate::matching::{Invocation, match_hook};
use crate::metrics::{Phase, WebhookMetrics};
use crate::plugin::Setup;
use crate::review::build_request;
use crate::versioned::{ObjectVersions, VersionedObjects};
use api_meta::ApiError;
use apiserver_request::AdmissionRequest;
use std::sync::Arc;
use std::time::Duration;

/// The facts of a request that its webhooks share.
#[derive(Default)]
pub struct Lookups {
    /// Labels of the namespace.
    pub namespace: NamespaceLabels,
    /// The objects in the versions of the webhooks so far.
    pub versions: ObjectVersions,
}

/// A webhook that may be called in a phase of admission.
#[derive(Clone, Copy)]
pub struct HookCall<'a> {
    /// The webhook.
    pub hook: &'a Arc<Hook>,
    /// The phase of its configuration.
    pub phase: Phase,
}

/// Returns the call of a webhook with the objects in its version; None if it does not match.
///
/// # Errors
/// The webhook has a matching rule, but the rest can't be decided.
pub async fn select_hook(
    setup: &Setup,
    request: &AdmissionRequest<'_>,
    attributes: &Attributes<'_>,
    call: HookCall<'_>,
    lookups: &mut Lookups,
) -> Result<Option<(Invocation, Arc<VersionedObjects>)>, ApiError> {
    let hook = call.hook;
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
    let verdict = match_conditions(hook, attributes, &target, &versioned).await;
    if let Some(verdict) = verdict
        && !apply_verdict(call, attributes, &setup.metrics, verdict)?
    {
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

/// Evaluates the match conditions of a webhook, if it has some.
async fn match_conditions(
    hook: &Hook,
    attributes: &Attributes<'_>,
    target: &ReviewTarget,
    objects: &VersionedObjects,
) -> Option<ConditionVerdict> {
    let conditions = match hook.conditions.as_ref()? {
        Ok(conditions) => conditions,
        // If one expression does not compile, every evaluation fails. Upstream still skips the
        // webhook if another condition is false.
        Err(why) => {
            return Some(ConditionVerdict {
                holds: Err(why.clone()),
                failed: 1,
                elapsed: Duration::ZERO,
            });
        }
    };
    let input = ConditionInput {
        request: &build_request(attributes, target),
        object: &objects.object,
        old_object: &objects.old,
        user: attributes.user,
    };
    Some(conditions.matches(&input).await)
}

/// Returns whether the webhook is to be called.
///
/// # Errors
/// The match conditions can't be evaluated, and the policy is Fail.
fn apply_verdict(
    HookCall { hook, phase }: HookCall<'_>,
    attributes: &Attributes<'_>,
    metrics: &WebhookMetrics,
    verdict: ConditionVerdict,
) -> Result<bool, ApiError> {
    let metrics = &metrics.conditions;
    let labels = phase.condition_labels(&hook.name, attributes.operation);
    metrics.record_evaluation(&labels, &verdict);
    let matched = match verdict.holds {
        Ok(matched) => matched,
        // As upstream, skipped and not called: the conditions may be meant to keep requests from
        // the webhook.
        Err(why) if hook.ignores_failure => {
            tracing::warn!(
                webhook = hook.name,
                why,
                "match conditions failed, webhook skipped"
            );
            false
        }
        Err(why) => {
            return Err(ApiError::forbidden(
                &attributes.resource.group,
                &attributes.resource.resource,
                attributes.name,
                &why,
            ));
        }
    };
    if !matched {
        metrics.count_exclusion(phase.exclusion_labels(&hook.name, attributes.operation));
    }
    Ok(matched)
}
