//! Conversions over fakes, and the checks of responses.
#![allow(clippy::unwrap_used)]

use super::response::{check_converted, parse_response};
use super::review::{build_review, split_batches};
use super::*;
use apiserver_webhook_client::{Address, Credentials, ServiceName, ServiceResolver};
use base_task::{CancellationToken, Tasks};
use base_telemetry::MetricsPage;
use serde_json::json;

const V2: &str = "g.example.com/v2";

fn object(version: &str) -> Value {
    json!({"apiVersion": format!("g.example.com/{version}"), "kind": "Foo",
        "metadata": {"name": "a", "namespace": "n", "uid": "u", "generation": 3, "labels": {"a": "b"}},
        "spec": {"size": 1}})
}

fn check(change: impl Fn(&mut Value)) -> Result<Value, String> {
    let mut converted = object("v2");
    change(&mut converted);
    check_converted(&object("v1"), converted, V2)
}

fn definition(webhook: &Value) -> Value {
    json!({"metadata": {"name": "foos.g.example.com"},
        "spec": {"conversion": {"strategy": "Webhook", "webhook": webhook}}})
}

struct NoServices;

impl ServiceResolver for NoServices {
    fn resolve_service(&self, _: &ServiceName) -> Result<Address, String> {
        Err("there are no services".into())
    }
}

fn client() -> (ConversionClient, Arc<ConversionMetrics>) {
    let tasks = Tasks::new(CancellationToken::new());
    let transport = Transport::new(tasks, Arc::new(NoServices), Credentials::default());
    let metrics = Arc::new(ConversionMetrics::default());
    (ConversionClient::new(transport, metrics.clone()), metrics)
}

#[test]
fn webhook_is_read_for_the_strategy_webhook_only() {
    let config = json!({"conversionReviewVersions": ["v2", "v1beta1", "v1"],
        "clientConfig": {"url": "https://a.example.com/convert"}});
    let webhook = ConversionWebhook::parse(&definition(&config)).unwrap();
    assert_eq!(webhook.version, Some(ReviewVersion::V1beta1));
    assert!(webhook.endpoint.is_ok());
    let none = json!({"spec": {"conversion": {"strategy": "None"}}});
    assert!(ConversionWebhook::parse(&none).is_none());
}

#[test]
fn review_has_the_objects_and_their_target() {
    let one = object("v1");
    let review = build_review(ReviewVersion::V1, "x", &[&one], V2);
    assert_eq!(review["apiVersion"], "apiextensions.k8s.io/v1");
    assert_eq!(
        review["request"],
        json!({"uid": "x", "desiredAPIVersion": V2, "objects": [one]})
    );
}

#[test]
fn only_objects_of_other_versions_are_sent() {
    let bare = json!({"apiVersion": "g.example.com/v1", "kind": "Foo"});
    let objects = [object("v2"), object("v1"), bare, object("v3")];
    assert_eq!(split_batches(&objects, V2), [[1, 3]]);
    assert!(split_batches(&[object("v2")], V2).is_empty());
}

#[test]
fn batches_have_a_bounded_size() {
    let mut large = object("v1");
    large["spec"]["text"] = "x".repeat(900 * 1024).into();
    let objects = vec![large; 5];
    assert_eq!(
        split_batches(&objects, V2),
        [vec![0, 1], vec![2, 3], vec![4]]
    );
    let mut huge = object("v1");
    huge["spec"]["text"] = "x".repeat(2500 * 1024).into();
    let objects = [object("v1"), huge, object("v1")];
    assert_eq!(split_batches(&objects, V2), [[0], [1], [2]]);
}

#[test]
fn response_belongs_to_its_request() {
    let parse =
        |version, review: Value| parse_response(version, "x", review.to_string().as_bytes());
    let v1 = "apiextensions.k8s.io/v1";
    let review = |response: Value| json!({"kind": "ConversionReview", "apiVersion": v1, "response": response});
    let success = json!({"status": "Success"});
    for (response, expect) in [
        (
            json!({"uid": "y", "result": success}),
            "expected response.uid=\"x\", got \"y\"",
        ),
        (
            json!({"uid": "x"}),
            "response.result.status was '', not 'Success'",
        ),
        (
            json!({"uid": "x", "result": {"status": "Failed"}}),
            "response.result.status was 'Failed', not 'Success'",
        ),
        (
            json!({"uid": "x", "result": {"status": "Failed", "message": "no"}}),
            "no",
        ),
        (Value::Null, "no response provided"),
    ] {
        let found = parse(ReviewVersion::V1, review(response)).unwrap_err();
        assert_eq!(found, expect);
    }
    let mut other = review(json!({"uid": "y", "result": success, "convertedObjects": [1]}));
    other["apiVersion"] = "apiextensions.k8s.io/v1beta1".into();
    let found = parse(ReviewVersion::V1, other.clone()).unwrap_err();
    assert!(found.starts_with(
        "expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got"
    ));
    assert_eq!(parse(ReviewVersion::V1beta1, other).unwrap(), [json!(1)]);
    assert!(parse_response(ReviewVersion::V1, "x", b"<html>").is_err());
}

