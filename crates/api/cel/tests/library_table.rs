//! Evaluates the expressions of `data/library.tsv` and compares values, messages, types and costs
//! with those of Kubernetes. Accepted differences are in `data/library_differences.tsv`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use api_cel::cost::Range;
use api_cel::library::authorizer::{
    AuthorizerCheck, CheckAttributes, CheckDecision, CheckResource, CheckTarget, authorizer_type,
    create_authorizer, create_request_resource, resource_type,
};
use api_cel::library::catalog::kubernetes_libraries;
use api_cel::library::json_patch;
use api_cel::{Budget, Environment, SizeEstimates, Type, Value};
use serde_json::json;

const TABLE: &str = include_str!("data/library.tsv");
const DIFFERENCES: &str = include_str!("data/library_differences.tsv");

/// Answers with the attributes of the check.
#[derive(Debug)]
struct Echo;

impl AuthorizerCheck for Echo {
    fn decide(&self, check: &CheckAttributes) -> Option<CheckDecision> {
        let user = match &check.service_account {
            Some((namespace, name)) => format!(
                "system:serviceaccount:{namespace}:{name}\
                 [system:serviceaccounts|system:serviceaccounts:{namespace}]"
            ),
            None => "jane[dev]".to_owned(),
        };
        let (path, version, is_resource, r) = match &check.target {
            CheckTarget::Path(path) => (path.as_str(), "", false, CheckResource::default()),
            CheckTarget::Resource(resource) => ("", "*", true, resource.clone()),
        };
        let verb = &check.verb;
        let reason = format!(
            "user={user} verb={verb} path={path} group={} version={version} resource={} sub={} \
             ns={} name={} rr={is_resource}",
            r.group, r.resource, r.subresource, r.namespace, r.name
        );
        let error = (verb == "fail").then(|| "webhook down".to_owned());
        let allowed = !["deny", "fail", "none"].contains(&verb.as_str());
        Some(CheckDecision {
            allowed,
            reason,
            error,
        })
    }
}

/// Texts have at most 12 characters, and nothing else has a known size.
struct TextSizes;

impl SizeEstimates for TextSizes {
    fn estimate_size(&self, _: &[String], value_type: &Type) -> Option<Range> {
        matches!(value_type, Type::String | Type::Bytes).then(|| Range::new(0, 12))
    }
}

fn environment() -> Environment {
    [
        ("authorizer", authorizer_type()),
        ("authorizer.requestResource", resource_type()),
        ("s", Type::String),
        ("d", Type::Dyn),
        ("ls", Type::list(Type::String)),
        ("li", Type::list(Type::Int)),
        ("m", Type::map(Type::String, Type::Int)),
        ("n", Type::Int),
    ]
    .into_iter()
    .fold(
        Environment::new(36, kubernetes_libraries()).with_library(json_patch::library()),
        |environment, (name, value_type)| environment.with_variable(name, value_type),
    )
}

fn show(value: &Value<'_>) -> String {
    let quoted = |text: &str| serde_json::to_string(text).unwrap();
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(flag) => flag.to_string(),
        Value::Int(number) => number.to_string(),
        Value::Uint(number) => format!("{number}u"),
        Value::Double(number) => format!("double({number})"),
        Value::String(text) => quoted(text),
        Value::Bytes(bytes) => {
            let digits = bytes.iter().fold(String::new(), |mut text, byte| {
                write!(text, "{byte:02x}").unwrap();
                text
            });
            format!("bytes({digits})")
        }
        Value::List(list) => {
            let shown: Vec<String> = list.iter().map(|element| show(&element)).collect();
            format!("[{}]", shown.join(", "))
        }
        Value::Map(map) => {
            let mut shown: Vec<String> = map
                .iter()
                .map(|(key, value)| format!("{}: {}", show(&key.to_value()), show(&value)))
                .collect();
            shown.sort();
            format!("{{{}}}", shown.join(", "))
        }
        Value::Duration(duration) => format!("duration({}s)", duration.as_secs_f64()),
        Value::Timestamp(time) => format!("timestamp({time})"),
        Value::Type(named) => format!("type({})", named.runtime_name()),
        Value::Optional(None) => "none".to_owned(),
        Value::Optional(Some(inner)) => format!("some({})", show(inner)),
        Value::Object(object) => {
            let shown = format!("{object:?}");
            let name = object.object_type().runtime_name().to_owned();
            let is_plain = ["url(", "ip(", "cidr(", "quantity(", "semver(", "format("]
                .iter()
                .any(|prefix| shown.starts_with(prefix));
            if is_plain {
                shown
            } else {
                format!("object({name})")
            }
        }
    }
}

