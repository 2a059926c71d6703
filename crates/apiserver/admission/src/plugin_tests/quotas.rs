use super::*;
use crate::quota::ResourceQuota;

fn quota(name: &str, hard: Value, used: Value) -> Value {
    json!({"metadata": {"name": name, "namespace": "n"}, "status": {"hard": hard, "used": used}})
}

fn plugin(quotas: &[Value]) -> (ResourceQuota, Arc<FakeQuotas>) {
    let store = Arc::new(FakeQuotas(Mutex::new(quotas.to_vec())));
    let objects: Vec<(&str, Value)> = quotas
        .iter()
        .map(|q| ("resourcequotas", q.clone()))
        .collect();
    (
        ResourceQuota::new(context_with(&objects, &[], store.clone())),
        store,
    )
}

fn used(store: &FakeQuotas, index: usize) -> Value {
    store.0.lock().unwrap()[index]["status"]["used"].clone()
}

fn pod(cpu: &str) -> Value {
    json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}, "limits": {"cpu": cpu}}}]}})
}

#[test]
fn charge_is_written_until_the_quota_is_exceeded() {
    let (plugin, store) = plugin(&[quota(
        "q",
        json!({"pods": "2", "requests.cpu": "1"}),
        json!({"pods": "0", "requests.cpu": "0"}),
    )]);
    assert_eq!(validate(&plugin, &create("pods", pod("600m"))), Ok(()));
    assert_eq!(
        used(&store, 0),
        json!({"pods": "1", "requests.cpu": "600m"})
    );
    assert_eq!(
        validate(&plugin, &create("pods", pod("500m"))),
        forbidden(
            "pods",
            "exceeded quota: q, requested: requests.cpu=500m, used: requests.cpu=600m, limited: requests.cpu=1"
        )
    );
    assert_eq!(
        used(&store, 0),
        json!({"pods": "1", "requests.cpu": "600m"})
    );
}

/// Returns a plugin whose cache shows a quota as it was created: without its status.
fn plugin_with_stale_cache(hard: Value, used: Value) -> (ResourceQuota, Arc<FakeQuotas>) {
    let mut stored = quota("q", hard.clone(), used);
    stored["spec"] = json!({"hard": hard});
    let mut cached = stored.clone();
    cached["status"] = Value::Null;
    let store = Arc::new(FakeQuotas(Mutex::new(vec![stored])));
    let objects = [("resourcequotas", cached)];
    let plugin = ResourceQuota::new(context_with(&objects, &[], store.clone()));
    (plugin, store)
}

#[test]
fn write_is_charged_although_the_cache_lacks_the_status() {
    let hard = json!({"pods": "1", "requests.cpu": "1"});
    let (plugin, store) = plugin_with_stale_cache(hard, json!({"pods": "0", "requests.cpu": "0"}));
    let bare = json!({"spec": {"containers": [{"name": "c"}]}});
    assert_eq!(
        validate(&plugin, &create("pods", bare)),
        forbidden("pods", "failed quota: q: must specify requests.cpu for: c")
    );
    assert_eq!(validate(&plugin, &create("pods", pod("1"))), Ok(()));
    assert_eq!(used(&store, 0), json!({"pods": "1", "requests.cpu": "1"}));
    assert!(validate(&plugin, &create("pods", pod("1"))).is_err());
}

