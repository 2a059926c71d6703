//! Validates an AuthenticationConfiguration and compiles its expressions.

use super::config::{
    AuthenticationConfiguration, ClaimMappings, ClaimRule, ExtraMapping, IssuerConfig, JwtConfig,
    PrefixedMapping, UidMapping, UserRule,
};
use super::expression::{CLAIMS_ENVIRONMENT, CompiledExpression, USER_ENVIRONMENT};
use super::rules::{IssuerRules, Source};
use api_validation::{Errors, FieldError, Path, validate_domain_prefixed_path};
use std::collections::HashSet;

/// Maximum number of issuers.
const MAX_ISSUERS: usize = 64;
const MATCH_ANY: &str = "MatchAny";
const BOTH: &str = "claim and expression can't both be set";
const NEITHER: &str = "claim or expression is required";
const EMAIL: &str = "claims.email_verified must be used in claimMappings.username.expression or \
                     claimMappings.extra[*].valueExpression or claimValidationRules[*].expression \
                     when claims.email is used in claimMappings.username.expression";

/// Validates a configuration and returns the rules of its issuers. `disallowed` has the issuers of
/// ServiceAccount tokens.
///
/// # Errors
/// All fields that can't be used.
pub fn validate_configuration(
    config: &AuthenticationConfiguration,
    disallowed: &[String],
) -> Result<Vec<IssuerRules>, Vec<FieldError>> {
    let mut errors = Errors::default();
    let root = Path::ROOT.child("jwt");
    if config.jwt.len() > MAX_ISSUERS {
        errors.too_many(&root, config.jwt.len(), MAX_ISSUERS);
        return Err(errors.0);
    }
    let (mut urls, mut discovery_urls) = (HashSet::new(), HashSet::new());
    let mut rules = Vec::with_capacity(config.jwt.len());
    for (index, jwt) in config.jwt.iter().enumerate() {
        let path = root.index(index);
        rules.extend(validate_jwt(jwt, disallowed, &path, &mut errors));
        let issuer = path.child("issuer");
        if !urls.insert(&jwt.issuer.url) {
            errors.duplicate(&issuer.child("url"), jwt.issuer.url.as_str());
        }
        let discovery = &jwt.issuer.discovery_url;
        if !discovery.is_empty() && !discovery_urls.insert(discovery) {
            errors.duplicate(&issuer.child("discoveryURL"), discovery.as_str());
        }
    }
    if let Some(anonymous) = &config.anonymous
        && !anonymous.enabled
        && !anonymous.conditions.is_empty()
    {
        let paths = anonymous.conditions.iter();
        let shown: serde_json::Value = paths
            .map(|condition| serde_json::json!({"path": condition.path}))
            .collect();
        errors.invalid(
            &Path::ROOT.child("anonymous").child("conditions"),
            shown,
            "enabled should be set to true when conditions are defined",
        );
    }
    if errors.is_empty() {
        Ok(rules)
    } else {
        Err(errors.0)
    }
}

/// Validates one issuer; `None` after an error.
fn validate_jwt(
    jwt: &JwtConfig,
    disallowed: &[String],
    path: &Path<'_>,
    errors: &mut Errors,
) -> Option<IssuerRules> {
    let before = errors.len();
    validate_issuer(&jwt.issuer, disallowed, &path.child("issuer"), errors);
    let rules_path = path.child("claimValidationRules");
    let (required, claim_rules) =
        validate_claim_rules(&jwt.claim_validation_rules, &rules_path, errors);
    let mapped = validate_mappings(
        &jwt.claim_mappings,
        &claim_rules,
        &path.child("claimMappings"),
        errors,
    );
    let users_path = path.child("userValidationRules");
    let user_rules = validate_user_rules(&jwt.user_validation_rules, &users_path, errors);
    if errors.len() > before {
        return None;
    }
    Some(IssuerRules {
        issuer: jwt.issuer.clone(),
        required,
        claim_rules,
        username: mapped.username?,
        groups: mapped.groups,
        uid: mapped.uid,
        extra: mapped.extra,
        user_rules,
    })
}

fn validate_issuer(
    issuer: &IssuerConfig,
    disallowed: &[String],
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let url = path.child("url");
    if issuer.url.is_empty() {
        errors.required(&url, "");
    } else {
        validate_url(&issuer.url, disallowed, &url, errors);
    }
    let discovery = &issuer.discovery_url;
    if !discovery.is_empty() {
        let path = path.child("discoveryURL");
        let trim = |url: &str| url.trim_end_matches('/').to_owned();
        if !issuer.url.is_empty() && trim(&issuer.url) == trim(discovery) {
            let detail = "discoveryURL must be different from URL";
            errors.invalid(&path, discovery.as_str(), detail);
        }
        validate_url(discovery, &[], &path, errors);
    }
    validate_audiences(issuer, path, errors);
    let authority = issuer.certificate_authority.as_bytes();
    if !authority.is_empty()
        && let Err(error) = base_tls::parse_roots(authority, std::path::Path::new("the field"))
    {
        let path = path.child("certificateAuthority");
        errors.invalid(&path, "<omitted>", error.to_string());
    }
    if !issuer.egress_selector_type.is_empty() {
        errors.invalid(
            &path.child("egressSelectorType"),
            issuer.egress_selector_type.as_str(),
            "egress selectors are not supported; leave the field out and set HTTPS_PROXY if the \
             issuer is behind a proxy",
        );
    }
}

