//! Roles, admission configuration, priorities, budgets, certificates, API registration.

use super::Row;
use crate::cells::*;
use crate::table::{AGE, Cell, NAME, boolean, integer, text, wide};
use api_meta::meta::{at, str_at};
use jiff::Timestamp;
use serde_json::Value;

const BINDING: &[Cell] = &[
    NAME,
    text("Role", |o, _| {
        Value::from(format!("{}/{}", str_at(o, &["roleRef", "kind"]), str_at(o, &["roleRef", "name"])))
    }),
    AGE,
    wide("Users", |o, _| subjects(o, "User")),
    wide("Groups", |o, _| subjects(o, "Group")),
    wide("ServiceAccounts", |o, _| subjects(o, "ServiceAccount")),
];

const POLICY_BINDING: &[Cell] = &[
    NAME,
    text("PolicyName", |o, _| Value::from(str_at(o, &["spec", "policyName"]))),
    text("ParamRef", |o, _| match at(o, &["spec", "paramRef"]) {
        None => Value::from("<unset>"),
        Some(p) if !str_at(p, &["name"]).is_empty() => match str_at(p, &["namespace"]) {
            "" => Value::from(format!("*/{}", str_at(p, &["name"]))),
            namespace => Value::from(format!("{namespace}/{}", str_at(p, &["name"]))),
        },
        Some(_) => Value::from("<unset>"),
    }),
    AGE,
];

pub(super) const ROWS: &[Row] = &[
    ("rbac.authorization.k8s.io", "rolebindings", BINDING),
    ("rbac.authorization.k8s.io", "clusterrolebindings", BINDING),
    (
        "policy",
        "poddisruptionbudgets",
        &[
            NAME,
            text("Min Available", |o, _| Value::from(shown(at(o, &["spec", "minAvailable"]), "N/A"))),
            text("Max Unavailable", |o, _| Value::from(shown(at(o, &["spec", "maxUnavailable"]), "N/A"))),
            integer("Allowed Disruptions", |o, _| Value::from(number(o, &["status", "disruptionsAllowed"]))),
            AGE,
        ],
    ),
    (
        "scheduling.k8s.io",
        "priorityclasses",
        &[
            NAME,
            integer("Value", |o, _| Value::from(number(o, &["value"]))),
            boolean("Global-Default", |o, _| Value::from(truth(o, &["globalDefault"]))),
            AGE,
            text("PreemptionPolicy", |o, _| Value::from(str_at(o, &["preemptionPolicy"]))),
        ],
    ),
    ("node.k8s.io", "runtimeclasses", &[NAME, text("Handler", |o, _| Value::from(str_at(o, &["handler"]))), AGE]),
    (
        "certificates.k8s.io",
        "certificatesigningrequests",
        &[
            NAME,
            AGE,
            text("SignerName", |o, _| or(str_at(o, &["spec", "signerName"]), "<none>")),
            text("Requestor", |o, _| Value::from(str_at(o, &["spec", "username"]))),
            text("RequestedDuration", |o, _| match at(o, &["spec", "expirationSeconds"]).and_then(Value::as_i64) {
                Some(seconds) => Value::from(api_meta::time::human_duration(seconds)),
                None => Value::from("<none>"),
            }),
            text("Condition", request_state),
        ],
    ),
    (
        "apiregistration.k8s.io",
        "apiservices",
        &[
            NAME,
            text("Service", |o, _| match at(o, &["spec", "service"]) {
                Some(s) => Value::from(format!("{}/{}", str_at(s, &["namespace"]), str_at(s, &["name"]))),
                None => Value::from("Local"),
            }),
            text("Available", available),
            AGE,
        ],
    ),
    ("admissionregistration.k8s.io", "mutatingwebhookconfigurations", &[NAME, integer("Webhooks", webhooks), AGE]),
    ("admissionregistration.k8s.io", "validatingwebhookconfigurations", &[NAME, integer("Webhooks", webhooks), AGE]),
    (
        "admissionregistration.k8s.io",
        "validatingadmissionpolicies",
        &[
            NAME,
            integer("Validations", |o, _| Value::from(items(o, &["spec", "validations"]).len())),
            text("ParamKind", param_kind),
            AGE,
        ],
    ),
    (
        "admissionregistration.k8s.io",
        "mutatingadmissionpolicies",
        &[
            NAME,
            integer("Mutations", |o, _| Value::from(items(o, &["spec", "mutations"]).len())),
            text("ParamKind", param_kind),
            AGE,
        ],
    ),
    ("admissionregistration.k8s.io", "validatingadmissionpolicybindings", POLICY_BINDING),
    ("admissionregistration.k8s.io", "mutatingadmissionpolicybindings", POLICY_BINDING),
    (
        "flowcontrol.apiserver.k8s.io",
        "flowschemas",
        &[
            NAME,
            text("PriorityLevel", |o, _| Value::from(str_at(o, &["spec", "priorityLevelConfiguration", "name"]))),
            text("MatchingPrecedence", |o, _| Value::from(number(o, &["spec", "matchingPrecedence"]))),
            text("DistinguisherMethod", |o, _| or(str_at(o, &["spec", "distinguisherMethod", "type"]), "<none>")),
            AGE,
            text("MissingPL", |o, _| {
                let dangling = items(o, &["status", "conditions"]).iter().find(|c| str_at(c, &["type"]) == "Dangling");
                or(dangling.map(|c| str_at(c, &["status"])).unwrap_or_default(), "?")
            }),
        ],
    ),
    (
        "flowcontrol.apiserver.k8s.io",
        "prioritylevelconfigurations",
        &[
            NAME,
            text("Type", |o, _| Value::from(str_at(o, &["spec", "type"]))),
            text("NominalConcurrencyShares", |o, _| limited(o, &["nominalConcurrencyShares"])),
            text("Queues", |o, _| limited(o, &["limitResponse", "queuing", "queues"])),
            text("HandSize", |o, _| limited(o, &["limitResponse", "queuing", "handSize"])),
            text("QueueLengthLimit", |o, _| limited(o, &["limitResponse", "queuing", "queueLengthLimit"])),
            AGE,
        ],
    ),
];