#[test]
fn converted_object_has_the_same_identity() {
    for (field, expect) in [
        ("name", "must have the same name: a != z"),
        ("namespace", "must have the same namespace: n != z"),
        ("uid", "must have the same UID: u != z"),
    ] {
        let found = check(|converted| converted["metadata"][field] = "z".into());
        assert_eq!(found.unwrap_err(), expect);
    }
    for (change, expect) in [
        (
            json!({"apiVersion": "g.example.com/v3"}),
            "invalid groupVersion (expected g.example.com/v2, received g.example.com/v3)",
        ),
        (
            json!({"kind": "Bar"}),
            "invalid kind (expected Foo, received Bar)",
        ),
    ] {
        let found = check(|converted| {
            let changes = change.as_object().unwrap().clone();
            converted.as_object_mut().unwrap().extend(changes);
        });
        assert_eq!(found.unwrap_err(), expect);
    }
    assert!(check(|converted| *converted = json!("text")).is_err());
}

#[test]
fn webhook_changes_labels_and_annotations_only() {
    let converted = check(|converted| {
        converted["spec"] = json!({"width": 1});
        converted["metadata"] = json!({"name": "a", "namespace": "n", "uid": "u", "generation": 9,
            "finalizers": ["x/y"], "annotations": {"k": "v"}});
    });
    let converted = converted.unwrap();
    assert_eq!(converted["spec"], json!({"width": 1}));
    assert_eq!(
        converted["metadata"],
        json!({"name": "a", "namespace": "n", "uid": "u", "generation": 3, "annotations": {"k": "v"}})
    );
}

#[test]
fn labels_and_annotations_are_checked_if_they_change() {
    for (field, value) in [
        ("labels", json!({"a": 1})),
        ("labels", json!({"a b": "c"})),
        ("labels", json!({"a": "b c"})),
        ("labels", json!([])),
        ("annotations", json!({"a b": "c"})),
        ("annotations", json!({"a": "x".repeat(256 * 1024)})),
    ] {
        let found = check(|converted| converted["metadata"][field] = value.clone());
        assert!(found.is_err(), "{field}: {found:?}");
    }
    // Stored by a server with other rules.
    let mut original = object("v1");
    original["metadata"]["labels"] = json!({"a b": "c"});
    let mut converted = object("v2");
    converted["metadata"]["labels"] = json!({"a b": "c"});
    assert!(check_converted(&original, converted, V2).is_ok());
}

#[tokio::test]
async fn objects_of_the_target_version_need_no_webhook() {
    let (client, _) = client();
    let webhook = ConversionWebhook::parse(&definition(&json!({}))).unwrap();
    let objects = vec![object("v2"), object("v2")];
    let converted = client.convert_objects(&webhook, objects.clone(), V2).await;
    assert_eq!(converted.unwrap(), objects);
}

#[tokio::test]
async fn failed_call_has_upstreams_message_and_is_counted() {
    let (client, metrics) = client();
    let prefix = "conversion webhook for g.example.com/v1, Kind=Foo failed: ";
    for (config, expect) in [
        (
            json!({"conversionReviewVersions": ["v3"]}),
            "no supported conversion review versions",
        ),
        (
            json!({"conversionReviewVersions": ["v1"]}),
            "webhook configuration must have either service or URL",
        ),
        (
            json!({"conversionReviewVersions": ["v1"],
            "clientConfig": {"service": {"namespace": "n", "name": "s"}}}),
            "Post \"https://s.n.svc:443/?timeout=30s\": ",
        ),
    ] {
        let webhook = ConversionWebhook::parse(&definition(&config)).unwrap();
        let error = client
            .convert_objects(&webhook, vec![object("v1")], V2)
            .await;
        let text = error.unwrap_err().to_string();
        assert!(text.starts_with(&format!("{prefix}{expect}")), "{text}");
    }
    let mut page = MetricsPage::default();
    metrics.write_metrics(&mut page);
    let text = page.finish();
    for line in [
        "apiserver_conversion_webhook_request_total{result=\"failure\",failure_type=\"conversion_webhook_call_failure\"} 3",
        "apiserver_crd_conversion_webhook_duration_seconds_count{crd_name=\"foos.g.example.com\",from_version=\"v1\",to_version=\"v2\",succeeded=\"false\"} 3",
    ] {
        assert!(text.contains(line), "{line} is missing in {text}");
    }
}

#[test]
fn error_is_a_500_without_a_reason() {
    let error = ConversionError::count("g/v1, Kind=Foo", 1, 2).into_api_error();
    assert_eq!((error.code(), error.status().reason.as_str()), (500, ""));
    let text = "conversion webhook for g/v1, Kind=Foo returned 1 objects, expected 2";
    assert!(error.message.ends_with(text), "{}", error.message);
}
