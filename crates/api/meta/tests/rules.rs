//! Selectors, names, times and errors in the form that clients send and read.
#![allow(clippy::unwrap_used, missing_docs)]

use api_meta::fields::FieldSelector;
use api_meta::{ApiError, Cause, Meta, Reason, Selector, names, time, tree};
use serde_json::{Value, json};

fn matches(selector: &str, labels: Value) -> bool {
    Selector::parse(selector)
        .unwrap()
        .matches_map(labels.as_object())
}

#[test]
fn equality_selectors_compare_values() {
    for (selector, expected) in [
        ("", true),
        ("a=b", true),
        ("a==b", true),
        ("a=c", false),
        ("a!=c", true),
        ("a!=b", false),
        ("a=b,c=d", false),
        (" a = b ", true),
        ("e=", false),
    ] {
        assert_eq!(
            matches(selector, json!({"a": "b"})),
            expected,
            "{selector:?}"
        );
    }
}

#[test]
fn negative_selectors_match_objects_without_the_key() {
    for selector in ["a!=b", "a notin (b,c)", "!a"] {
        assert!(matches(selector, json!({})), "{selector}");
    }
}

#[test]
fn set_selectors_list_values() {
    for (selector, expected) in [
        ("a in (b,c)", true),
        ("a in (c)", false),
        ("a notin (b)", false),
        ("a", true),
        ("!a", false),
        ("z", false),
    ] {
        assert_eq!(matches(selector, json!({"a": "b"})), expected, "{selector}");
    }
}

#[test]
fn order_selectors_compare_integers() {
    for (selector, expected) in [("n>5", true), ("n<5", false), ("n>10", false)] {
        assert_eq!(
            matches(selector, json!({"n": "10"})),
            expected,
            "{selector}"
        );
    }
    assert!(!matches("n>5", json!({"n": "many"})));
}

#[test]
fn malformed_selectors_are_rejected() {
    for selector in [
        "a=b=c", ",a", "a,", "a in b", "a in (b", "in (a)", "a b", "-a=b", "a=-", "n>x",
    ] {
        assert!(Selector::parse(selector).is_err(), "{selector}");
    }
}

#[test]
fn selector_is_written_in_the_form_that_it_is_parsed_from() {
    for text in [
        "a=b",
        "a!=b",
        "a in (b,c)",
        "a notin (b,c)",
        "a",
        "!a",
        "n>1",
        "a=b,!c",
    ] {
        assert_eq!(Selector::parse(text).unwrap().to_string(), text);
    }
}

#[test]
fn absent_label_selector_matches_nothing_and_an_empty_one_everything() {
    assert_eq!(Selector::from_label_selector(&Value::Null).unwrap(), None);
    let empty = Selector::from_label_selector(&json!({})).unwrap().unwrap();
    assert!(empty.is_empty() && empty.matches_map(None));
}