fn subjects(binding: &Value, kind: &str) -> Value {
    let of_kind = items(binding, &["subjects"]).iter().filter(|s| str_at(s, &["kind"]) == kind);
    let names: Vec<String> = of_kind
        .map(|s| match (kind, str_at(s, &["namespace"])) {
            ("ServiceAccount", namespace) => format!("{namespace}/{}", str_at(s, &["name"])),
            _ => str_at(s, &["name"]).to_owned(),
        })
        .collect();
    Value::from(names.join(", "))
}

fn request_state(csr: &Value, _: Timestamp) -> Value {
    let has = |kind: &str| items(csr, &["status", "conditions"]).iter().any(|c| str_at(c, &["type"]) == kind);
    let mut texts = Vec::new();
    if has("Denied") {
        texts.push("Denied");
    } else if has("Approved") {
        texts.push("Approved");
    } else {
        texts.push("Pending");
    }
    if has("Failed") {
        texts.push("Failed");
    }
    if !str_at(csr, &["status", "certificate"]).is_empty() {
        texts.push("Issued");
    }
    Value::from(texts.join(","))
}

fn available(service: &Value, _: Timestamp) -> Value {
    let found = items(service, &["status", "conditions"]).iter().find(|c| str_at(c, &["type"]) == "Available");
    Value::from(match found {
        Some(c) if str_at(c, &["status"]) == "True" => "True".to_owned(),
        Some(c) => format!("{} ({})", str_at(c, &["status"]), str_at(c, &["reason"])),
        None => "Unknown".to_owned(),
    })
}

fn param_kind(policy: &Value, _: Timestamp) -> Value {
    match at(policy, &["spec", "paramKind"]) {
        Some(p) => Value::from(format!("{}/{}", str_at(p, &["apiVersion"]), str_at(p, &["kind"]))),
        None => Value::from("<unset>"),
    }
}

fn limited(level: &Value, path: &[&str]) -> Value {
    let found = at(level, &["spec", "limited"]).and_then(|l| at(l, path));
    found.cloned().unwrap_or_else(|| Value::from("<none>"))
}
