//! The review that a webhook receives, and what its response says.

use api_meta::fields::FieldSelector;
use api_meta::labels::{Operator, Selector};
use apiserver_request::{Attributes, Decision, Failure};
use serde_json::{Map, Value, json};

const GROUP: &str = "authorization.k8s.io";
const KIND: &str = "SubjectAccessReview";
/// Bytes of attributes that the client chooses, from which on a decision is not kept, as upstream.
const MAX_CACHED: usize = 10_000;

/// A version of SubjectAccessReview.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReviewVersion {
    /// `v1`
    V1,
    /// `v1beta1`
    V1beta1,
}

impl ReviewVersion {
    /// Returns the version of a name.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "v1" => Some(ReviewVersion::V1),
            "v1beta1" => Some(ReviewVersion::V1beta1),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            ReviewVersion::V1 => "v1",
            ReviewVersion::V1beta1 => "v1beta1",
        }
    }
}

/// Builds the `spec` of a review. Empty fields are left out, as Go encodes them.
pub fn build_spec(attributes: &Attributes, version: ReviewVersion) -> Value {
    let user = &attributes.user;
    let mut spec = Map::new();
    if attributes.is_resource {
        spec.insert("resourceAttributes".into(), build_resource(attributes));
    } else {
        let target = texts([("path", &attributes.path), ("verb", &attributes.verb)]);
        spec.insert("nonResourceAttributes".into(), target.into());
    }
    spec.extend(texts([("user", &user.name), ("uid", &user.uid)]));
    if !user.groups.is_empty() {
        // The field had another name in the beta version.
        let name = match version {
            ReviewVersion::V1 => "groups",
            ReviewVersion::V1beta1 => "group",
        };
        spec.insert(name.into(), json!(user.groups));
    }
    if !user.extra.is_empty() {
        spec.insert("extra".into(), json!(user.extra));
    }
    spec.into()
}

fn texts<const N: usize>(fields: [(&str, &String); N]) -> Map<String, Value> {
    let filled = fields.into_iter().filter(|(_, text)| !text.is_empty());
    filled
        .map(|(name, text)| (name.to_owned(), text.as_str().into()))
        .collect()
}

fn build_resource(attributes: &Attributes) -> Value {
    let mut resource = texts([
        ("namespace", &attributes.namespace),
        ("verb", &attributes.verb),
        ("group", &attributes.group),
        ("version", &attributes.version),
        ("resource", &attributes.resource),
        ("subresource", &attributes.subresource),
        ("name", &attributes.name),
    ]);
    for (name, requirements) in [
        (
            "fieldSelector",
            field_requirements(&attributes.field_selector),
        ),
        (
            "labelSelector",
            label_requirements(&attributes.label_selector),
        ),
    ] {
        if !requirements.is_empty() {
            resource.insert(name.into(), json!({"requirements": requirements}));
        }
    }
    resource.into()
}

/// Returns the requirements of a field selector. None of a selector that can't be parsed: without
/// them, the review is about more objects.
pub fn field_requirements(selector: &str) -> Vec<Value> {
    if selector.is_empty() {
        return Vec::new();
    }
    let parsed = FieldSelector::parse(selector).unwrap_or_default();
    let requirement = |term: &api_meta::fields::Term| {
        let operator = if term.negated { "NotIn" } else { "In" };
        json!({"key": term.field, "operator": operator, "values": [term.value]})
    };
    parsed.terms.iter().map(requirement).collect()
}

/// Returns the requirements of a label selector that a review can have.
pub fn label_requirements(selector: &str) -> Vec<Value> {
    if selector.is_empty() {
        return Vec::new();
    }
    let parsed = Selector::parse(selector).unwrap_or_default();
    let requirement = |requirement: &api_meta::labels::Requirement| {
        let operator = match requirement.operator {
            Operator::In => "In",
            Operator::NotIn => "NotIn",
            Operator::Exists => "Exists",
            Operator::DoesNotExist => "DoesNotExist",
            // A review has no such operator. Without the requirement, it is about more objects.
            Operator::GreaterThan | Operator::LessThan => return None,
        };
        let mut built = json!({"key": requirement.key, "operator": operator});
        if !requirement.values.is_empty() {
            built["values"] = json!(requirement.values);
        }
        Some(built)
    };
    parsed.requirements.iter().filter_map(requirement).collect()
}

/// Encodes the review of a spec.
pub fn encode_review(spec: &Value, version: ReviewVersion) -> Vec<u8> {
    let review = json!({
        "kind": KIND,
        "apiVersion": format!("{GROUP}/{}", version.name()),
        "metadata": {},
        "spec": spec,
        "status": {"allowed": false},
    });
    review.to_string().into_bytes()
}

/// Returns whether the decision about a request may be kept.
pub fn is_cacheable(attributes: &Attributes) -> bool {
    let a = attributes;
    let controlled = [
        &a.namespace,
        &a.verb,
        &a.group,
        &a.version,
        &a.resource,
        &a.subresource,
        &a.name,
        &a.path,
        &a.field_selector,
        &a.label_selector,
    ];
    controlled.iter().map(|text| text.len()).sum::<usize>() < MAX_CACHED
}

