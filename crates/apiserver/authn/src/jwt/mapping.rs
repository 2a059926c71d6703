//! Maps verified claims to a user.

use super::expression::CompiledExpression;
use super::mapping_error::MappingError;
use super::rules::{IssuerRules, Source};
use api_cel::Value as Cel;
use api_cel::hosts::identity::{CLAIMS, CLAIMS_SCHEMA, USER, USER_SHAPE};
use apiserver_request::User;
use serde_json::{Map, Number, Value, json};
use std::collections::BTreeMap;

type Claims = Map<String, Value>;

/// Tolerance for `nbf` in seconds, as upstream's OIDC library.
const NOT_BEFORE_LEEWAY: f64 = 60.0;
const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// Returns the user of verified claims at `now`, in seconds since 1970.
///
/// # Errors
/// The times, the audience or a rule refuse the token, or the claims have no user.
pub fn map_claims(rules: &IssuerRules, claims: &Claims, now: i64) -> Result<User, MappingError> {
    check_times(claims, now)?;
    check_audience(claims, &rules.issuer.audiences)?;
    let numbers_as_doubles = convert_numbers(&Value::Object(claims.clone()));
    let variable = Cel::from_json(&numbers_as_doubles, Some(CLAIMS_SCHEMA));
    let user = User {
        name: read_username(rules, claims, &variable)?,
        groups: read_groups(rules, claims, &variable)?,
        uid: read_uid(rules, claims, &variable)?,
        extra: read_extra(rules, claims, &variable)?,
    };
    for (name, value) in &rules.required {
        if text_claim(claims, name)? != value {
            return Err(MappingError::OtherValue(name.clone()));
        }
    }
    check_rules(&rules.claim_rules, CLAIMS, &variable)?;
    check_user(rules, &user)?;
    Ok(user)
}

/// Checks `exp` and `nbf`. Both are numbers, possibly with a fraction (RFC 7519, section 2), or,
/// as upstream, their texts.
fn check_times(claims: &Claims, now: i64) -> Result<(), MappingError> {
    let now = now as f64;
    let expires = claims.get("exp").and_then(read_time);
    if expires.is_none_or(|at| at < now) {
        return Err(MappingError::Expired);
    }
    match claims.get("nbf") {
        None | Some(Value::Null) => Ok(()),
        Some(at) if read_time(at).is_some_and(|at| at <= now + NOT_BEFORE_LEEWAY) => Ok(()),
        Some(_) => Err(MappingError::TooEarly),
    }
}

fn read_time(value: &Value) -> Option<f64> {
    match value {
        Value::String(text) => text.parse::<Number>().ok()?.as_f64(),
        value => value.as_f64(),
    }
}

fn check_audience(claims: &Claims, accepted: &[String]) -> Result<(), MappingError> {
    let is_accepted = |audience: &Value| {
        let text = audience.as_str();
        text.is_some_and(|text| accepted.iter().any(|accepted| accepted == text))
    };
    let fits = match claims.get("aud") {
        Some(Value::Array(audiences)) => {
            let is_text = |audience| read_text(audience).is_some();
            audiences.iter().all(is_text) && audiences.iter().any(is_accepted)
        }
        Some(audience) => is_accepted(audience),
        None => false,
    };
    fits.then_some(()).ok_or(MappingError::Audience)
}

/// Turns all numbers into doubles, as Go decodes them for expressions.
fn convert_numbers(value: &Value) -> Value {
    match value {
        Value::Number(number) => {
            let double = number.as_f64().and_then(Number::from_f64);
            double.map_or(Value::Null, Value::Number)
        }
        Value::Array(values) => values.iter().map(convert_numbers).collect(),
        Value::Object(fields) => {
            let converted = fields
                .iter()
                .map(|(name, value)| (name.clone(), convert_numbers(value)));
            Value::Object(converted.collect())
        }
        other => other.clone(),
    }
}

fn text_claim<'c>(claims: &'c Claims, name: &str) -> Result<&'c str, MappingError> {
    claims
        .get(name)
        .ok_or_else(|| MappingError::Absent(name.to_owned()))?
        .as_str()
        .ok_or_else(|| MappingError::WrongType(name.to_owned()))
}

/// Returns a text; null is an empty one, as Go decodes it.
fn read_text(value: &Value) -> Option<&str> {
    value.as_str().or_else(|| value.is_null().then_some(""))
}

