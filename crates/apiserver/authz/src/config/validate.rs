//! Validates an AuthorizationConfiguration and compiles its match conditions.

use super::AuthorizerSpec;
use super::types::{
    AuthorizationConfiguration, AuthorizerConfig, ConditionConfig, ConnectionInfo, Nanoseconds,
    WebhookConfig,
};
use crate::mode::Mode;
use crate::webhook::{MatchCondition, WebhookSpec};
use api_meta::names::dns1123_subdomain;
use api_validation::{Errors, FieldError, Path};
use apiserver_webhook_client::ReviewVersion;
use std::collections::HashSet;
use std::path::PathBuf;
use std::time::Duration;

/// Maximum number of authorizers. Upstream has no limit; each webhook may take its timeout.
const MAX_AUTHORIZERS: usize = 64;
const MAX_CONDITIONS: usize = 64;
const SECOND: i64 = 1_000_000_000;
/// Upstream's defaults.
const AUTHORIZED_TTL: i64 = 300 * SECOND;
const UNAUTHORIZED_TTL: i64 = 30 * SECOND;
const LONGEST_TIMEOUT: i64 = 30 * SECOND;

const IN_CLUSTER: &str = "InClusterConfig";
const KUBECONFIG: &str = "KubeConfigFile";

/// Validates a configuration.
///
/// # Errors
/// All fields that can't be used.
pub fn validate_configuration(
    config: &AuthorizationConfiguration,
) -> Result<Vec<AuthorizerSpec>, Vec<FieldError>> {
    let mut errors = Errors::default();
    let root = Path::ROOT.child("authorizers");
    let count = config.authorizers.len();
    if count == 0 {
        errors.required(&root, "at least one authorization mode must be defined");
    } else if count > MAX_AUTHORIZERS {
        errors.too_many(&root, count, MAX_AUTHORIZERS);
        return Err(errors.0);
    }
    let (mut modes, mut names) = (Vec::new(), HashSet::new());
    let mut specs = Vec::with_capacity(count);
    for (index, authorizer) in config.authorizers.iter().enumerate() {
        let path = root.index(index);
        let Some(mode) = validate_mode(&authorizer.mode, &modes, &path, &mut errors) else {
            continue;
        };
        modes.push(mode);
        validate_name(mode, &authorizer.name, &path.child("name"), &mut errors);
        if !names.insert(&authorizer.name) {
            errors.duplicate(&path.child("name"), authorizer.name.as_str());
        }
        specs.extend(validate_authorizer(mode, authorizer, &path, &mut errors));
    }
    if errors.is_empty() {
        Ok(specs)
    } else {
        Err(errors.0)
    }
}

fn validate_mode(
    name: &str,
    earlier: &[Mode],
    path: &Path<'_>,
    errors: &mut Errors,
) -> Option<Mode> {
    let path = path.child("type");
    if name.is_empty() {
        errors.required(&path, "");
        return None;
    }
    let Ok(mode) = name.parse() else {
        errors.not_supported(&path, name, &Mode::names());
        return None;
    };
    if mode != Mode::Webhook && earlier.contains(&mode) {
        errors.duplicate(&path, name);
        return None;
    }
    Some(mode)
}

fn validate_name(mode: Mode, name: &str, path: &Path<'_>, errors: &mut Errors) {
    let expected = AuthorizerSpec::built_in(mode).name;
    if name.is_empty() {
        errors.required(path, "");
    } else if mode != Mode::Webhook && name != expected {
        // Upstream's rule, so that metrics have the names that they have with flags.
        let detail = format!("must be {expected:?} for the type {}", mode.name());
        errors.invalid(path, name, detail);
    } else {
        errors.invalid_each(path, name, dns1123_subdomain(name));
    }
}

fn validate_authorizer(
    mode: Mode,
    authorizer: &AuthorizerConfig,
    path: &Path<'_>,
    errors: &mut Errors,
) -> Option<AuthorizerSpec> {
    let path = path.child("webhook");
    let webhook = match (mode, &authorizer.webhook) {
        (Mode::Webhook, Some(webhook)) => Some(validate_webhook(webhook, &path, errors)?),
        (Mode::Webhook, None) => {
            errors.required(&path, "required when type=Webhook");
            return None;
        }
        (_, Some(_)) => {
            errors.invalid(&path, "non-null", "may only be specified when type=Webhook");
            return None;
        }
        (_, None) => None,
    };
    Some(AuthorizerSpec {
        mode,
        name: authorizer.name.clone(),
        webhook,
    })
}

/// Validates a webhook; `None` after an error.
fn validate_webhook(
    webhook: &WebhookConfig,
    path: &Path<'_>,
    errors: &mut Errors,
) -> Option<WebhookSpec> {
    let timeout = validate_timeout(webhook.timeout, &path.child("timeout"), errors);
    let authorized = path.child("authorizedTTL");
    let authorized = validate_ttl(webhook.authorized_ttl, AUTHORIZED_TTL, &authorized, errors);
    let unauthorized = path.child("unauthorizedTTL");
    let unauthorized = validate_ttl(
        webhook.unauthorized_ttl,
        UNAUTHORIZED_TTL,
        &unauthorized,
        errors,
    );
    let version = validate_versions(webhook, path, errors);
    let denies_on_error = validate_policy(webhook, &path.child("failurePolicy"), errors);
    let connection = path.child("connectionInfo");
    let kubeconfig = validate_connection(&webhook.connection_info, &connection, errors);
    let conditions = path.child("matchConditions");
    let conditions = validate_conditions(&webhook.match_conditions, &conditions, errors);
    let keep = |is_kept: Option<bool>, ttl: Duration| match is_kept {
        Some(false) => Duration::ZERO,
        _ => ttl,
    };
    Some(WebhookSpec {
        authorized_ttl: keep(webhook.cache_authorized_requests, authorized?),
        unauthorized_ttl: keep(webhook.cache_unauthorized_requests, unauthorized?),
        timeout: timeout?,
        version: version?,
        denies_on_error: denies_on_error?,
        kubeconfig: kubeconfig?,
        conditions: conditions?,
    })
}