/// Reads the decision of a response. The reason is the webhook's.
///
/// # Errors
/// The response is no SubjectAccessReview.
pub fn read_response(body: &[u8]) -> Result<Decision, &'static str> {
    let review: Value = serde_json::from_slice(body).map_err(|_| "is not JSON")?;
    let text = |field: &str| match review.get(field) {
        None => Some(""),
        Some(value) => value.as_str(),
    };
    let known_kind = matches!(text("kind"), Some("" | KIND));
    let known_version = match text("apiVersion") {
        Some("") => true,
        Some(version) => version.split_once('/').is_some_and(|(group, version)| {
            group == GROUP && ReviewVersion::from_name(version).is_some()
        }),
        None => false,
    };
    if !review.is_object() || !known_kind || !known_version {
        return Err("is not a SubjectAccessReview of authorization.k8s.io");
    }
    let status = match review.get("status") {
        None | Some(Value::Null) => &Map::new(),
        Some(Value::Object(status)) => status,
        Some(_) => return Err("has a status of a wrong type"),
    };
    let flag = |field: &str| match status.get(field) {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(flag)) => Ok(*flag),
        Some(_) => Err("has a status of a wrong type"),
    };
    let reason = match status.get("reason") {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(reason)) => reason.clone(),
        Some(_) => return Err("has a status of a wrong type"),
    };
    Ok(match (flag("allowed")?, flag("denied")?) {
        // Denied, because one of the two is wrong.
        (true, true) => Decision::Failed(Failure {
            is_denied: true,
            reason,
            error: "webhook subject access review returned both allow and deny response".into(),
        }),
        (false, true) => Decision::Deny(reason),
        (true, false) => Decision::Allow(reason),
        (false, false) => Decision::NoOpinion(reason),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use apiserver_request::User;

    fn request() -> Attributes {
        let extra = [("scopes".to_owned(), vec!["a".to_owned()])];
        Attributes {
            user: User {
                name: "jane".into(),
                uid: "7".into(),
                groups: vec!["dev".into()],
                extra: extra.into_iter().collect(),
            },
            verb: "list".into(),
            resource: "pods".into(),
            version: "v1".into(),
            namespace: "n".into(),
            is_resource: true,
            field_selector: "spec.nodeName=a,status.phase!=x".into(),
            label_selector: "app in (b,a),!old,gen>1".into(),
            ..Attributes::default()
        }
    }

    #[test]
    fn review_has_the_fields_of_its_version() {
        let resource = json!({"namespace": "n", "verb": "list", "version": "v1", "resource": "pods",
            "fieldSelector": {"requirements": [
                {"key": "spec.nodeName", "operator": "In", "values": ["a"]},
                {"key": "status.phase", "operator": "NotIn", "values": ["x"]}]},
            "labelSelector": {"requirements": [
                {"key": "app", "operator": "In", "values": ["a", "b"]},
                {"key": "old", "operator": "DoesNotExist"}]}});
        let mut expect = json!({"resourceAttributes": resource, "user": "jane", "uid": "7",
            "groups": ["dev"], "extra": {"scopes": ["a"]}});
        assert_eq!(build_spec(&request(), ReviewVersion::V1), expect);
        let groups = expect["groups"].take();
        expect.as_object_mut().unwrap().remove("groups");
        expect["group"] = groups;
        let beta = build_spec(&request(), ReviewVersion::V1beta1);
        assert_eq!(beta, expect);
        let review: Value =
            serde_json::from_slice(&encode_review(&beta, ReviewVersion::V1beta1)).unwrap();
        assert_eq!(review["apiVersion"], "authorization.k8s.io/v1beta1");
        assert_eq!(review["spec"], expect);
    }

    #[test]
    fn path_has_no_resource() {
        let path = Attributes {
            verb: "get".into(),
            path: "/metrics".into(),
            ..Attributes::default()
        };
        let expect = json!({"nonResourceAttributes": {"path": "/metrics", "verb": "get"}});
        assert_eq!(build_spec(&path, ReviewVersion::V1), expect);
    }

    #[test]
    fn selector_that_can_not_be_parsed_has_no_requirements() {
        assert!(field_requirements("a").is_empty());
        assert!(label_requirements("a in (").is_empty());
    }

    #[test]
    fn large_requests_are_not_cached() {
        let mut large = request();
        assert!(is_cacheable(&large));
        large.name = "n".repeat(MAX_CACHED);
        assert!(!is_cacheable(&large));
    }

    #[test]
    fn response_is_read_strictly() {
        let decision = |status: Value| {
            let review =
                json!({"kind": KIND, "apiVersion": "authorization.k8s.io/v1", "status": status});
            read_response(review.to_string().as_bytes())
        };
        let reason = || "r".to_owned();
        let allow = json!({"allowed": true, "reason": "r"});
        assert_eq!(decision(allow), Ok(Decision::Allow(reason())));
        let deny = json!({"allowed": false, "denied": true, "reason": "r"});
        assert_eq!(decision(deny), Ok(Decision::Deny(reason())));
        let none = Ok(Decision::NoOpinion(String::new()));
        assert_eq!(decision(json!({"allowed": false})), none);
        assert_eq!(decision(Value::Null), none);
        let both = decision(json!({"allowed": true, "denied": true}));
        assert!(matches!(both, Ok(Decision::Failed(failure)) if failure.is_denied));
        for status in [
            json!({"allowed": "true"}),
            json!({"allowed": true, "denied": 0}),
            json!({"allowed": true, "reason": 1}),
            json!([]),
        ] {
            assert!(decision(status.clone()).is_err(), "{status}");
        }
        for body in [
            "",
            "[]",
            "null",
            r#"{"kind": "Status", "apiVersion": "v1", "status": {"allowed": true}}"#,
            r#"{"kind": "SubjectAccessReview", "apiVersion": "x/v1", "status": {"allowed": true}}"#,
            r#"{"kind": 1, "status": {"allowed": true}}"#,
        ] {
            assert!(read_response(body.as_bytes()).is_err(), "{body}");
        }
        let bare = br#"{"status": {"allowed": true}}"#;
        assert_eq!(read_response(bare), Ok(Decision::Allow(String::new())));
    }
}
