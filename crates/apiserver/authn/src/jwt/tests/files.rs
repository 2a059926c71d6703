//! Files that can and that can't be used.

use super::{configuration, issuer};
use crate::anonymous::Anonymous;
use crate::jwt::file::load_content;
use crate::jwt::mapping::map_claims;
use serde_json::{Value, json};

const ACCOUNTS: &str = "https://accounts.example.com";

fn load(content: &str) -> Result<Option<Anonymous>, String> {
    let disallowed = [ACCOUNTS.to_owned()];
    load_content(content.as_bytes().to_vec(), &disallowed).map(|loaded| loaded.anonymous)
}

fn load_issuer(more: Value) -> Result<Option<Anonymous>, String> {
    load(&configuration(vec![issuer("https://i", &more)]).to_string())
}

#[test]
fn conditions_open_exactly_their_paths() {
    let read = |anonymous: Value| {
        let mut config = configuration(Vec::new());
        config["anonymous"] = anonymous;
        load(&config.to_string()).unwrap()
    };
    let paths = json!({"enabled": true, "conditions": [{"path": "/livez"}, {"path": "/readyz"}]});
    let expect = Anonymous::Paths(vec!["/livez".into(), "/readyz".into()]);
    assert_eq!(read(paths), Some(expect));
    assert_eq!(read(Value::Null), None);
    assert_eq!(read(json!({"enabled": true})), Some(Anonymous::AllPaths));
    assert_eq!(read(json!({"enabled": false})), Some(Anonymous::Disabled));
}

#[test]
fn every_version_and_form_is_read() {
    for version in ["v1", "v1beta1", "v1alpha1"] {
        let yaml = format!(
            "apiVersion: apiserver.config.k8s.io/{version}\nkind: AuthenticationConfiguration\njwt:\n- \
             issuer:\n    url: https://i\n    discoveryURL: https://d/x\n    audiences: [a]\n  \
             claimMappings:\n    username: {{claim: sub, prefix: ''}}\n    uid: null\n"
        );
        load(&yaml).unwrap();
    }
}

#[test]
fn file_that_is_not_a_strict_configuration_is_refused() {
    let head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n";
    for (content, expect) in [
        ("", "the file is empty"),
        (
            "kind: AuthenticationConfiguration\napiVersion: v1",
            "it is not an",
        ),
        (
            "kind: AuthorizationConfiguration\napiVersion: apiserver.config.k8s.io/v1",
            "it is not",
        ),
        (&format!("{head}other: 1"), "unknown field `other`"),
        (&format!("{head}JWT: []"), "unknown field `JWT`"),
        (&format!("{head}jwt: []\njwt: []"), "strict decoding error"),
        (
            &format!("{head}jwt:\n- issuer: {{uri: x}}"),
            "unknown field `uri`",
        ),
        (&format!("{head}jwt: 1"), "strict decoding error"),
        (
            &format!("{head}anonymous: {{enabled: true, conditions: [{{}}]}}"),
            "missing field `path`",
        ),
        (
            &format!("{head}anonymous: {{conditions: [{{path: /livez}}]}}"),
            "anonymous.conditions: Invalid value: [{\"path\":\"/livez\"}]: enabled should be set",
        ),
    ] {
        let error = load(content).unwrap_err();
        assert!(error.contains(expect), "{content}: {error}");
    }
}

#[test]
fn issuers_are_bounded_and_distinct() {
    let many = |count: usize| {
        let issuers = (0..count).map(|n| issuer(&format!("https://i{n}"), &json!({})));
        load(&configuration(issuers.collect()).to_string())
    };
    many(64).unwrap();
    let error = many(65).unwrap_err();
    assert_eq!(error, "jwt: Too many: 65: must have at most 64 items");
    let discovery = json!({"issuer": {"discoveryURL": "https://d"}});
    let twice = vec![
        issuer("https://i", &discovery),
        issuer("https://i", &discovery),
    ];
    let error = load(&configuration(twice).to_string()).unwrap_err();
    assert_eq!(
        error,
        "jwt[1].issuer.url: Duplicate value: \"https://i\", jwt[1].issuer.discoveryURL: Duplicate \
         value: \"https://d\""
    );
}