fn parse_positive(nanoseconds: i64) -> Option<Duration> {
    let nanoseconds = u64::try_from(nanoseconds).ok()?;
    (nanoseconds > 0).then(|| Duration::from_nanos(nanoseconds))
}

fn validate_timeout(
    timeout: Nanoseconds,
    path: &Path<'_>,
    errors: &mut Errors,
) -> Option<Duration> {
    if timeout.0 == 0 {
        errors.required(path, "");
        return None;
    }
    let found = parse_positive(timeout.0).filter(|_| timeout.0 <= LONGEST_TIMEOUT);
    if found.is_none() {
        let shown = base_duration::format_duration(timeout.0);
        errors.invalid(path, shown, "must be > 0s and <= 30s");
    }
    found
}

fn validate_ttl(
    ttl: Nanoseconds,
    default: i64,
    path: &Path<'_>,
    errors: &mut Errors,
) -> Option<Duration> {
    let given = if ttl.0 == 0 { default } else { ttl.0 };
    let found = parse_positive(given);
    if found.is_none() {
        let shown = base_duration::format_duration(given);
        errors.invalid(path, shown, "must be > 0s");
    }
    found
}

fn validate_versions(
    webhook: &WebhookConfig,
    path: &Path<'_>,
    errors: &mut Errors,
) -> Option<ReviewVersion> {
    let conditions = path.child("matchConditionSubjectAccessReviewVersion");
    match webhook
        .match_condition_subject_access_review_version
        .as_str()
    {
        "" if webhook.match_conditions.is_empty() => {}
        "" => errors.required(&conditions, "required if match conditions are specified"),
        "v1" => {}
        other => errors.not_supported(&conditions, other, &["v1"]),
    }
    let path = path.child("subjectAccessReviewVersion");
    let name = webhook.subject_access_review_version.as_str();
    let version = ReviewVersion::from_name(name);
    match (name, version) {
        ("", _) => errors.required(&path, ""),
        (_, None) => errors.not_supported(&path, name, &["v1", "v1beta1"]),
        (_, Some(_)) => {}
    }
    version
}

fn validate_policy(webhook: &WebhookConfig, path: &Path<'_>, errors: &mut Errors) -> Option<bool> {
    match webhook.failure_policy.as_str() {
        "Deny" => return Some(true),
        "NoOpinion" => return Some(false),
        "" => errors.required(path, ""),
        other => errors.not_supported(path, other, &["NoOpinion", "Deny"]),
    }
    None
}

fn validate_connection(
    connection: &ConnectionInfo,
    path: &Path<'_>,
    errors: &mut Errors,
) -> Option<PathBuf> {
    let kind = path.child("type");
    match connection.kind.as_str() {
        KUBECONFIG => {
            let file = connection.kube_config_file.as_deref().unwrap_or_default();
            return validate_file(file, &path.child("kubeConfigFile"), errors);
        }
        "" => errors.required(&kind, ""),
        // Upstream documents that this server refuses it: it would call itself.
        IN_CLUSTER => errors.invalid(
            &kind,
            IN_CLUSTER,
            "is not possible for kube-apiserver; use KubeConfigFile",
        ),
        other => errors.not_supported(&kind, other, &[KUBECONFIG]),
    }
    None
}

fn validate_file(file: &str, path: &Path<'_>, errors: &mut Errors) -> Option<PathBuf> {
    let found = std::path::Path::new(file);
    if file.is_empty() {
        errors.required(path, "");
        return None;
    }
    let problem = if found.is_absolute() {
        match std::fs::metadata(found) {
            Ok(metadata) if metadata.is_file() => return Some(found.into()),
            Ok(_) => "must be a regular file".to_owned(),
            Err(error) => format!("error loading file: {error}"),
        }
    } else {
        "must be an absolute path".to_owned()
    };
    errors.invalid(path, file, problem);
    None
}

fn validate_conditions(
    conditions: &[ConditionConfig],
    path: &Path<'_>,
    errors: &mut Errors,
) -> Option<Vec<MatchCondition>> {
    if conditions.len() > MAX_CONDITIONS {
        errors.too_many(path, conditions.len(), MAX_CONDITIONS);
        return None;
    }
    let mut seen = HashSet::new();
    let mut compiled = Vec::with_capacity(conditions.len());
    for (index, condition) in conditions.iter().enumerate() {
        let path = path.index(index);
        let path = path.child("expression");
        let source = condition.expression.as_str();
        if source.trim().is_empty() {
            errors.required(&path, "");
        } else if !seen.insert(source) {
            errors.duplicate(&path, source);
        } else {
            match MatchCondition::compile(source) {
                Ok(condition) => compiled.push(condition),
                Err(detail) => errors.invalid(&path, source, detail),
            }
        }
    }
    (compiled.len() == conditions.len()).then_some(compiled)
}