fn read_username(
    rules: &IssuerRules,
    claims: &Claims,
    variable: &Cel<'_>,
) -> Result<String, MappingError> {
    let name = match &rules.username {
        Source::Claim { name, prefix } => {
            let value = text_claim(claims, name)?;
            let verified = claims.get("email_verified");
            // An unverified address may be that of another user. Issuers without the claim verify.
            if name == "email" && verified.is_some_and(|verified| *verified != Value::Bool(true)) {
                return Err(MappingError::Unverified);
            }
            // A prefix alone would be one user for all tokens with an empty claim.
            if value.is_empty() {
                return Err(MappingError::NoName);
            }
            format!("{prefix}{value}")
        }
        Source::Expression(expression) => {
            let result = expression.evaluate(CLAIMS, variable)?;
            let name = result.as_str().ok_or(MappingError::Result("username"))?;
            name.to_owned()
        }
    };
    if name.is_empty() {
        return Err(MappingError::NoName);
    }
    Ok(name)
}

fn read_groups(
    rules: &IssuerRules,
    claims: &Claims,
    variable: &Cel<'_>,
) -> Result<Vec<String>, MappingError> {
    match &rules.groups {
        None => Ok(Vec::new()),
        Some(Source::Expression(expression)) => {
            list_texts(&expression.evaluate(CLAIMS, variable)?, "groups")
        }
        Some(Source::Claim { name, prefix }) => {
            let wrong = || MappingError::WrongType(name.clone());
            let groups = match claims.get(name) {
                None | Some(Value::Null) => Vec::new(),
                Some(Value::String(group)) => vec![group.as_str()],
                Some(Value::Array(groups)) => {
                    let texts: Option<Vec<&str>> = groups.iter().map(read_text).collect();
                    texts.ok_or_else(wrong)?
                }
                Some(_) => return Err(wrong()),
            };
            Ok(groups
                .into_iter()
                .map(|group| format!("{prefix}{group}"))
                .collect())
        }
    }
}

fn read_uid(
    rules: &IssuerRules,
    claims: &Claims,
    variable: &Cel<'_>,
) -> Result<String, MappingError> {
    match &rules.uid {
        None => Ok(String::new()),
        Some(Source::Claim { name, .. }) if claims.get(name) == Some(&Value::Null) => {
            Ok(String::new())
        }
        Some(Source::Claim { name, .. }) => text_claim(claims, name).map(str::to_owned),
        Some(Source::Expression(expression)) => {
            let result = expression.evaluate(CLAIMS, variable)?;
            let uid = result.as_str().ok_or(MappingError::Result("uid"))?;
            Ok(uid.to_owned())
        }
    }
}

fn read_extra(
    rules: &IssuerRules,
    claims: &Claims,
    variable: &Cel<'_>,
) -> Result<BTreeMap<String, Vec<String>>, MappingError> {
    let mut extra = BTreeMap::new();
    if let Some(id) = claims.get("jti").and_then(Value::as_str)
        && !id.is_empty()
    {
        extra.insert(CREDENTIAL_ID.to_owned(), vec![format!("JTI={id}")]);
    }
    for (key, expression) in &rules.extra {
        let values = list_texts(&expression.evaluate(CLAIMS, variable)?, "extra")?;
        if !values.is_empty() {
            extra.insert(key.clone(), values);
        }
    }
    Ok(extra)
}

/// Returns the strings of a string, a list or null, without empty ones.
fn list_texts(value: &Cel<'_>, what: &'static str) -> Result<Vec<String>, MappingError> {
    let text = |value: &Cel<'_>| {
        let text = value.as_str().ok_or(MappingError::Result(what))?;
        Ok(text.to_owned())
    };
    let mut texts = match value {
        Cel::Null => Vec::new(),
        Cel::List(list) => list
            .iter()
            .map(|value| text(&value))
            .collect::<Result<Vec<_>, _>>()?,
        value => vec![text(value)?],
    };
    texts.retain(|text| !text.is_empty());
    Ok(texts)
}

fn check_rules(
    rules: &[(CompiledExpression, String)],
    variable: &str,
    value: &Cel<'_>,
) -> Result<(), MappingError> {
    for (expression, message) in rules {
        match expression.evaluate(variable, value)? {
            Cel::Bool(true) => {}
            Cel::Bool(false) => return Err(expression.refuse(message)),
            _ => return Err(MappingError::Result("a validation rule")),
        }
    }
    Ok(())
}

fn check_user(rules: &IssuerRules, user: &User) -> Result<(), MappingError> {
    if rules.user_rules.is_empty() {
        return Ok(());
    }
    let User {
        name,
        uid,
        groups,
        extra,
    } = user;
    let value = json!({"username": name, "uid": uid, "groups": groups, "extra": extra});
    let variable = Cel::from_json(&value, Some(&**USER_SHAPE));
    check_rules(&rules.user_rules, USER, &variable)
}
