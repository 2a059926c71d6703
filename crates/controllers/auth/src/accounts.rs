//! Creates the ServiceAccount `default` in every active namespace.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use client::Event;
use controllers_runtime::{Action, Cache, Decide, Meta, Queue, Setup, wake};

const NAME: &str = "default";

/// Returns the actions for one namespace.
pub fn reconcile_namespace(
    namespace: &Namespace,
    existing: Option<&ServiceAccount>,
) -> Vec<Action> {
    // Nothing can be created in a namespace in deletion.
    if namespace.is_deleting() || existing.is_some() {
        return Vec::new();
    }
    let account = ServiceAccount {
        metadata: ObjectMeta {
            name: Some(NAME.to_owned()),
            namespace: namespace.meta().name.clone(),
            ..ObjectMeta::default()
        },
        ..ServiceAccount::default()
    };
    vec![Action::create(&account).ignore_existing()]
}

struct Accounts {
    namespaces: Cache<Namespace>,
    accounts: Cache<ServiceAccount>,
}

/// Sets up the ServiceAccount controller.
pub fn add_service_account_controller(setup: &mut Setup, workers: usize) {
    let queue = Queue::new();
    let namespaces = setup
        .informers
        .for_kind::<Namespace>()
        .on_event(wake::enqueue_object(&queue))
        .cache();
    let deleted = queue.clone();
    let accounts = setup
        .informers
        .for_kind::<ServiceAccount>()
        .on_event(move |event| {
            // The account is created again, because pods without an account of their own need it.
            if let Event::Deleted(account) = event
                && account.name() == NAME
            {
                deleted.add(account.namespace().to_owned());
            }
        });
    let accounts = accounts.cache();
    setup.add_reconciler(
        "service-account-controller",
        workers,
        queue,
        Accounts {
            namespaces,
            accounts,
        },
    );
}

impl Decide for Accounts {
    fn reconcile(&self, key: &str, _now: Timestamp) -> Vec<Action> {
        let Some(namespace) = self.namespaces.get(key) else {
            return Vec::new();
        };
        reconcile_namespace(&namespace, self.accounts.get_by_name(key, NAME).as_deref())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use controllers_runtime::describe_actions;
    use serde_json::json;

    #[test]
    fn active_namespace_gets_the_default_account() {
        let namespace = |deleting: bool| -> Namespace {
            serde_json::from_value(json!({"metadata": {"name": "n",
                "deletionTimestamp": deleting.then_some("2026-01-01T00:00:00Z")}}))
            .unwrap()
        };
        let account = ServiceAccount::default();
        let lines = |deleting, existing| {
            describe_actions(&reconcile_namespace(&namespace(deleting), existing))
        };
        assert_eq!(lines(false, None), ["create ServiceAccount default"]);
        assert!(lines(false, Some(&account)).is_empty());
        assert!(lines(true, None).is_empty());
    }
}
