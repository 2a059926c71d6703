//! Claims that are and that are not a user.

use super::{configuration, issuer};
use crate::jwt::file::load_content;
use crate::jwt::mapping::map_claims;
use apiserver_request::User;
use serde_json::{Value, json};
use std::collections::BTreeMap;

const NOW: i64 = 1_000_000;

/// Maps the usual claims with changes by the usual issuer with changes.
fn map(more: &Value, changes: &Value) -> Result<User, String> {
    let config = configuration(vec![issuer("https://i", more)]).to_string();
    let loaded = load_content(config.into_bytes(), &[]).unwrap();
    let mut claims = json!({"iss": "https://i", "aud": "a", "sub": "s", "exp": NOW + 60});
    replace(&mut claims, changes);
    let claims = claims.as_object().unwrap();
    map_claims(&loaded.issuers[0], claims, NOW).map_err(|error| error.to_string())
}

/// Replaces claims; null is a value.
fn replace(claims: &mut Value, changes: &Value) {
    for (name, change) in changes.as_object().unwrap() {
        claims[name] = change.clone();
    }
}

#[test]
fn times_and_audience_are_checked() {
    for (changes, is_valid) in [
        (json!({}), true),
        (json!({"exp": NOW}), true),
        (json!({"exp": NOW as f64 - 0.5}), false),
        (json!({"exp": null}), false),
        (json!({"exp": (NOW + 60).to_string()}), true),
        (json!({"exp": "soon"}), false),
        (json!({"exp": "inf"}), false),
        (json!({"nbf": NOW + 60}), true),
        (json!({"nbf": NOW + 61}), false),
        (json!({"nbf": "0"}), true),
        (json!({"nbf": ""}), false),
        (json!({"aud": "b"}), false),
        (json!({"aud": ["b", "a"]}), true),
        (json!({"aud": []}), false),
        (json!({"aud": ["a", 5]}), false),
        (json!({"aud": null}), false),
        (json!({"aud": {"a": 1}}), false),
    ] {
        assert_eq!(map(&json!({}), &changes).is_ok(), is_valid, "{changes}");
    }
}

#[test]
fn claims_become_attributes_of_the_user() {
    let mappings = json!({"claimMappings": {
    "username": {"claim": "name", "prefix": "u:"}, "groups": {"claim": "g", "prefix": "g:"},
    "uid": {"claim": "id"},
    "extra": [
        {"key": "a.io/one", "valueExpression": "claims.one"},
        {"key": "a.io/list", "valueExpression": "claims.g.filter(x, x != 'b')"},
        {"key": "a.io/none", "valueExpression": "claims.?none.orValue('')"},
        {"key": "a.io/null", "valueExpression": "null"},
    ]}});
    let claims = json!({"name": "n", "g": ["a", "b", ""], "id": "7", "one": "1", "jti": "j"});
    let user = map(&mappings, &claims).unwrap();
    let extra = [
        ("authentication.kubernetes.io/credential-id", vec!["JTI=j"]),
        ("a.io/one", vec!["1"]),
        ("a.io/list", vec!["a"]),
    ];
    let texts = |values: Vec<&str>| values.into_iter().map(str::to_owned).collect();
    let extra: BTreeMap<String, Vec<String>> = extra
        .into_iter()
        .map(|(key, values)| (key.to_owned(), texts(values)))
        .collect();
    assert_eq!(
        user,
        User {
            name: "u:n".into(),
            uid: "7".into(),
            groups: texts(vec!["g:a", "g:b", "g:"]),
            extra,
        }
    );
    for (changes, groups) in [
        (json!({"g": "a"}), Some(vec!["g:a"])),
        (json!({"g": 1}), None),
        (json!({"g": ["a", 1]}), None),
        (json!({"g": null, "id": null}), Some(vec![])),
        (json!({"g": ["a", null]}), Some(vec!["g:a", "g:"])),
    ] {
        let mut mapped = mappings.clone();
        mapped["claimMappings"]["extra"] = json!([]);
        let mut claims = claims.clone();
        replace(&mut claims, &changes);
        let found = map(&mapped, &claims).ok().map(|user| user.groups);
        assert_eq!(found, groups.map(texts), "{changes}");
    }
}