#[test]
fn issuer_that_can_not_be_used_is_named() {
    for (more, expect) in [
        (json!({"url": ""}), "jwt[0].issuer.url: Required value"),
        (
            json!({"url": "http://i"}),
            "url: Invalid value: \"http://i\": URL scheme must be https",
        ),
        (
            json!({"url": "https://u:p@i"}),
            "URL must not contain a username or password",
        ),
        (
            json!({"url": "https://i?q=1"}),
            "URL must not contain a query",
        ),
        (
            json!({"url": "https://i#f"}),
            "URL must not contain a fragment",
        ),
        (
            json!({"url": ACCOUNTS}),
            "URL must not overlap with disallowed issuers: [https://accounts.example.com]",
        ),
        (
            json!({"discoveryURL": "https://i/"}),
            "discoveryURL must be different from URL",
        ),
        (
            json!({"discoveryURL": "http://d"}),
            "discoveryURL: Invalid value: \"http://d\"",
        ),
        (
            json!({"audiences": []}),
            "at least one jwt[0].issuer.audiences is required",
        ),
        (
            json!({"audiences": [""]}),
            "jwt[0].issuer.audiences[0]: Required value",
        ),
        (
            json!({"audiences": ["a", "a"], "audienceMatchPolicy": "MatchAny"}),
            "jwt[0].issuer.audiences[1]: Duplicate value: \"a\"",
        ),
        (
            json!({"audiences": ["a", "b"]}),
            "must be MatchAny for multiple audiences",
        ),
        (
            json!({"audienceMatchPolicy": "x"}),
            "must be empty or MatchAny for single audience",
        ),
        (
            json!({"certificateAuthority": "x"}),
            "certificateAuthority: Invalid value: \"<omitted>\"",
        ),
        (
            json!({"egressSelectorType": "cluster"}),
            "egress selectors are not supported",
        ),
    ] {
        let error = load_issuer(json!({"issuer": more})).unwrap_err();
        assert!(error.contains(expect), "{more}: {error}");
    }
    let two = json!({"issuer": {"audiences": ["a", "b"], "audienceMatchPolicy": "MatchAny"}});
    load_issuer(two).unwrap();
}

#[test]
fn claim_rules_have_either_a_claim_or_an_expression() {
    for (rules, expect) in [
        (
            json!([{"claim": "c", "expression": "true"}]),
            "claim and expression can't both be set",
        ),
        (
            json!([{}]),
            "jwt[0].claimValidationRules[0]: Required value: claim or expression",
        ),
        (
            json!([{"claim": "c", "message": "m"}]),
            "message: Invalid value: \"m\": may not be",
        ),
        (
            json!([{"claim": "c"}, {"claim": "c"}]),
            "[1].claim: Duplicate value: \"c\"",
        ),
        (
            json!([{"expression": "true", "requiredValue": "v"}]),
            "requiredValue: Invalid value",
        ),
        (
            json!([{"expression": "true"}, {"expression": "true"}]),
            "[1].expression: Duplicate value: \"true\"",
        ),
        (json!([{"expression": "claims.x"}]), "must evaluate to bool"),
        (
            json!([{"expression": "user.username == ''"}]),
            "compilation failed: ",
        ),
        (json!([{"expression": "claims."}]), "compilation failed: "),
    ] {
        let error = load_issuer(json!({"claimValidationRules": rules})).unwrap_err();
        assert!(error.contains(expect), "{rules}: {error}");
    }
    for rules in [
        json!([{"claim": "c"}, {"claim": "d", "requiredValue": "v"}]),
        json!([{"expression": "claims.x == 1 && claims.y", "message": "m"}]),
    ] {
        load_issuer(json!({"claimValidationRules": rules})).unwrap();
    }
}