#[test]
fn growth_is_charged_although_the_cache_lacks_the_status() {
    let claim = |size: &str| json!({"spec": {"resources": {"requests": {"storage": size}}}});
    let service =
        |ports: Value| json!({"spec": {"type": "NodePort", "ports": ports, "clusterIP": "a"}});
    let port = json!({"port": 1});
    for (path, name, [small, large, larger]) in [
        (
            "persistentvolumeclaims",
            "requests.storage",
            [claim("1"), claim("3"), claim("5")],
        ),
        (
            "pods/resize",
            "requests.cpu",
            [pod("1"), pod("3"), pod("5")],
        ),
        (
            "pods/resize",
            "requests.cpu",
            ["1", "3", "5"].map(|cpu| {
                json!({"spec": {"resources": {"requests": {"cpu": cpu}},
                "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}})
            }),
        ),
        (
            "services",
            "services.nodeports",
            [
                service(json!([port])),
                service(json!([port, port, port])),
                service(json!([port, port, port, port, port])),
            ],
        ),
    ] {
        let (plugin, store) = plugin_with_stale_cache(json!({name: "4"}), json!({name: "1"}));
        let dry = Write {
            dry_run: true,
            ..update(path, small.clone(), large.clone())
        };
        assert_eq!(validate(&plugin, &dry), Ok(()), "{path}");
        assert_eq!(used(&store, 0), json!({name: "1"}), "{path}: dry run");
        let write = update(path, small, large.clone());
        assert_eq!(validate(&plugin, &write), Ok(()), "{path}");
        assert_eq!(used(&store, 0), json!({name: "3"}), "{path}");
        let refused = validate(&plugin, &update(path, large, larger));
        assert!(refused.is_err(), "{path}");
        assert_eq!(used(&store, 0), json!({name: "3"}), "{path}: refused");
    }
}

#[test]
fn dry_run_is_checked_and_not_charged() {
    let (plugin, store) = plugin(&[quota("q", json!({"pods": "1"}), json!({"pods": "0"}))]);
    let write = Write {
        dry_run: true,
        ..create("pods", pod("1"))
    };
    assert_eq!(validate(&plugin, &write), Ok(()));
    assert_eq!(used(&store, 0), json!({"pods": "0"}));
}

#[test]
fn rejection_by_a_later_quota_releases_the_charge_of_an_earlier_one() {
    let (plugin, store) = plugin(&[
        quota("a", json!({"pods": "5"}), json!({"pods": "1"})),
        quota("b", json!({"pods": "1"}), json!({"pods": "1"})),
    ]);
    assert_eq!(
        validate(&plugin, &create("pods", pod("1"))),
        forbidden(
            "pods",
            "exceeded quota: b, requested: pods=1, used: pods=1, limited: pods=1"
        )
    );
    assert_eq!(
        (used(&store, 0), used(&store, 1)),
        (json!({"pods": "1"}), json!({"pods": "1"}))
    );
}

#[test]
fn pod_must_specify_what_a_quota_bounds() {
    let (plugin, _) = plugin(&[quota(
        "q",
        json!({"limits.memory": "1Gi", "cpu": "1", "pods": "5"}),
        json!({}),
    )]);
    let object = json!({"spec": {"containers": [{"name": "b"}, {"name": "a", "resources": {"requests": {"cpu": "1"}}}]}});
    assert_eq!(
        validate(&plugin, &create("pods", object)),
        forbidden(
            "pods",
            "failed quota: q: must specify cpu for: b; limits.memory for: a,b"
        )
    );
}

#[test]
fn update_charges_growth_only() {
    let (plugin, store) = plugin(&[quota(
        "q",
        json!({"requests.storage": "10Gi"}),
        json!({"requests.storage": "4Gi"}),
    )]);
    let claim = |size: &str| json!({"spec": {"resources": {"requests": {"storage": size}}}});
    assert_eq!(
        validate(
            &plugin,
            &update("persistentvolumeclaims", claim("4Gi"), claim("6Gi"))
        ),
        Ok(())
    );
    assert_eq!(used(&store, 0), json!({"requests.storage": "6Gi"}));
    assert_eq!(
        validate(
            &plugin,
            &update("persistentvolumeclaims", claim("6Gi"), claim("1Gi"))
        ),
        Ok(())
    );
    assert_eq!(used(&store, 0), json!({"requests.storage": "6Gi"}));
}

#[test]
fn quota_without_usage_in_its_status_rejects() {
    let (plugin, _) = plugin(&[quota("q", json!({"pods": "2"}), json!({}))]);
    assert_eq!(
        validate(&plugin, &create("pods", pod("1"))),
        forbidden("pods", "status unknown for quota: q, resources: pods")
    );
}

#[test]
fn quota_with_scopes_counts_the_pods_in_all_of_them() {
    let best_effort = json!({"spec": {"containers": [{"name": "c"}]}});
    let mut terminating = pod("1");
    terminating["spec"]["activeDeadlineSeconds"] = 5.into();
    let mut critical = pod("1");
    critical["spec"]["priorityClassName"] = "high".into();
    let class = json!({"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}]}});
    for (spec, object, counted) in [
        (json!({"scopes": ["BestEffort"]}), &best_effort, true),
        (json!({"scopes": ["BestEffort"]}), &critical, false),
        (json!({"scopes": ["NotBestEffort"]}), &critical, true),
        (json!({"scopes": ["Terminating"]}), &terminating, true),
        (json!({"scopes": ["Terminating"]}), &critical, false),
        (
            json!({"scopes": ["NotTerminating", "BestEffort"]}),
            &critical,
            false,
        ),
        (class.clone(), &critical, true),
        (class, &terminating, false),
    ] {
        let mut full = quota("q", json!({"pods": "1"}), json!({"pods": "1"}));
        full["spec"] = spec.clone();
        let (plugin, _) = plugin(&[full]);
        assert_eq!(
            validate(&plugin, &create("pods", object.clone())).is_err(),
            counted,
            "{spec} {object}"
        );
    }
}

#[test]
fn quota_with_scopes_does_not_count_other_objects() {
    let mut full = quota(
        "q",
        json!({"count/secrets": "0"}),
        json!({"count/secrets": "0"}),
    );
    full["spec"] = json!({"scopes": ["NotTerminating"]});
    let (plugin, _) = plugin(&[full]);
    assert_eq!(validate(&plugin, &create("secrets", json!({}))), Ok(()));
}

/// Returns what a create charges of `hard`, each with a limit of 100 and a usage of 0.
fn charged(path: &'static str, object: Value, names: &[&str]) -> Value {
    let amounts = |amount: &str| {
        names
            .iter()
            .map(|n| ((*n).to_owned(), json!(amount)))
            .collect::<serde_json::Map<_, _>>()
    };
    let (plugin, store) = plugin(&[quota("q", amounts("100Gi").into(), amounts("0").into())]);
    assert_eq!(validate(&plugin, &create(path, object)), Ok(()));
    used(&store, 0)
}

#[test]
fn service_counts_its_node_ports_and_load_balancer() {
    let names = ["services", "services.loadbalancers", "services.nodeports"];
    let ports = json!([{"port": 1}, {"port": 2}]);
    for (spec, expect) in [
        (
            json!({"type": "ClusterIP", "ports": ports}),
            json!(["1", "0", "0"]),
        ),
        (
            json!({"type": "NodePort", "ports": ports}),
            json!(["1", "0", "2"]),
        ),
        (
            json!({"type": "LoadBalancer", "ports": ports}),
            json!(["1", "1", "2"]),
        ),
        (
            json!({"type": "LoadBalancer", "ports": ports, "allocateLoadBalancerNodePorts": false}),
            json!(["1", "1", "0"]),
        ),
    ] {
        let used = charged("services", json!({"spec": spec}), &names);
        assert_eq!(
            names.map(|n| used[n].clone()).to_vec(),
            *expect.as_array().unwrap(),
            "{spec}"
        );
    }
}

#[test]
fn claim_counts_for_its_storage_class() {
    let names = [
        "persistentvolumeclaims",
        "requests.storage",
        "fast.storageclass.storage.k8s.io/requests.storage",
        "fast.storageclass.storage.k8s.io/persistentvolumeclaims",
        "slow.storageclass.storage.k8s.io/requests.storage",
    ];
    let object = json!({"spec": {"storageClassName": "fast", "resources": {"requests": {"storage": "3Gi"}}}});
    let used = charged("persistentvolumeclaims", object, &names);
    assert_eq!(
        names.map(|n| used[n].clone()),
        ["1", "3Gi", "3Gi", "1", "0"].map(Value::from)
    );
}

#[test]
fn object_of_any_group_counts_by_resource_and_group() {
    let used = charged("apps:deployments", json!({}), &["count/deployments.apps"]);
    assert_eq!(used, json!({"count/deployments.apps": "1"}));
}

#[test]
fn subresources_and_deletions_are_not_charged() {
    let (plugin, store) = plugin(&[quota("q", json!({"pods": "0"}), json!({"pods": "0"}))]);
    assert_eq!(validate(&plugin, &create("pods/binding", pod("1"))), Ok(()));
    assert_eq!(validate(&plugin, &delete("pods", pod("1"))), Ok(()));
    assert_eq!(used(&store, 0), json!({"pods": "0"}));
}