fn validate_url(text: &str, disallowed: &[String], path: &Path<'_>, errors: &mut Errors) {
    if disallowed.iter().any(|issuer| issuer == text) {
        let mut sorted = disallowed.to_vec();
        sorted.sort();
        let detail = format!(
            "URL must not overlap with disallowed issuers: [{}]",
            sorted.join(" ")
        );
        errors.invalid(path, text, detail);
    }
    // A fragment and user information are no part of http::Uri, or are lost in it.
    let (bare, fragment) = text.split_once('#').unwrap_or((text, ""));
    let parsed = match bare.parse::<http::Uri>() {
        Ok(parsed) => parsed,
        Err(error) => return errors.invalid(path, text, error.to_string()),
    };
    if parsed.scheme_str() != Some("https") {
        errors.invalid(path, text, "URL scheme must be https");
    } else if parsed.host().is_none_or(str::is_empty) {
        errors.invalid(path, text, "URL must have a host");
    }
    if parsed.authority().is_some_and(|a| a.as_str().contains('@')) {
        errors.invalid(path, text, "URL must not contain a username or password");
    }
    if parsed.query().is_some_and(|query| !query.is_empty()) {
        errors.invalid(path, text, "URL must not contain a query");
    }
    if !fragment.is_empty() {
        errors.invalid(path, text, "URL must not contain a fragment");
    }
}

fn validate_audiences(issuer: &IssuerConfig, path: &Path<'_>, errors: &mut Errors) {
    let audiences = path.child("audiences");
    if issuer.audiences.is_empty() {
        let detail = format!("at least one {audiences} is required");
        return errors.required(&audiences, detail);
    }
    let mut seen = HashSet::new();
    for (index, audience) in issuer.audiences.iter().enumerate() {
        let path = audiences.index(index);
        if audience.is_empty() {
            errors.required(&path, "");
        }
        if !seen.insert(audience) {
            errors.duplicate(&path, audience.as_str());
        }
    }
    let policy = issuer.audience_match_policy.as_str();
    let detail = match (issuer.audiences.len(), policy) {
        (_, MATCH_ANY) | (1, "") => return,
        (1, _) => "audienceMatchPolicy must be empty or MatchAny for single audience",
        _ => "audienceMatchPolicy must be MatchAny for multiple audiences",
    };
    errors.invalid(&path.child("audienceMatchPolicy"), policy, detail);
}

type RequiredClaims = Vec<(String, String)>;
type CompiledRules = Vec<(CompiledExpression, String)>;

fn validate_claim_rules(
    rules: &[ClaimRule],
    path: &Path<'_>,
    errors: &mut Errors,
) -> (RequiredClaims, CompiledRules) {
    let (mut required, mut compiled) = (Vec::new(), Vec::new());
    let (mut claims, mut expressions) = (HashSet::new(), HashSet::new());
    for (index, rule) in rules.iter().enumerate() {
        let path = path.index(index);
        match (rule.claim.is_empty(), rule.expression.is_empty()) {
            (false, false) => errors.invalid(&path, rule.claim.as_str(), BOTH),
            (true, true) => errors.required(&path, NEITHER),
            (false, true) => {
                if !rule.message.is_empty() {
                    let detail = "may not be specified when claim is set";
                    errors.invalid(&path.child("message"), rule.message.as_str(), detail);
                }
                if !claims.insert(&rule.claim) {
                    errors.duplicate(&path.child("claim"), rule.claim.as_str());
                }
                required.push((rule.claim.clone(), rule.required_value.clone()));
            }
            (true, false) => {
                let value = rule.required_value.as_str();
                if !value.is_empty() {
                    let detail = "may not be specified when expression is set";
                    errors.invalid(&path.child("requiredValue"), value, detail);
                }
                let path = path.child("expression");
                if !expressions.insert(&rule.expression) {
                    errors.duplicate(&path, rule.expression.as_str());
                    continue;
                }
                let rule_of =
                    CompiledExpression::compile_rule(&CLAIMS_ENVIRONMENT, &rule.expression);
                let done = report(rule_of, &rule.expression, &path, errors);
                compiled.extend(done.map(|done| (done, rule.message.clone())));
            }
        }
    }
    (required, compiled)
}

/// Records the error of a compilation.
fn report(
    compiled: Result<CompiledExpression, String>,
    source: &str,
    path: &Path<'_>,
    errors: &mut Errors,
) -> Option<CompiledExpression> {
    compiled
        .map_err(|detail| errors.invalid(path, source, detail))
        .ok()
}

fn compile_mapping(
    source: &str,
    path: &Path<'_>,
    errors: &mut Errors,
) -> Option<CompiledExpression> {
    let compiled = CompiledExpression::compile(&CLAIMS_ENVIRONMENT, source);
    report(compiled, source, path, errors)
}

