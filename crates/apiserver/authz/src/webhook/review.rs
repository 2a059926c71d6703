//! The review that a webhook receives, and what its response says.

use api_meta::fields::FieldSelector;
use api_meta::labels::{Operator, Selector};
use apiserver_request::{Attributes, Decision, Failure};
use apiserver_webhook_client::ReviewVersion;
use serde_json::{Map, Value, json};

const GROUP: &str = "authorization.k8s.io";
const KIND: &str = "SubjectAccessReview";
/// Bytes of attributes from which on a decision is not cached. As upstream, without those of the
/// user.
const MAX_CACHED: usize = 10_000;
/// Requirements of a selector at most. Each is an object of the review, much larger than its text.
const MAX_REQUIREMENTS: usize = 1000;
/// Bytes that an item of a list counts in addition to its text.
const ITEM: usize = 4;

/// The parsed selectors of a request.
#[derive(Default)]
pub struct Selectors {
    fields: FieldSelector,
    labels: Selector,
}

impl Selectors {
    /// Parses the selectors; `None` if they have too many requirements. One that can't be parsed
    /// has none: without them, the review is about more objects.
    pub fn parse(attributes: &Attributes) -> Option<Self> {
        let mut selectors = Selectors::default();
        if !attributes.field_selector.is_empty() {
            let parsed = FieldSelector::parse(&attributes.field_selector);
            selectors.fields = parsed.unwrap_or_default();
        }
        if !attributes.label_selector.is_empty() {
            let parsed = Selector::parse(&attributes.label_selector);
            selectors.labels = parsed.unwrap_or_default();
        }
        let count = selectors.fields.terms.len() + selectors.labels.requirements.len();
        (count <= MAX_REQUIREMENTS).then_some(selectors)
    }

    /// Builds the fields of a review that have requirements.
    pub fn build_fields(&self, values: EmptyValues) -> Vec<(&'static str, Value)> {
        let built = [
            ("fieldSelector", build_field_requirements(&self.fields)),
            (
                "labelSelector",
                build_label_requirements(&self.labels, values),
            ),
        ];
        let filled = built.into_iter().filter(|(_, all)| !all.is_empty());
        filled
            .map(|(name, all)| (name, wrap_requirements(all)))
            .collect()
    }
}

/// The field `values` of a requirement without values.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum EmptyValues {
    /// Left out, as Go encodes it.
    Omitted,
    /// An empty list, as expressions have it.
    Kept,
}

fn wrap_requirements(requirements: Vec<Value>) -> Value {
    let fields = [("requirements".to_owned(), requirements.into())];
    Value::Object(fields.into_iter().collect())
}

/// Builds the `spec` of a review. Empty fields are left out, as Go encodes them.
pub fn build_spec(attributes: &Attributes, selectors: &Selectors, version: ReviewVersion) -> Value {
    let user = &attributes.user;
    let mut spec = Map::new();
    if attributes.is_resource {
        let resource = build_resource(attributes, selectors);
        spec.insert("resourceAttributes".into(), resource);
    } else {
        let target = collect_texts([("path", &attributes.path), ("verb", &attributes.verb)]);
        spec.insert("nonResourceAttributes".into(), target.into());
    }
    spec.extend(collect_texts([("user", &user.name), ("uid", &user.uid)]));
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

fn collect_texts<const N: usize>(fields: [(&str, &String); N]) -> Map<String, Value> {
    let filled = fields.into_iter().filter(|(_, text)| !text.is_empty());
    filled
        .map(|(name, text)| (name.to_owned(), text.as_str().into()))
        .collect()
}

fn build_resource(attributes: &Attributes, selectors: &Selectors) -> Value {
    let mut resource = collect_texts([
        ("namespace", &attributes.namespace),
        ("verb", &attributes.verb),
        ("group", &attributes.group),
        ("version", &attributes.version),
        ("resource", &attributes.resource),
        ("subresource", &attributes.subresource),
        ("name", &attributes.name),
    ]);
    for (name, requirements) in selectors.build_fields(EmptyValues::Omitted) {
        resource.insert(name.into(), requirements);
    }
    resource.into()
}

fn build_field_requirements(selector: &FieldSelector) -> Vec<Value> {
    let requirement = |term: &api_meta::fields::Term| {
        let operator = if term.negated { "NotIn" } else { "In" };
        json!({"key": term.field, "operator": operator, "values": [term.value]})
    };
    selector.terms.iter().map(requirement).collect()
}

fn build_label_requirements(selector: &Selector, values: EmptyValues) -> Vec<Value> {
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
        if values == EmptyValues::Kept || !requirement.values.is_empty() {
            built["values"] = json!(requirement.values);
        }
        Some(built)
    };
    selector
        .requirements
        .iter()
        .filter_map(requirement)
        .collect()
}

/// Encodes the review of a spec.
pub fn encode_review(spec: Value, version: ReviewVersion) -> Vec<u8> {
    let mut review = json!({
        "kind": KIND,
        "apiVersion": version.api_version(GROUP),
        "metadata": {},
        "status": {"allowed": false},
    });
    review["spec"] = spec;
    review.to_string().into_bytes()
}

/// Returns whether the decision about a request may be cached.
pub fn is_cacheable(attributes: &Attributes) -> bool {
    count_target_bytes(attributes) < MAX_CACHED
}

/// Returns the bytes of all attributes. Callers choose those of the user, too: in reviews.
pub fn count_bytes(attributes: &Attributes) -> usize {
    let user = &attributes.user;
    let extra = user.extra.values().flatten();
    let items = user.groups.iter().chain(user.extra.keys()).chain(extra);
    let items: usize = items.map(|item| item.len() + ITEM).sum();
    count_target_bytes(attributes) + user.name.len() + user.uid.len() + items
}

fn count_target_bytes(attributes: &Attributes) -> usize {
    let a = attributes;
    let target = [
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
    target.iter().map(|text| text.len()).sum()
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
            is_overloaded: false,
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

    fn build(attributes: &Attributes, version: ReviewVersion) -> Value {
        let selectors = Selectors::parse(attributes).unwrap();
        build_spec(attributes, &selectors, version)
    }

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
        assert_eq!(build(&request(), ReviewVersion::V1), expect);
        let groups = expect["groups"].take();
        expect.as_object_mut().unwrap().remove("groups");
        expect["group"] = groups;
        let beta = build(&request(), ReviewVersion::V1beta1);
        assert_eq!(beta, expect);
        let review: Value =
            serde_json::from_slice(&encode_review(beta.clone(), ReviewVersion::V1beta1)).unwrap();
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
        assert_eq!(build(&path, ReviewVersion::V1), expect);
    }

    #[test]
    fn selector_that_can_not_be_parsed_has_no_requirements() {
        let attributes = Attributes {
            field_selector: "a".into(),
            label_selector: "a in (".into(),
            ..Attributes::default()
        };
        let selectors = Selectors::parse(&attributes).unwrap();
        assert!(selectors.build_fields(EmptyValues::Kept).is_empty());
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