fn show_range(range: Range) -> String {
    let bound = |n: u64| {
        if n == u64::MAX {
            "max".to_owned()
        } else {
            n.to_string()
        }
    };
    format!("{}..{}", bound(range.min), bound(range.max))
}

/// Returns the columns of a row without the expression.
fn answer(environment: &Environment, object: &serde_json::Value, expression: &str) -> Vec<String> {
    let program = match environment.compile(expression) {
        Ok(program) => program,
        Err(error) if error.is_instantiation => {
            let text = serde_json::to_string(&error.to_string()).unwrap();
            return vec!["program".to_owned(), text];
        }
        Err(error) => {
            let messages: Vec<String> = error
                .issues
                .iter()
                .map(|issue| match issue.offset {
                    Some(offset) => format!("1:{offset} {}", issue.message),
                    None => format!("-1:0 {}", issue.message),
                })
                .collect();
            return vec![
                "compile".to_owned(),
                serde_json::to_string(&messages).unwrap(),
            ];
        }
    };
    let estimate = show_range(program.estimate_cost(&TextSizes));
    let request = CheckResource {
        group: "apps".into(),
        resource: "deployments".into(),
        subresource: "scale".into(),
        namespace: "nsp".into(),
        name: "nm".into(),
        ..CheckResource::default()
    };
    let variables = BTreeMap::from([
        ("authorizer".to_owned(), create_authorizer(Arc::new(Echo))),
        (
            "authorizer.requestResource".to_owned(),
            create_request_resource(Arc::new(Echo), request),
        ),
        ("s".to_owned(), Value::string("hello")),
        ("d".to_owned(), Value::from_json(&object["d"], None)),
        ("ls".to_owned(), Value::from_json(&object["ls"], None)),
        ("li".to_owned(), Value::from_json(&object["li"], None)),
        ("m".to_owned(), Value::from_json(&object["m"], None)),
        ("n".to_owned(), Value::Int(2)),
    ]);
    let mut budget = Budget::new(10_000_000);
    let (outcome, text) = match program.evaluate(&variables, &mut budget) {
        Ok(value) => ("ok", show(&value)),
        Err(error) => ("error", serde_json::to_string(&error.to_string()).unwrap()),
    };
    let value_type = program.output_type().to_string();
    vec![
        outcome.to_owned(),
        text,
        value_type,
        estimate,
        budget.used().to_string(),
    ]
}

/// Names that the table and the crate write differently.
fn normalize(column: &str) -> String {
    let column = column
        .split(" fs=")
        .next()
        .unwrap_or(column)
        .trim_end_matches('"');
    let column = column
        .replace("google.protobuf.Duration", "duration")
        .replace("google.protobuf.Timestamp", "timestamp");
    // Formats have other capitals upstream.
    if column.starts_with("format(") || column.starts_with("some(format(") {
        return column.to_lowercase();
    }
    column
}

fn compare(expected: &[&str], found: &[String]) -> Vec<&'static str> {
    // A program that does not start has neither an estimate nor a cost.
    const NAMES: [&str; 5] = ["outcome", "value", "type", "estimate", "cost"];
    expected
        .iter()
        .zip(found)
        .zip(NAMES)
        .filter(|((expected, found), _)| normalize(expected) != normalize(found))
        .map(|(_, name)| name)
        .collect()
}

#[test]
fn expressions_answer_as_those_of_kubernetes() {
    let environment = environment();
    let object = json!({
        "d": {"a": "x", "l": [1.0, 2.5, "s", null, true], "m": {"k": "v"}, "n": 3.0},
        "ls": ["b", "a"],
        "li": [3, 1, 2],
        "m": {"a": 1, "b": 2},
    });
    let differences: BTreeMap<&str, &str> = DIFFERENCES
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once('\t'))
        .collect();
    let (mut passed, mut accepted, mut wrong) = (0, 0, Vec::new());
    for line in TABLE
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
    {
        let columns: Vec<&str> = line.split('\t').collect();
        let (expression, expected) = columns.split_first().expect("an expression");
        let found = answer(&environment, &object, expression);
        let differing = compare(expected, &found);
        match (differing.is_empty(), differences.get(expression)) {
            (true, None) => passed += 1,
            (false, Some(_)) => accepted += 1,
            (true, Some(_)) => wrong.push(format!("{expression}\n  is no difference any more")),
            (false, None) => wrong.push(format!(
                "{expression}\n  differs in {differing:?}\n  expected {expected:?}\n  found    {found:?}"
            )),
        }
    }
    println!("{passed} expressions answer as upstream, {accepted} differ for a known reason");
    assert!(
        wrong.is_empty(),
        "{} expressions\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    assert!(passed > 1_300, "{passed}");
}