/// The mappings that could be compiled.
struct CompiledMappings {
    username: Option<Source>,
    groups: Option<Source>,
    uid: Option<Source>,
    extra: Vec<(String, CompiledExpression)>,
}

fn validate_mappings(
    mappings: &ClaimMappings,
    claim_rules: &CompiledRules,
    path: &Path<'_>,
    errors: &mut Errors,
) -> CompiledMappings {
    let user_path = path.child("username");
    let username = validate_prefixed(&mappings.username, true, &user_path, errors);
    let groups = validate_prefixed(&mappings.groups, false, &path.child("groups"), errors);
    let uid = validate_uid(&mappings.uid, &path.child("uid"), errors);
    let extra = validate_extra(&mappings.extra, &path.child("extra"), errors);
    if let Some(Source::Expression(name)) = &username
        && name.selects_claim("email")
    {
        let mut others = claim_rules
            .iter()
            .map(|(rule, _)| rule)
            .chain(extra.iter().map(|(_, value)| value))
            .chain([name]);
        if !others.any(|expression| expression.selects_claim("email_verified")) {
            let source = mappings.username.expression.as_str();
            errors.invalid(&user_path.child("expression"), source, EMAIL);
        }
    }
    CompiledMappings {
        username,
        groups,
        uid,
        extra,
    }
}

fn validate_prefixed(
    mapping: &PrefixedMapping,
    is_required: bool,
    path: &Path<'_>,
    errors: &mut Errors,
) -> Option<Source> {
    match (mapping.claim.is_empty(), mapping.expression.is_empty()) {
        (false, false) => errors.invalid(path, "", BOTH),
        (true, true) if is_required => errors.required(path, NEITHER),
        (true, true) => {}
        (true, false) => {
            if let Some(prefix) = &mapping.prefix {
                let detail = "may not be specified when expression is set";
                errors.invalid(&path.child("prefix"), prefix.as_str(), detail);
            }
            return compile_mapping(&mapping.expression, &path.child("expression"), errors)
                .map(Source::Expression);
        }
        (false, true) => match &mapping.prefix {
            Some(prefix) => {
                return Some(Source::Claim {
                    name: mapping.claim.clone(),
                    prefix: prefix.clone(),
                });
            }
            None => errors.required(
                &path.child("prefix"),
                "prefix is required when claim is set. It can be set to an empty string to \
                 disable prefixing",
            ),
        },
    }
    None
}

fn validate_uid(mapping: &UidMapping, path: &Path<'_>, errors: &mut Errors) -> Option<Source> {
    match (mapping.claim.is_empty(), mapping.expression.is_empty()) {
        (false, false) => {
            errors.invalid(path, "", BOTH);
            None
        }
        (true, true) => None,
        (false, true) => Some(Source::Claim {
            name: mapping.claim.clone(),
            prefix: String::new(),
        }),
        (true, false) => compile_mapping(&mapping.expression, &path.child("expression"), errors)
            .map(Source::Expression),
    }
}

fn validate_extra(
    mappings: &[ExtraMapping],
    path: &Path<'_>,
    errors: &mut Errors,
) -> Vec<(String, CompiledExpression)> {
    let mut compiled = Vec::new();
    let mut seen = HashSet::new();
    for (index, mapping) in mappings.iter().enumerate() {
        let path = path.index(index);
        let key = path.child("key");
        validate_domain_prefixed_path(&mapping.key, &key, errors);
        if mapping.key != mapping.key.to_lowercase() {
            errors.invalid(&key, mapping.key.as_str(), "must be lowercase");
        }
        if is_reserved(&mapping.key) {
            let detail =
                "k8s.io, kubernetes.io and their subdomains are reserved for Kubernetes use";
            errors.invalid(&key, mapping.key.as_str(), detail);
        }
        if !seen.insert(&mapping.key) {
            errors.duplicate(&key, mapping.key.as_str());
            continue;
        }
        let value = path.child("valueExpression");
        if mapping.value_expression.is_empty() {
            errors.required(&value, "");
            continue;
        }
        let done = compile_mapping(&mapping.value_expression, &value, errors);
        compiled.extend(done.map(|done| (mapping.key.clone(), done)));
    }
    compiled
}

fn is_reserved(key: &str) -> bool {
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    ["kubernetes.io", "k8s.io"].iter().any(|reserved| {
        domain
            .strip_suffix(reserved)
            .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    })
}

fn validate_user_rules(rules: &[UserRule], path: &Path<'_>, errors: &mut Errors) -> CompiledRules {
    let mut compiled = Vec::new();
    let mut seen = HashSet::new();
    for (index, rule) in rules.iter().enumerate() {
        let path = path.index(index);
        let path = path.child("expression");
        if rule.expression.is_empty() {
            errors.required(&path, "");
            continue;
        }
        if !seen.insert(&rule.expression) {
            errors.duplicate(&path, rule.expression.as_str());
            continue;
        }
        let done = CompiledExpression::compile_rule(&USER_ENVIRONMENT, &rule.expression);
        let done = report(done, &rule.expression, &path, errors);
        compiled.extend(done.map(|done| (done, rule.message.clone())));
    }
    compiled
}
