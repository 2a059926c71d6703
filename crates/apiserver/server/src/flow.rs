//! API Priority and Fairness: the FlowSchema and the priority level of a request.
//!
//! Requests are classified and counted, and response headers name both. Requests are not queued, so
//! a level's shares have no effect. The table follows the watch cache through an observer; one task
//! writes into each schema's status whether its level exists.

mod class;
mod rules;
mod status;

use api_meta::Meta;
use apiserver_request::{Attributes, GroupResource, ObjectEvent, Objects, Observer};
use parking_lot::{Mutex, RwLock};
use rules::Rule;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::Notify;

pub use class::Class;
pub use status::maintain_status;

const GROUP: &str = "flowcontrol.apiserver.k8s.io";
const SCHEMAS: &str = "flowschemas";
const LEVELS: &str = "prioritylevelconfigurations";

struct Schema {
    name: Arc<str>,
    uid: Arc<str>,
    precedence: i64,
    level: Arc<str>,
    rules: Vec<Rule>,
}

#[derive(Default)]
struct Table {
    /// In matching order.
    schemas: Vec<Schema>,
    levels: BTreeMap<Arc<str>, Arc<str>>,
}

/// Number of requests by schema and level.
type Counts = BTreeMap<(Arc<str>, Arc<str>), u64>;

/// The cached schemas and levels, and the request counters.
#[derive(Default)]
pub struct FlowControl {
    table: RwLock<Table>,
    dispatched: Mutex<Counts>,
    changed: Notify,
}

impl FlowControl {
    /// Creates the table and subscribes to the watch cache.
    pub fn new(objects: &Arc<dyn Objects>) -> Arc<Self> {
        let flow = Arc::new(FlowControl::default());
        // Levels first: a schema without its level would be reported as dangling for a moment.
        for resource in [LEVELS, SCHEMAS] {
            objects.observe(&GroupResource::new(GROUP, resource), flow.clone());
        }
        flow
    }

    /// Returns the first schema that matches the request and whose level exists, and counts the
    /// request.
    pub fn classify(&self, attributes: &Attributes) -> Option<Class> {
        let class = self.find_class(attributes)?;
        *self
            .dispatched
            .lock()
            .entry((class.schema.clone(), class.level.clone()))
            .or_default() += 1;
        Some(class)
    }

    fn find_class(&self, attributes: &Attributes) -> Option<Class> {
        // A dangling schema takes no requests, as upstream: the next schema that matches gets them.
        let table = self.table.read();
        table
            .schemas
            .iter()
            .filter(|schema| {
                schema
                    .rules
                    .iter()
                    .any(|rule| rule.matches_request(attributes))
            })
            // Not the first match alone: a schema without its level is skipped for the next one.
            .find_map(|schema| {
                Some(Class {
                    schema: schema.name.clone(),
                    level: schema.level.clone(),
                    schema_uid: schema.uid.clone(),
                    level_uid: table.levels.get(&schema.level)?.clone(),
                })
            })
    }

    /// Returns the number of requests by schema and level.
    pub fn dispatched_counts(&self) -> Vec<(String, String, u64)> {
        let each = |((schema, level), count): (&(Arc<str>, Arc<str>), &u64)| {
            (schema.to_string(), level.to_string(), *count)
        };
        self.dispatched.lock().iter().map(each).collect()
    }

    /// Returns the text of `/debug/api_priority_and_fairness/dump_*`. No request is ever queued, so
    /// queues and requests are empty tables.
    pub fn dump_table(&self, what: &str) -> Option<String> {
        Some(match what {
            "dump_priority_levels" => self.dump_levels(),
            "dump_queues" => "PriorityLevelName, Index, PendingRequests, ExecutingRequests, SeatsInUse\n".to_owned(),
            "dump_requests" => "PriorityLevelName, FlowSchemaName, QueueIndex, RequestIndexInQueue, FlowDistingsher, \
                                ArriveTime, InitialSeats, FinalSeats, AdditionalLatency\n"
                .to_owned(),
            _ => return None,
        })
    }

