//! RBAC, certificates, admission, flow control, API services.

use api_meta::time;
use serde_json::{Value, json};

use crate::printer::{AGE, NAME, Printer, integer_column, text_column, wide_column};
use crate::view::{View, format_labels, text_of};

pub(crate) static ROLE_BINDING: Printer = Printer {
    columns: &[
        NAME,
        text_column("Role", "Role that is granted."),
        AGE,
        wide_column("Users", "Users that have it."),
        wide_column("Groups", "Groups that have it."),
        wide_column("ServiceAccounts", "Service accounts that have it."),
    ],
    cells: |view| {
        let role = format!(
            "{}/{}",
            view.text("/roleRef/kind"),
            view.text("/roleRef/name")
        );
        let subjects = |kind: &str| json!(join_subjects(view, kind));
        vec![
            view.name(),
            json!(role),
            view.age(),
            subjects("User"),
            subjects("Group"),
            subjects("ServiceAccount"),
        ]
    },
};

fn join_subjects(view: &View<'_>, kind: &str) -> String {
    let of_kind = view
        .list("/subjects")
        .iter()
        .filter(|subject| text_of(subject.get("kind")) == kind);
    // Only service accounts are namespaced; users and groups are cluster-wide names.
    let name = |subject: &Value| {
        let name = text_of(subject.get("name"));
        if kind == "ServiceAccount" {
            format!("{}/{name}", text_of(subject.get("namespace")))
        } else {
            name.to_owned()
        }
    };
    of_kind.map(name).collect::<Vec<_>>().join(", ")
}

pub(crate) static TRUST_BUNDLE: Printer = Printer {
    columns: &[
        NAME,
        text_column(
            "SignerName",
            "Signer whose certificates the bundle verifies.",
        ),
    ],
    cells: |view| {
        vec![
            view.name(),
            json!(view.text_or("/spec/signerName", "<none>")),
        ]
    },
};

pub(crate) static POD_CERTIFICATE: Printer = Printer {
    columns: &[
        NAME,
        text_column("PodName", "Pod that uses the certificate."),
        text_column("ServiceAccountName", "Service account of the pod."),
        text_column("NodeName", "Node of the pod."),
        text_column("SignerName", "Signer that is to issue the certificate."),
        text_column("State", "Pending, Issued, Denied or Failed."),
        text_column(
            "UnverifiedUserAnnotations",
            "Annotations of the pod's author for the signer.",
        ),
    ],
    cells: |view| {
        let conditions = view.list("/status/conditions").iter();
        let kinds = conditions.map(|condition| text_of(condition.get("type")));
        let mut states = kinds.filter(|kind| matches!(*kind, "Issued" | "Denied" | "Failed"));
        let text = |field: &str| json!(view.text(&format!("/spec/{field}")));
        vec![
            view.name(),
            text("podName"),
            text("serviceAccountName"),
            text("nodeName"),
            text("signerName"),
            json!(states.next_back().unwrap_or("Pending")),
            json!(format_labels(view.at("/spec/unverifiedUserAnnotations"))),
        ]
    },
};

pub(crate) static SIGNING_REQUEST: Printer = Printer {
    columns: &[
        NAME,
        AGE,
        text_column("SignerName", "Who is asked to sign."),
        text_column("Requestor", "Who asks."),
        text_column("RequestedDuration", "How long the certificate should hold."),
        text_column("Condition", "Whether it is approved and issued."),
    ],
    cells: |view| {
        // Optional: without it, the signer chooses the lifetime.
        let duration = view
            .at("/spec/expirationSeconds")
            .and_then(Value::as_i64)
            .map(time::human_duration);
        vec![
            view.name(),
            view.age(),
            json!(view.text_or("/spec/signerName", "<none>")),
            json!(view.text("/spec/username")),
            json!(duration.unwrap_or_else(|| "<none>".to_owned())),
            json!(signing_state(view)),
        ]
    },
};

fn signing_state(view: &View<'_>) -> String {
    let has = |kind: &str| view.condition(kind).is_some();
    let mut state = match () {
        // Denied wins: a denied request can not be approved again.
        () if has("Denied") => "Denied",
        () if has("Approved") => "Approved",
        () => "Pending",
    }
    .to_owned();
    // A signer can fail after the approval, which stays recorded.
    if has("Failed") {
        state += ",Failed";
    }
    if !view.text("/status/certificate").is_empty() {
        state += ",Issued";
    }
    state
}

