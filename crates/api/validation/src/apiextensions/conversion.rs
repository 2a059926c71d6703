//! Conversion between the versions of a custom resource.

use crate::field::{Errors, Path};
use crate::{rules, webhook_client};
use api_meta::names::dns1035_label;
use api_meta::tree::{get, has, text, texts};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use std::collections::HashSet;

const REVIEW_VERSIONS: [&str; 2] = ["v1", "v1beta1"];

/// Demands that depend on the old definition.
pub(super) struct ConversionOptions {
    /// True if the review versions must include one that this server sends.
    require_known_review: bool,
    /// True if a CA bundle may be malformed.
    allow_malformed_bundle: bool,
}

impl ConversionOptions {
    pub(super) fn for_create() -> Self {
        Self {
            require_known_review: true,
            // Controllers inject the bundle into definitions that aren't established yet.
            allow_malformed_bundle: true,
        }
    }

    pub(super) fn for_update(old: &Value, established: bool) -> Self {
        let hook = get(old, "webhook");
        let versions = texts(hook, "conversionReviewVersions");
        let known = versions
            .iter()
            .any(|version| REVIEW_VERSIONS.contains(version));
        let bundle = text(get(hook, "clientConfig"), "caBundle");
        Self {
            // An old list that this server can't use may remain. Otherwise, no other field of the
            // definition could be changed.
            require_known_review: versions.is_empty() || known,
            allow_malformed_bundle: !established
                || !bundle.is_empty() && find_bundle_problem(bundle).is_some(),
        }
    }
}

/// Validates the conversion.
pub(super) fn validate_conversion(
    conversion: &Value,
    options: &ConversionOptions,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    if conversion.is_null() {
        return;
    }
    let strategy = text(conversion, "strategy");
    rules::validate_required_one_of(conversion, "strategy", &["None", "Webhook"], path, errors);
    let hook = get(conversion, "webhook");
    let (config, versions) = (
        get(hook, "clientConfig"),
        texts(hook, "conversionReviewVersions"),
    );
    // The paths are those of upstream's internal form, in which the webhook's fields belong to the
    // conversion itself.
    let at_config = path.child("webhookClientConfig");
    let at_versions = path.child("conversionReviewVersions");
    if strategy == "Webhook" {
        validate_client_config(config, options, &at_config, errors);
        validate_review_versions(&versions, options, &at_versions, errors);
        return;
    }
    // A webhook that is never called would surprise the author, who expects a conversion.
    let detail = "should not be set when strategy is not set to Webhook";
    if has(hook, "clientConfig") {
        errors.forbidden(&at_config, detail);
    }
    if !versions.is_empty() {
        errors.forbidden(&at_versions, detail);
    }
}

fn validate_client_config(
    config: &Value,
    options: &ConversionOptions,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    if config.is_null() {
        errors.required(path, "required when strategy is set to Webhook");
        return;
    }
    webhook_client::validate_client_config(config, path, errors);
    let bundle = text(config, "caBundle");
    if let Some(problem) = find_bundle_problem(bundle)
        && !bundle.is_empty()
        && !options.allow_malformed_bundle
    {
        errors.invalid(&path.child("caBundle"), bundle, problem);
    }
}

/// Returns whether the `caBundle` of a conversion webhook can be used, or there is none.
pub fn has_valid_conversion_bundle(conversion: &Value) -> bool {
    let config = get(get(conversion, "webhook"), "clientConfig");
    let bundle = text(config, "caBundle");
    bundle.is_empty() || find_bundle_problem(bundle).is_none()
}

fn find_bundle_problem(bundle: &str) -> Option<&'static str> {
    let problem = "unable to load root certificates: unable to parse bytes as PEM block";
    let Ok(pem) = STANDARD.decode(bundle) else {
        return Some(problem);
    };
    // One certificate is enough for Go's pool, which ignores the rest.
    let found = x509_parser::pem::Pem::iter_from_buffer(&pem).any(|block| {
        block.is_ok_and(|block| block.label == "CERTIFICATE" && block.parse_x509().is_ok())
    });
    (!found).then_some(problem)
}

fn validate_review_versions(
    all: &[&str],
    options: &ConversionOptions,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    if all.is_empty() {
        errors.required(path, "");
        return;
    }
    let mut seen = HashSet::new();
    for (i, version) in all.iter().enumerate() {
        if !seen.insert(version) {
            // Upstream's error has the type `Invalid` here, not `Duplicate`.
            errors.invalid(&path.index(i), *version, "duplicate version");
            continue;
        }
        errors.invalid_each(&path.index(i), version, dns1035_label(version));
    }
    if options.require_known_review && !all.iter().any(|v| REVIEW_VERSIONS.contains(v)) {
        let known = REVIEW_VERSIONS.join(", ");
        errors.invalid(
            path,
            all.to_vec(),
            format!("must include at least one of {known}"),
        );
    }
}