#[test]
fn label_selector_has_no_order_operators() {
    let expression = json!({"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]});
    assert!(Selector::from_label_selector(&expression).is_err());
}

#[test]
fn field_selector_unescapes_values() {
    let selector = FieldSelector::parse("a=x\\,y,b!=z\\=").unwrap();
    assert_eq!(selector.exact("a"), Some("x,y"));
    assert!(!selector.matches(|field| Some(if field == "a" { "x,y" } else { "z=" }.into())));
}

#[test]
fn absent_field_equals_its_zero_value() {
    assert!(
        FieldSelector::parse("spec.nodeName=")
            .unwrap()
            .matches(|_| None)
    );
    assert!(
        !FieldSelector::parse("spec.nodeName=n")
            .unwrap()
            .matches(|_| None)
    );
}

#[test]
fn dns_names_have_limits() {
    assert!(names::dns1123_label(&"a".repeat(63)).is_empty());
    assert_eq!(
        names::dns1123_label(&"a".repeat(64)),
        ["must be no more than 63 characters"]
    );
    assert!(names::dns1123_subdomain(&"a".repeat(253)).is_empty());
    assert_eq!(
        names::dns1123_subdomain(&"a".repeat(254)),
        ["must be no more than 253 characters"]
    );
    assert_eq!(
        names::dns1123_label(&format!("a.{}", "b".repeat(62))),
        [
            "must be no more than 63 characters",
            "must not contain dots"
        ]
    );
    let label = "a".repeat(64);
    assert_eq!(
        names::label_value(&label),
        ["must be no more than 63 bytes"]
    );
    assert_eq!(
        names::qualified_name(&format!("{}/{label}", "a".repeat(254))),
        [
            "prefix part must be no more than 253 bytes",
            "name part must be no more than 63 bytes"
        ]
    );
}

#[test]
fn parts_of_a_qualified_name_are_reported_separately() {
    let problems = names::qualified_name("-/-");
    assert_eq!(problems.len(), 2);
    assert!(problems[0].starts_with("prefix part a lowercase RFC 1123 subdomain must"));
    assert!(problems[1].starts_with("name part must consist of alphanumeric characters"));
    assert_eq!(
        names::qualified_name("/a"),
        ["prefix part must be non-empty"]
    );
    assert!(names::qualified_name("a/").contains(&"name part must be non-empty".to_owned()));
}

#[test]
fn path_segment_is_no_step_and_has_no_slash_or_percent() {
    assert_eq!(names::path_segment("."), ["may not be '.'"]);
    assert_eq!(
        names::path_segment("a/b%"),
        ["may not contain '/'", "may not contain '%'"]
    );
}

#[test]
fn times_have_seconds_or_microseconds_in_utc() {
    let at = time::parse("2024-02-03T04:05:06.789012345+02:00").unwrap();
    assert_eq!(time::format(at), "2024-02-03T02:05:06Z");
    assert_eq!(time::format_micro(at), "2024-02-03T02:05:06.789012Z");
    assert!(time::parse("yesterday").is_none());
}

#[test]
fn age_is_shown_in_two_units_where_they_matter() {
    for (seconds, text) in [
        (-5, "<invalid>"),
        (-1, "0s"),
        (120, "2m"),
        (599, "9m59s"),
        (600, "10m"),
        (28_800, "8h"),
        (691_200, "8d"),
        (86_400 * 365 * 8, "8y"),
    ] {
        assert_eq!(time::human_duration(seconds), text, "{seconds}");
    }
}

#[test]
fn errors_name_the_resource_with_its_group() {
    let error = ApiError::not_found("apps", "deployments", "d");
    assert_eq!(error.status().message, "deployments.apps \"d\" not found");
    assert_eq!(error.code(), 404);
    let error = ApiError::already_exists("", "pods", "p");
    assert_eq!(error.status().message, "pods \"p\" already exists");
    assert_eq!(error.code(), 409);
}

#[test]
fn invalid_object_lists_its_causes() {
    let cause = Cause {
        reason: "FieldValueRequired".into(),
        message: "Required value".into(),
        field: "spec.x".into(),
    };
    let status = ApiError::invalid("apps", "Deployment", "d", vec![cause]).status();
    assert_eq!(
        status.message,
        "Deployment.apps \"d\" is invalid: spec.x: Required value"
    );
    assert_eq!(status.code, 422);
    let wire = serde_json::to_value(&status).unwrap();
    assert_eq!(wire["reason"], "Invalid");
    assert_eq!(wire["details"]["causes"][0]["field"], "spec.x");
}

#[test]
fn reasons_have_the_codes_of_http() {
    for (reason, code) in [
        (Reason::BadRequest, 400),
        (Reason::Unauthorized, 401),
        (Reason::Forbidden, 403),
        (Reason::NotFound, 404),
        (Reason::Conflict, 409),
        (Reason::Expired, 410),
        (Reason::Invalid, 422),
        (Reason::TooManyRequests, 429),
        (Reason::InternalError, 500),
    ] {
        assert_eq!(reason.code(), code, "{reason:?}");
    }
}

#[test]
fn metadata_of_any_tree_can_be_read_and_is_created_on_write() {
    let mut object = json!({"metadata": "no object"});
    assert_eq!((object.name(), object.label("a")), ("", None));
    object.set_meta_str("name", "x");
    assert_eq!(object, json!({"metadata": {"name": "x"}}));
    object.set_meta_str("name", "");
    assert_eq!(object, json!({"metadata": {}}));
}

#[test]
fn object_is_being_deleted_when_it_has_a_deletion_time() {
    let mut object = json!({"metadata": {"finalizers": ["a", 1, "b"]}});
    assert!(!object.is_being_deleted());
    assert_eq!(object.finalizers(), ["a", "b"]);
    object.set_meta_str("deletionTimestamp", "2024-01-01T00:00:00Z");
    assert!(object.is_being_deleted());
}

#[test]
fn fields_of_another_type_read_as_empty() {
    let object = json!({"text": 1, "number": "1", "list": {}, "flag": "true"});
    assert_eq!(tree::text(&object, "text"), "");
    assert_eq!(tree::int(&object, "number"), None);
    assert!(tree::list(&object, "list").is_empty());
    assert!(!tree::flag(&object, "flag"));
}

#[test]
fn filling_replaces_absent_and_null_and_nothing_else() {
    let mut object = json!({"a": null, "b": 0, "c": ""});
    for field in ["a", "b", "c", "d"] {
        tree::fill(&mut object, field, 7);
    }
    assert_eq!(object, json!({"a": 7, "b": 0, "c": "", "d": 7}));
    tree::fill_int(&mut object, "b", 8);
    tree::fill_text(&mut object, "c", "t");
    assert_eq!(object, json!({"a": 7, "b": 8, "c": "t", "d": 7}));
}

#[test]
fn values_are_found_at_pointers_without_escapes() {
    let object = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"list": [1, {"name": "x"}]}});
    for pointer in [
        "",
        "/metadata/labels",
        "/metadata/labels/a",
        "/metadata/labels/a/b",
        "/spec/list/1/name",
        "/spec/list/2",
        "/spec/list/name",
        "/absent/labels",
    ] {
        assert_eq!(
            tree::find(&object, pointer),
            object.pointer(pointer),
            "{pointer}"
        );
    }
}
