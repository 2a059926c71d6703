//! Addresses of webhooks, for admission and for conversion.

use crate::field::{Errors, Path};
use crate::rules;
use api_meta::names;
use api_meta::tree::{get, has, int, opt_text, text};
use serde_json::Value;

const FORM: &str = "; desired format: https://host[/path]";

/// Validates that a webhook has one address, a URL or a Service. Upstream checks the bundle of
/// conversion webhooks only.
pub fn validate_client_config(config: &Value, path: &Path<'_>, errors: &mut Errors) {
    match (opt_text(config, "url"), has(config, "service")) {
        (Some(_), true) | (None, false) => {
            errors.required(path, "exactly one of url or service is required");
        }
        (Some(url), false) => validate_webhook_url(url, &path.child("url"), errors),
        (None, true) => {
            validate_webhook_service(get(config, "service"), &path.child("service"), errors);
        }
    }
}

fn validate_webhook_service(service: &Value, path: &Path<'_>, errors: &mut Errors) {
    // Upstream's call has the two arguments in the wrong order, so each path is the other's.
    for (field, reported) in [("namespace", "name"), ("name", "namespace")] {
        if text(service, field).is_empty() {
            errors.required(&path.child(reported), "");
        }
    }
    let port = int(service, "port").unwrap_or(443);
    if let Some(problem) = rules::port_number_problem(port) {
        let detail = format!("port is not valid: {problem}");
        errors.invalid(&path.child("port"), port, detail);
    }
    let target = text(service, "path");
    let at = path.child("path");
    if target == "//" {
        return errors.invalid(&at, target, "segment[0] may not be empty");
    }
    if target.is_empty() || target == "/" {
        return;
    }
    if !target.starts_with('/') {
        errors.invalid(&at, target, "must start with a '/'");
    }
    let mut chars = target.chars();
    chars.next();
    let steps = chars.as_str();
    let steps = steps.strip_suffix('/').unwrap_or(steps);
    for (i, step) in steps.split('/').enumerate() {
        if step.is_empty() {
            errors.invalid(&at, target, format!("segment[{i}] may not be empty"));
            continue;
        }
        for problem in names::dns1123_subdomain(step) {
            errors.invalid(&at, target, format!("segment[{i}]: {problem}"));
        }
    }
}

fn validate_webhook_url(value: &str, path: &Path<'_>, errors: &mut Errors) {
    let parsed = match url::Url::parse(value) {
        Ok(parsed) => Some(parsed),
        // Such a URL has neither scheme nor host.
        Err(url::ParseError::RelativeUrlWithoutBase) => None,
        Err(url::ParseError::EmptyHost) => {
            return errors.invalid(path, "", format!("host must be specified{FORM}"));
        }
        Err(error) => {
            let detail = format!("url must be a valid URL: {error}{FORM}");
            return errors.required(path, detail);
        }
    };
    let scheme = parsed.as_ref().map_or("", |url| url.scheme());
    // The request contains the whole object, secrets included.
    if scheme != "https" {
        let detail = format!("'https' is the only allowed URL scheme{FORM}");
        errors.invalid(path, scheme, detail);
    }
    let host = parsed.as_ref().and_then(|url| url.host_str());
    if host.unwrap_or_default().is_empty() {
        errors.invalid(path, "", format!("host must be specified{FORM}"));
    }
    let Some(parsed) = parsed else { return };
    // Credentials belong into the kubeconfig file of the admission plugin: many users may read this
    // object.
    if !parsed.username().is_empty() || parsed.password().is_some() {
        let detail = "user information is not permitted in the URL";
        errors.invalid(path, parsed.username(), detail);
    }
    for (part, what) in [
        (parsed.fragment(), "fragments"),
        (parsed.query(), "query parameters"),
    ] {
        if let Some(part) = part.filter(|part| !part.is_empty()) {
            errors.invalid(path, part, format!("{what} are not permitted in the URL"));
        }
    }
}