#[test]
fn mappings_that_can_not_be_used_are_named() {
    let extra = |key: &str| json!({"extra": [{"key": key, "valueExpression": "claims.x"}]});
    for (mappings, expect) in [
        (
            json!({"username": null}),
            "username: Required value: claim or expression is required",
        ),
        (
            json!({"username": {"prefix": null}}),
            "username.prefix: Required value: prefix is",
        ),
        (
            json!({"username": {"expression": "'x'"}}),
            "claim and expression can't both be set",
        ),
        (
            json!({"username": {"claim": null, "expression": "claims.x"}}),
            "username.prefix: Invalid value: \"\": may not be specified when expression is set",
        ),
        (
            json!({"groups": {"claim": "g"}}),
            "groups.prefix: Required value",
        ),
        (
            json!({"groups": {"expression": "unknown"}}),
            "groups.expression: Invalid value",
        ),
        (
            json!({"uid": {"claim": "u", "expression": "'u'"}}),
            "uid: Invalid value",
        ),
        (
            extra("x"),
            "extra[0].key: Invalid value: \"x\": must be a domain-prefixed path",
        ),
        (extra(""), "extra[0].key: Required value"),
        (extra("example.com/Foo"), "must be lowercase"),
        (extra("kubernetes.io/x"), "are reserved for Kubernetes use"),
        (extra("a.k8s.io/x"), "are reserved for Kubernetes use"),
        (
            json!({"extra": [{"key": "example.com/x"}]}),
            "extra[0].valueExpression: Required value",
        ),
        (
            json!({"extra": [{"key": "a.io/x", "valueExpression": "1"},
                {"key": "a.io/x", "valueExpression": "2"}]}),
            "extra[1].key: Duplicate value: \"a.io/x\"",
        ),
    ] {
        let error = load_issuer(json!({"claimMappings": mappings})).unwrap_err();
        assert!(error.contains(expect), "{mappings}: {error}");
    }
    load_issuer(json!({"claimMappings": extra("notk8s.io/x")})).unwrap();
}

#[test]
fn email_as_the_name_needs_a_rule_about_its_verification() {
    let load = |name: &str, more: Value| {
        let mut fields = json!({"claimMappings": {
            "username": {"claim": null, "prefix": null, "expression": name}}});
        super::merge(&mut fields, &more);
        load_issuer(fields)
    };
    let rule = json!({"claimValidationRules": [{"expression": "claims.?email_verified.orValue(true) == true"}]});
    let extra = json!({"claimMappings": {"extra": [
        {"key": "a.io/v", "valueExpression": "string(claims.email_verified)"}]}});
    for (name, more, is_valid) in [
        ("claims.email", json!({}), false),
        ("claims.?email.orValue('x')", json!({}), false),
        ("has(claims.email) ? 'a' : 'b'", json!({}), false),
        (
            "claims.email_verified ? claims.email : claims.sub",
            json!({}),
            true,
        ),
        ("claims.email", rule, true),
        ("claims.email", extra, true),
        ("claims['email']", json!({}), true),
        ("claims.other.email", json!({}), true),
    ] {
        assert_eq!(load(name, more.clone()).is_ok(), is_valid, "{name} {more}");
    }
}

#[test]
fn user_rules_are_typed() {
    for (rules, expect) in [
        (
            json!([{}]),
            "jwt[0].userValidationRules[0].expression: Required value",
        ),
        (
            json!([{"expression": "user.username"}]),
            "must evaluate to bool",
        ),
        (
            json!([{"expression": "user.email == ''"}]),
            "compilation failed: ",
        ),
        (
            json!([{"expression": "claims.x == ''"}]),
            "compilation failed: ",
        ),
        (
            json!([{"expression": "true"}, {"expression": "true"}]),
            "[1].expression: Duplicate value",
        ),
    ] {
        let error = load_issuer(json!({"userValidationRules": rules})).unwrap_err();
        assert!(error.contains(expect), "{rules}: {error}");
    }
}

#[test]
fn example_of_the_operators_page_is_valid() {
    let page = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../docs/operations/authentication.md"
    );
    let page = std::fs::read_to_string(page).unwrap();
    // The issuers, and the field that servers without `ironclad` need beside them.
    let blocks = page.split("```yaml\n").skip(1);
    let blocks = blocks.map(|block| block.split_once("```").unwrap().0);
    let example: String = blocks.take(2).collect();
    let anonymous = load(&example).unwrap();
    let paths = vec!["/livez".to_owned(), "/readyz".to_owned()];
    assert_eq!(anonymous, Some(Anonymous::Paths(paths)));
    let loaded = load_content(example.into_bytes(), &[]).unwrap();
    let claims = json!({"aud": "my-cluster", "exp": 2000, "iat": 1000, "hd": "example.com",
        "sub": "1", "email": "a@example.com", "email_verified": true, "groups": ["dev"]});
    let user = map_claims(&loaded.issuers[0], claims.as_object().unwrap(), 1500).unwrap();
    assert_eq!(user.name, "sso:a@example.com");
    assert_eq!(user.groups, ["sso:dev"]);
}