    fn dump_levels(&self) -> String {
        let mut text =
            "PriorityLevelName, ActiveQueues, IsIdle, IsQuiescing, WaitingRequests, DispatchedRequests\n".to_owned();
        // Copied before the table is locked, so that the two locks are never held together.
        let dispatched = self.dispatched_counts();
        for level in self.table.read().levels.keys() {
            let count: u64 = dispatched
                .iter()
                .filter(|(_, l, _)| **l == **level)
                .map(|(.., count)| count)
                .sum();
            text.push_str(&format!("{level}, 0, true, false, 0, {count}\n"));
        }
        text
    }
}

fn read_schema(object: &Value) -> Schema {
    let text = |pointer: &str| {
        Arc::from(
            object
                .pointer(pointer)
                .and_then(Value::as_str)
                .unwrap_or_default(),
        )
    };
    Schema {
        name: object.name().into(),
        uid: object.uid().into(),
        precedence: object
            .pointer("/spec/matchingPrecedence")
            .and_then(Value::as_i64)
            // The API's default of matchingPrecedence.
            .unwrap_or(1000),
        level: text("/spec/priorityLevelConfiguration/name"),
        rules: Rule::parse_rules(object.pointer("/spec/rules")),
    }
}

impl Observer for FlowControl {
    fn object_changed(&self, resource: &GroupResource, event: &ObjectEvent) {
        let (object, gone) = match event {
            ObjectEvent::Applied(object) => (object, false),
            ObjectEvent::Deleted(object) => (object, true),
        };
        let name = object.name();
        let mut table = self.table.write();
        if resource.resource == LEVELS {
            table.levels.remove(name);
            if !gone {
                table.levels.insert(name.into(), object.uid().into());
            }
        } else {
            // An update may change the precedence, and with it the position.
            table.schemas.retain(|schema| &*schema.name != name);
            if !gone {
                let schema = read_schema(object);
                // Equal precedences are ordered by name, as upstream.
                let key = |schema: &Schema| (schema.precedence, schema.name.clone());
                let at = table
                    .schemas
                    .partition_point(|other| key(other) < key(&schema));
                table.schemas.insert(at, schema);
            }
        }
        drop(table);
        // The permit is kept: a change during a round of the status task causes another round.
        self.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use apiserver_request::User;
    use serde_json::json;

    #[test]
    fn the_first_that_fits() {
        let flow = FlowControl::default();
        let schema = |name: &str, precedence: i64, level: &str, group: &str| {
            json!({"metadata": {"name": name, "uid": name}, "spec": {"matchingPrecedence": precedence,
                "priorityLevelConfiguration": {"name": level}, "rules": [{"subjects": [{"kind": "Group", "group": {"name": group}}],
                "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": true}]}]}})
        };
        let apply = |resource: &str, object: Value| {
            flow.object_changed(
                &GroupResource::new(GROUP, resource),
                &ObjectEvent::Applied(Arc::new(object)),
            );
        };
        apply(LEVELS, json!({"metadata": {"name": "low", "uid": "l"}}));
        apply(SCHEMAS, schema("late", 20, "low", "*"));
        apply(SCHEMAS, schema("early", 10, "low", "nodes"));
        apply(SCHEMAS, schema("dangling", 1, "none", "*"));
        let ask = |group: &str| {
            let user = User {
                groups: vec![group.to_owned()],
                ..User::default()
            };
            let attributes = Attributes {
                user,
                verb: "get".into(),
                resource: "pods".into(),
                is_resource: true,
                ..Attributes::default()
            };
            flow.classify(&attributes)
                .map(|class| class.schema_uid.to_string())
        };
        assert_eq!(ask("nodes").as_deref(), Some("early"));
        assert_eq!(ask("people").as_deref(), Some("late"));
        assert_eq!(flow.dispatched_counts().len(), 2);
        flow.object_changed(
            &GroupResource::new(GROUP, LEVELS),
            &ObjectEvent::Deleted(Arc::new(json!({"metadata": {"name": "low"}}))),
        );
        assert_eq!(ask("nodes"), None);
    }
}