#[test]
fn claim_that_is_no_name_is_refused() {
    let by_email = json!({"claimMappings": {"username": {"claim": "email"}}});
    let by = |expression: &str| {
        json!({"claimMappings": {"username":
            {"claim": null, "prefix": null, "expression": expression}}})
    };
    for (more, changes, expect) in [
        (by_email.clone(), json!({"email": "e"}), Some("e")),
        (
            by_email.clone(),
            json!({"email": "e", "email_verified": true}),
            Some("e"),
        ),
        (
            by_email.clone(),
            json!({"email": "e", "email_verified": false}),
            None,
        ),
        (
            by_email,
            json!({"email": "e", "email_verified": "true"}),
            None,
        ),
        (json!({}), json!({"sub": null}), None),
        (json!({}), json!({"sub": 1}), None),
        (json!({}), json!({"sub": ""}), None),
        (by("'x:' + claims.sub"), json!({}), Some("x:s")),
        (by("claims['a-b']"), json!({"a-b": "x"}), Some("x")),
        (by("claims.a__dash__b"), json!({"a-b": "x"}), Some("x")),
        (by("claims.a__dash__b"), json!({"a__dash__b": "x"}), None),
        (
            by("claims.list[0].x__dot__y"),
            json!({"list": [{"x.y": "x"}]}),
            Some("x"),
        ),
        (by("claims.a__b"), json!({"a__b": "x"}), Some("x")),
        (by("claims.exp"), json!({}), None),
        (by("''"), json!({}), None),
        (by("claims.absent"), json!({}), None),
        // Numbers are doubles, as in Go.
        (by("string(claims.n + 0.5)"), json!({"n": 1}), Some("1.5")),
    ] {
        let name = map(&more, &changes).ok().map(|user| user.name);
        assert_eq!(name.as_deref(), expect, "{more} {changes}");
    }
}

#[test]
fn rules_refuse_claims_and_users() {
    let claims = |rules: Value| json!({"claimValidationRules": rules});
    let users = |expression: &str| json!({"userValidationRules": [{"expression": expression, "message": "no"}]});
    let denied = |expression: &str| claims(json!([{"expression": expression, "message": "no"}]));
    let required = claims(json!([{"claim": "hd", "requiredValue": "x"}]));
    let rule = claims(json!([{"expression": "claims.n < 5", "message": "n is large"}]));
    for (more, changes, expect) in [
        (&required, json!({"hd": "x"}), None),
        (
            &required,
            json!({"hd": "secret"}),
            Some("the required claim hd has another value"),
        ),
        (&required, json!({}), Some("the claim hd is not present")),
        (&rule, json!({"n": 4}), None),
        (
            &rule,
            json!({"n": 5}),
            Some("\"claims.n < 5\" failed: n is large"),
        ),
        (&rule, json!({}), Some("resulted in an error")),
        // Rules that deny must see the claim under its escaped name.
        (
            &denied("!has(claims.org__dot__suspended)"),
            json!({"org.suspended": 1}),
            Some("failed: no"),
        ),
        (
            &denied("claims.?is__dash__blocked.orValue(false) == false"),
            json!({"is-blocked": true}),
            Some("failed: no"),
        ),
        // Keys that are iterated over are those of the claim.
        (
            &denied("claims.roles.all(k, v, v != 'admin')"),
            json!({"roles": {"x__dash__y": "admin", "x-y": "ok"}}),
            Some("failed: no"),
        ),
        (
            &denied("claims.roles == {'x__dash__y': 'ok'}"),
            json!({"roles": {"x__dash__y": "ok"}}),
            None,
        ),
        (&users("user.username == 's'"), json!({}), None),
        (
            &users("user.groups.size() == 0 && user.extra.size() == 0"),
            json!({}),
            None,
        ),
        (
            &users("user.username.startsWith('x')"),
            json!({}),
            Some("failed: no"),
        ),
    ] {
        match (map(more, &changes), expect) {
            (Ok(_), None) => {}
            (Err(error), Some(expect)) => {
                assert!(error.contains(expect), "{more} {changes}: {error}");
                assert!(!error.contains("secret"), "{error}");
            }
            (done, _) => panic!("{more} {changes}: {done:?}"),
        }
    }
}

#[test]
fn expensive_expression_is_aborted() {
    let list = "[1,2,3,4,5,6,7,8,9,10]";
    let nested = (0..7).fold("true".to_owned(), |inner, depth| {
        format!("{list}.all(x{depth}, {inner})")
    });
    let more = json!({"claimValidationRules": [{"expression": nested}]});
    assert!(map(&more, &json!({})).unwrap_err().contains("cost"));
}
