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
    if namespace.deleting() || existing.is_some() {
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
        .of::<Namespace>()
        .on(wake::itself(&queue))
        .cache();
    let deleted = queue.clone();
    let accounts = setup.informers.of::<ServiceAccount>().on(move |event| {
        if let Event::Deleted(account) = event
            && account.name() == NAME
        {
            deleted.add(account.namespace().to_owned());
        }
    });
    let accounts = accounts.cache();
    setup.decide(
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
        reconcile_namespace(&namespace, self.accounts.named(key, NAME).as_deref())
    }
}
