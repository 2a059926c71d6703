use super::*;

#[test]
fn conversion_by_webhook_needs_an_address() {
    let at = "spec.conversion.webhookClientConfig";
    let config = |config: Value, expected: &[&str]| {
        spec(
            "conversion",
            webhook(json!({"clientConfig": config})),
            expected,
        )
    };
    spec("conversion", webhook(json!({})), &[]);
    config(
        json!(null),
        &[&format!(
            "{at}: Required value: required when strategy is set to Webhook"
        )],
    );
    config(
        json!({}),
        &[&format!(
            "{at}: Required value: exactly one of url or service is required"
        )],
    );
    config(
        json!({"url": "https://a/b", "service": {}}),
        &[&format!(
            "{at}: Required value: exactly one of url or service is required"
        )],
    );
    config(json!({"url": "https://example.com/convert"}), &[]);
    config(
        json!({"url": "http://u@example.com/?a#b"}),
        &[
            &format!(
                "{at}.url: Invalid value: \"http\": 'https' is the only allowed URL scheme; desired format: https://host[/path]"
            ),
            &format!(
                "{at}.url: Invalid value: \"u\": user information is not permitted in the URL"
            ),
            &format!("{at}.url: Invalid value: \"b\": fragments are not permitted in the URL"),
            &format!(
                "{at}.url: Invalid value: \"a\": query parameters are not permitted in the URL"
            ),
        ],
    );
    config(
        json!({"service": {"name": "s", "namespace": "n", "port": 70000, "path": "/a//B"}}),
        &[
            &format!(
                "{at}.service.port: Invalid value: 70000: port is not valid: must be between 1 and 65535, inclusive"
            ),
            &format!("{at}.service.path: Invalid value: \"/a//B\": segment[1] may not be empty"),
            &format!(
                "{at}.service.path: Invalid value: \"/a//B\": segment[2]: a lowercase RFC 1123 subdomain"
            ),
        ],
    );
    config(
        json!({"service": {"name": "s"}}),
        &[&format!("{at}.service.name: Required value")],
    );
}

#[test]
fn review_versions_include_a_known_one() {
    let at = "spec.conversion.conversionReviewVersions";
    let versions = |versions: Value, expected: &[&str]| {
        spec(
            "conversion",
            webhook(json!({"conversionReviewVersions": versions})),
            expected,
        )
    };
    versions(json!(["v2", "v1beta1"]), &[]);
    versions(json!([]), &[&format!("{at}: Required value")]);
    versions(
        json!(["v2"]),
        &[&format!(
            "{at}: Invalid value: [\"v2\"]: must include at least one of v1, v1beta1"
        )],
    );
    versions(
        json!(["v1", "v1"]),
        &[&format!(
            "{at}[1]: Invalid value: \"v1\": duplicate version"
        )],
    );
    versions(
        json!(["v1", "X"]),
        &[&format!("{at}[1]: Invalid value: \"X\": a DNS-1035")],
    );
}

#[test]
fn conversion_without_a_webhook_has_no_configuration() {
    let mut conversion = webhook(json!({}));
    conversion["strategy"] = "None".into();
    spec(
        "conversion",
        conversion,
        &[
            "spec.conversion.webhookClientConfig: Forbidden: should not be set when strategy is not set to Webhook",
            "spec.conversion.conversionReviewVersions: Forbidden: should not be set when strategy is not set to Webhook",
        ],
    );
    spec(
        "conversion",
        json!({"strategy": "Magic"}),
        &[
            "spec.conversion.strategy: Unsupported value: \"Magic\": supported values: \"None\", \"Webhook\"",
        ],
    );
}

#[test]
fn malformed_bundle_is_rejected_once_the_definition_is_established() {
    let bundle = |object: &mut Value| {
        object["spec"]["conversion"] = webhook(
            json!({"clientConfig": {"caBundle": "Zm9v", "service": {"name": "s", "namespace": "n"}}}),
        );
    };
    create(bundle, &[]);
    let old = build(|_| {});
    let mut established = old.clone();
    establish(&mut established);
    let mut new = established.clone();
    bundle(&mut new);
    let check = |old: &Value, expected: &[&str]| {
        let mut errors = Errors::default();
        (DEFINITION.update)(&new, old, &mut errors);
        compare(&errors, expected, &new);
    };
    check(&old, &[]);
    check(
        &established,
        &[
            "spec.conversion.webhookClientConfig.caBundle: Invalid value: \"Zm9v\": unable to load root certificates",
        ],
    );
    let mut invalid = established.clone();
    bundle(&mut invalid);
    check(&invalid, &[]);
}