pub(crate) static API_SERVICE: Printer = Printer {
    columns: &[
        NAME,
        text_column("Service", "Service that serves it."),
        text_column("Available", "Whether it answers."),
        AGE,
    ],
    cells: |view| {
        let service = match view.has("/spec/service") {
            true => format!(
                "{}/{}",
                view.text("/spec/service/namespace"),
                view.text("/spec/service/name")
            ),
            // An APIService without a service is served by this server.
            false => "Local".to_owned(),
        };
        let available = match view.condition("Available") {
            Some(condition) if text_of(condition.get("status")) == "True" => "True".to_owned(),
            Some(condition) => {
                format!(
                    "{} ({})",
                    text_of(condition.get("status")),
                    text_of(condition.get("reason"))
                )
            }
            None => "Unknown".to_owned(),
        };
        vec![view.name(), json!(service), json!(available), view.age()]
    },
};

pub(crate) static FLOW_SCHEMA: Printer = Printer {
    columns: &[
        NAME,
        text_column("PriorityLevel", "Level of the requests."),
        text_column("MatchingPrecedence", "Which schema is tried first."),
        text_column("DistinguisherMethod", "What makes a flow."),
        AGE,
        text_column("MissingPL", "Whether the level is missing."),
    ],
    cells: |view| {
        // Unknown until the flow control has looked at the schema.
        let dangling = view
            .condition("Dangling")
            .map_or("?", |condition| text_of(condition.get("status")));
        vec![
            view.name(),
            json!(view.text("/spec/priorityLevelConfiguration/name")),
            json!(view.int("/spec/matchingPrecedence")),
            json!(view.text_or("/spec/distinguisherMethod/type", "<none>")),
            view.age(),
            json!(dangling),
        ]
    },
};

pub(crate) static PRIORITY_LEVEL: Printer = Printer {
    columns: &[
        NAME,
        text_column("Type", "Whether requests are limited."),
        text_column("NominalConcurrencyShares", "Share of the server's seats."),
        text_column("Queues", "Number of queues."),
        text_column("HandSize", "Queues that a flow may use."),
        text_column("QueueLengthLimit", "Requests that may wait in a queue."),
        AGE,
    ],
    cells: |view| {
        let kind = view.text("/spec/type");
        // The shares are in the member of the type.
        let limits = if kind == "Exempt" {
            "exempt"
        } else {
            "limited"
        };
        let member = |path: &str| {
            let value = view.at(&format!("/spec/{limits}/{path}")).cloned();
            value.unwrap_or_else(|| Value::from("<none>"))
        };
        vec![
            view.name(),
            json!(kind),
            member("nominalConcurrencyShares"),
            member("limitResponse/queuing/queues"),
            member("limitResponse/queuing/handSize"),
            member("limitResponse/queuing/queueLengthLimit"),
            view.age(),
        ]
    },
};

pub(crate) static WEBHOOKS: Printer = Printer {
    columns: &[NAME, integer_column("Webhooks", "Number of webhooks."), AGE],
    cells: |view| vec![view.name(), json!(view.count("/webhooks")), view.age()],
};

const PARAM_KIND: crate::Column = text_column("ParamKind", "Kind of the parameters.");

fn policy_cells(view: &View<'_>, rules: &str) -> Vec<Value> {
    let kind = view.at("/spec/paramKind").map_or_else(
        || "<unset>".to_owned(),
        |kind| {
            format!(
                "{}/{}",
                text_of(kind.get("apiVersion")),
                text_of(kind.get("kind"))
            )
        },
    );
    vec![
        view.name(),
        json!(view.count(rules)),
        json!(kind),
        view.age(),
    ]
}

pub(crate) static VALIDATING_POLICY: Printer = Printer {
    columns: &[
        NAME,
        integer_column("Validations", "Number of validations."),
        PARAM_KIND,
        AGE,
    ],
    cells: |view| policy_cells(view, "/spec/validations"),
};

pub(crate) static MUTATING_POLICY: Printer = Printer {
    columns: &[
        NAME,
        integer_column("Mutations", "Number of mutations."),
        PARAM_KIND,
        AGE,
    ],
    cells: |view| policy_cells(view, "/spec/mutations"),
};

pub(crate) static POLICY_BINDING: Printer = Printer {
    columns: &[
        NAME,
        text_column("PolicyName", "Policy that is bound."),
        text_column("ParamRef", "Its parameters."),
        AGE,
    ],
    cells: |view| {
        let parameters = view.at("/spec/paramRef").map_or_else(
            || "<unset>".to_owned(),
            |reference| {
                // An absent name means that a selector chooses the parameters.
                let or_any = |name: &str| match text_of(reference.get(name)) {
                    "" => "*".to_owned(),
                    text => text.to_owned(),
                };
                format!("{}/{}", or_any("namespace"), or_any("name"))
            },
        );
        vec![
            view.name(),
            json!(view.text("/spec/policyName")),
            json!(parameters),
            view.age(),
        ]
    },
};
