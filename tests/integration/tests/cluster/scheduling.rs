//! Placement of pods by the scheduler.
//!
//! The nodes are Node objects without a kubelet. A taint and a label with the test's namespace keep
//! the pods of other tests away from them.

use integration_tests::{Components, Test, find_condition, node, pod_with};
use serde_json::{Value, json};

pub(crate) async fn start() -> Test {
    Test::start(Components::All).await
}

/// Creates a ready node with one CPU, 1 GiB and these labels; returns its name.
pub(crate) async fn create_node(test: &Test, stem: &str, labels: Value) -> String {
    let name = test.name(stem);
    let mut all = json!({"kubernetes.io/hostname": name, "test": test.namespace});
    all.as_object_mut()
        .unwrap()
        .extend(labels.as_object().unwrap().clone());
    // From the start: without the taint, pods of other tests would be bound to the node, where no
    // kubelet starts them.
    let taint = json!({"key": "test", "value": test.namespace, "effect": "NoSchedule"});
    let spec = json!({"spec": {"taints": [taint]}});
    let mut object = node(&name, &all);
    object["spec"] = spec["spec"].clone();
    test.create("/api/v1/nodes", &object).await;
    let path = format!("/api/v1/nodes/{name}");
    let resources = json!({"cpu": "1", "memory": "1Gi", "pods": "10"});
    let status = json!({"status": {"capacity": resources, "allocatable": resources,
        "conditions": [{"type": "Ready", "status": "True", "reason": "Test"}]}});
    let reply = test
        .admin
        .merge_patch(&format!("{path}/status"), &status)
        .await;
    reply.expect_status(200);
    // Without the taint of a node that is not ready.
    test.admin
        .merge_patch(&path, &spec)
        .await
        .expect_status(200);
    name
}

/// Returns a pod for the nodes of the test, with these fields of its spec.
pub(crate) fn pod_for(test: &Test, name: &str, fields: Value) -> Value {
    let toleration = json!({"key": "test", "operator": "Equal", "value": test.namespace});
    let mut spec = json!({"nodeSelector": {"test": test.namespace}, "tolerations": [toleration]});
    spec.as_object_mut()
        .unwrap()
        .extend(fields.as_object().unwrap().clone());
    pod_with(name, &spec)
}

fn with_cpu(cpu: &str) -> Value {
    json!({"containers": [{"name": "c", "image": "example.com/c:1", "resources": {"requests": {"cpu": cpu}}}]})
}

pub(crate) async fn create(test: &Test, pod: &Value) {
    test.create(&test.core("pods"), pod).await;
}

/// Waits until a pod has a node; returns the node's name.
pub(crate) async fn wait_until_scheduled(test: &Test, name: &str) -> String {
    let path = test.core(&format!("pods/{name}"));
    let pod = test
        .wait_until(&path, "scheduled", |pod| {
            pod["spec"]["nodeName"].is_string()
        })
        .await;
    pod["spec"]["nodeName"].as_str().unwrap().to_owned()
}

/// Waits until the scheduler has found no node for a pod, with this part of the message.
pub(crate) async fn wait_until_unschedulable(test: &Test, name: &str, part: &str) {
    let path = test.core(&format!("pods/{name}"));
    let what = format!("unschedulable because {part}");
    let pod = test
        .wait_until(&path, &what, |pod| {
            let condition = find_condition(pod, "PodScheduled");
            condition["message"]
                .as_str()
                .is_some_and(|message| message.contains(part))
        })
        .await;
    let condition = find_condition(&pod, "PodScheduled");
    assert_eq!(
        (&condition["status"], &condition["reason"]),
        (&json!("False"), &json!("Unschedulable"))
    );
    assert_eq!(pod["spec"].get("nodeName"), None);
}

fn required_near(labels: Value) -> Value {
    json!({"requiredDuringSchedulingIgnoredDuringExecution": [
        {"labelSelector": {"matchLabels": labels}, "topologyKey": "kubernetes.io/hostname"}]})
}

fn labelled(mut pod: Value, labels: Value) -> Value {
    pod["metadata"]["labels"] = labels;
    pod
}

#[tokio::test]
async fn pod_is_bound_to_a_node_that_its_selector_matches() {
    let test = start().await;
    create_node(&test, "a", json!({"disk": "hdd"})).await;
    let fast = create_node(&test, "b", json!({"disk": "ssd"})).await;
    let selector = json!({"nodeSelector": {"test": test.namespace, "disk": "ssd"}});
    create(&test, &pod_for(&test, "p", selector)).await;
    assert_eq!(wait_until_scheduled(&test, "p").await, fast);
    let pod = test.read(&test.core("pods/p")).await;
    assert_eq!(find_condition(&pod, "PodScheduled")["status"], "True");
    let message = format!("Successfully assigned {}/p to {fast}", test.namespace);
    let events = test.core("events?fieldSelector=reason=Scheduled");
    test.wait_until_items(&events, "the event of the binding", |events| {
        events
            .iter()
            .any(|event| event["message"] == message.as_str())
    })
    .await;
}

#[tokio::test]
async fn pod_waits_until_a_node_gets_the_label() {
    let test = start().await;
    let name = create_node(&test, "a", json!({})).await;
    let selector = json!({"nodeSelector": {"test": test.namespace, "disk": "ssd"}});
    create(&test, &pod_for(&test, "p", selector)).await;
    wait_until_unschedulable(
        &test,
        "p",
        "node(s) didn't match Pod's node affinity/selector",
    )
    .await;
    let label = json!({"metadata": {"labels": {"disk": "ssd"}}});
    let path = format!("/api/v1/nodes/{name}");
    test.admin
        .merge_patch(&path, &label)
        .await
        .expect_status(200);
    assert_eq!(wait_until_scheduled(&test, "p").await, name);
}

#[tokio::test]
async fn unschedulable_pod_has_an_event() {
    let test = start().await;
    create(&test, &pod_for(&test, "p", json!({}))).await;
    wait_until_unschedulable(&test, "p", " nodes are available: ").await;
    let events = test.core("events?fieldSelector=reason=FailedScheduling");
    let events = test
        .wait_until_items(&events, "the event of the failure", |events| {
            !events.is_empty()
        })
        .await;
    assert_eq!(events[0]["type"], "Warning");
    assert_eq!(events[0]["involvedObject"]["name"], "p");
    let message = events[0]["message"].as_str().unwrap();
    assert!(
        message.starts_with("0/") && message.contains("preemption: "),
        "{message}"
    );
}

#[tokio::test]
async fn requests_of_pods_do_not_exceed_a_node() {
    let test = start().await;
    for stem in ["a", "b"] {
        create_node(&test, stem, json!({})).await;
    }
    for name in ["p1", "p2"] {
        create(&test, &pod_for(&test, name, with_cpu("600m"))).await;
    }
    let first = wait_until_scheduled(&test, "p1").await;
    assert_ne!(wait_until_scheduled(&test, "p2").await, first);
    create(&test, &pod_for(&test, "p3", with_cpu("600m"))).await;
    wait_until_unschedulable(&test, "p3", "Insufficient cpu").await;
    let path = test.core("pods/p1?gracePeriodSeconds=0");
    test.admin.delete(&path).await.expect_status(200);
    assert_eq!(wait_until_scheduled(&test, "p3").await, first);
}

#[tokio::test]
async fn taint_repels_pods_without_a_toleration() {
    let test = start().await;
    let name = create_node(&test, "a", json!({})).await;
    create(&test, &pod_for(&test, "p", json!({"tolerations": []}))).await;
    wait_until_unschedulable(&test, "p", "node(s) had untolerated taint(s)").await;
    create(&test, &pod_for(&test, "tolerant", json!({}))).await;
    assert_eq!(wait_until_scheduled(&test, "tolerant").await, name);
}

#[tokio::test]
async fn cordoned_node_takes_no_pods() {
    let test = start().await;
    let name = create_node(&test, "a", json!({})).await;
    let path = format!("/api/v1/nodes/{name}");
    let cordon = json!({"spec": {"unschedulable": true}});
    test.admin
        .merge_patch(&path, &cordon)
        .await
        .expect_status(200);
    create(&test, &pod_for(&test, "p", json!({}))).await;
    wait_until_unschedulable(&test, "p", "node(s) were unschedulable").await;
    let uncordon = json!({"spec": {"unschedulable": false}});
    test.admin
        .merge_patch(&path, &uncordon)
        .await
        .expect_status(200);
    assert_eq!(wait_until_scheduled(&test, "p").await, name);
}

#[tokio::test]
async fn node_affinity_compares_labels() {
    let test = start().await;
    let five = create_node(&test, "a", json!({"size": "5"})).await;
    let none = create_node(&test, "b", json!({})).await;
    for (name, expression, expected) in [
        (
            "in",
            json!({"key": "size", "operator": "In", "values": ["5", "9"]}),
            &five,
        ),
        (
            "exists",
            json!({"key": "size", "operator": "Exists"}),
            &five,
        ),
        (
            "gt",
            json!({"key": "size", "operator": "Gt", "values": ["4"]}),
            &five,
        ),
        (
            "lt",
            json!({"key": "size", "operator": "Lt", "values": ["6"]}),
            &five,
        ),
        (
            "notin",
            json!({"key": "size", "operator": "NotIn", "values": ["5"]}),
            &none,
        ),
        (
            "absent",
            json!({"key": "size", "operator": "DoesNotExist"}),
            &none,
        ),
    ] {
        let affinity = json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
            {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}}});
        create(&test, &pod_for(&test, name, affinity)).await;
        assert_eq!(&wait_until_scheduled(&test, name).await, expected, "{name}");
    }
}

#[tokio::test]
async fn preferred_node_affinity_decides_between_free_nodes() {
    let test = start().await;
    let mut nodes = Vec::new();
    for stem in ["a", "b", "c"] {
        nodes.push(create_node(&test, stem, json!({})).await);
    }
    for (number, expected) in nodes.iter().enumerate() {
        let term = json!({"weight": 100, "preference": {"matchFields":
            [{"key": "metadata.name", "operator": "In", "values": [expected]}]}});
        let affinity = json!({"affinity": {"nodeAffinity":
            {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}});
        let name = format!("p{number}");
        create(&test, &pod_for(&test, &name, affinity)).await;
        assert_eq!(&wait_until_scheduled(&test, &name).await, expected);
    }
}

#[tokio::test]
async fn pod_affinity_follows_another_pod() {
    let test = start().await;
    create_node(&test, "a", json!({})).await;
    let there = create_node(&test, "b", json!({})).await;
    let near = json!({"affinity": {"podAffinity": required_near(json!({"app": "base"}))}});
    create(&test, &pod_for(&test, "follower", near)).await;
    wait_until_unschedulable(&test, "follower", "node(s) didn't match pod affinity rules").await;
    let selector = json!({"nodeSelector": {"kubernetes.io/hostname": there}});
    let base = labelled(pod_for(&test, "base", selector), json!({"app": "base"}));
    create(&test, &base).await;
    assert_eq!(wait_until_scheduled(&test, "base").await, there);
    assert_eq!(wait_until_scheduled(&test, "follower").await, there);
}

#[tokio::test]
async fn pod_anti_affinity_spreads_pods_over_nodes() {
    let test = start().await;
    for stem in ["a", "b"] {
        create_node(&test, stem, json!({})).await;
    }
    let labels = json!({"group": "g"});
    let apart = json!({"affinity": {"podAntiAffinity": required_near(labels.clone())}});
    for name in ["p1", "p2", "p3"] {
        let pod = pod_for(&test, name, apart.clone());
        create(&test, &labelled(pod, labels.clone())).await;
        if name != "p3" {
            wait_until_scheduled(&test, name).await;
        }
    }
    let first = wait_until_scheduled(&test, "p1").await;
    assert_ne!(wait_until_scheduled(&test, "p2").await, first);
    wait_until_unschedulable(&test, "p3", "node(s) didn't match pod anti-affinity rules").await;
}

#[tokio::test]
async fn anti_affinity_of_a_running_pod_repels_others() {
    let test = start().await;
    create_node(&test, "a", json!({})).await;
    let apart = json!({"affinity": {"podAntiAffinity": required_near(json!({"group": "g"}))}});
    create(&test, &pod_for(&test, "guard", apart)).await;
    wait_until_scheduled(&test, "guard").await;
    let pod = labelled(pod_for(&test, "p", json!({})), json!({"group": "g"}));
    create(&test, &pod).await;
    let part = "node(s) didn't satisfy existing pods anti-affinity rules";
    wait_until_unschedulable(&test, "p", part).await;
}

#[tokio::test]
async fn topology_spread_bounds_the_skew() {
    let test = start().await;
    let zones = [
        create_node(&test, "a", json!({"zone": "1"})).await,
        create_node(&test, "b", json!({"zone": "2"})).await,
    ];
    let labels = json!({"group": "g"});
    let constraint = json!({"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": labels}});
    let mut counts = [0, 0];
    for number in 0..4 {
        let name = format!("p{number}");
        let pod = pod_for(
            &test,
            &name,
            json!({"topologySpreadConstraints": [constraint]}),
        );
        create(&test, &labelled(pod, labels.clone())).await;
        let node = wait_until_scheduled(&test, &name).await;
        counts[zones.iter().position(|zone| *zone == node).unwrap()] += 1;
    }
    assert_eq!(counts, [2, 2]);
    let key = json!({"maxSkew": 1, "topologyKey": "absent", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": labels}});
    let pod = pod_for(&test, "q", json!({"topologySpreadConstraints": [key]}));
    create(&test, &labelled(pod, labels)).await;
    let part = "node(s) didn't match pod topology spread constraints (missing required label)";
    wait_until_unschedulable(&test, "q", part).await;
}

#[tokio::test]
async fn gated_pod_waits_for_the_removal_of_its_gates() {
    let test = start().await;
    let name = create_node(&test, "a", json!({})).await;
    let gates = json!({"schedulingGates": [{"name": "example.com/a"}]});
    create(&test, &pod_for(&test, "p", gates)).await;
    let path = test.core("pods/p");
    let pod = test
        .wait_until(&path, "gated", |pod| {
            find_condition(pod, "PodScheduled").is_object()
        })
        .await;
    assert_eq!(
        find_condition(&pod, "PodScheduled")["reason"],
        "SchedulingGated"
    );
    // A pod that was created later is scheduled before.
    create(&test, &pod_for(&test, "q", json!({}))).await;
    wait_until_scheduled(&test, "q").await;
    assert_eq!(test.read(&path).await["spec"].get("nodeName"), None);
    let none = json!({"spec": {"schedulingGates": null}});
    test.admin
        .merge_patch(&path, &none)
        .await
        .expect_status(200);
    assert_eq!(wait_until_scheduled(&test, "p").await, name);
}

#[tokio::test]
async fn pod_of_another_scheduler_is_left_alone() {
    let test = start().await;
    create_node(&test, "a", json!({})).await;
    let other = json!({"schedulerName": "other"});
    create(&test, &pod_for(&test, "p", other)).await;
    create(&test, &pod_for(&test, "q", json!({}))).await;
    wait_until_scheduled(&test, "q").await;
    let pod = test.read(&test.core("pods/p")).await;
    assert_eq!(pod["spec"].get("nodeName"), None);
    assert!(find_condition(&pod, "PodScheduled").is_null(), "{pod}");
}

#[tokio::test]
async fn host_port_is_used_once_on_a_node() {
    let test = start().await;
    create_node(&test, "a", json!({})).await;
    let port = json!({"containers": [{"name": "c", "image": "example.com/c:1",
        "ports": [{"containerPort": 80, "hostPort": 8080}]}]});
    create(&test, &pod_for(&test, "p", port.clone())).await;
    wait_until_scheduled(&test, "p").await;
    create(&test, &pod_for(&test, "q", port)).await;
    let part = "node(s) didn't have free ports for the requested pod ports";
    wait_until_unschedulable(&test, "q", part).await;
}

#[tokio::test]
async fn pod_of_higher_priority_preempts_another() {
    let test = start().await;
    let node = create_node(&test, "a", json!({})).await;
    let class = test.name("high");
    let object = json!({"metadata": {"name": class}, "value": 1000});
    test.create("/apis/scheduling.k8s.io/v1/priorityclasses", &object)
        .await;
    create(&test, &pod_for(&test, "low", with_cpu("800m"))).await;
    wait_until_scheduled(&test, "low").await;
    let mut fields = with_cpu("800m");
    fields["priorityClassName"] = json!(class);
    let high = pod_for(&test, "high", fields);
    integration_tests::wait_for("the class is known", async || {
        test.admin.post(&test.core("pods"), &high).await.status == 201
    })
    .await;
    // No kubelet ends the victim, so it stays and the preemptor waits for it.
    let victim = test
        .wait_until(&test.core("pods/low"), "preempted", |pod| {
            pod["metadata"]["deletionTimestamp"].is_string()
        })
        .await;
    let condition = find_condition(&victim, "DisruptionTarget");
    assert_eq!(
        (&condition["status"], &condition["reason"]),
        (&json!("True"), &json!("PreemptionByScheduler"))
    );
    test.wait_until(&test.core("pods/high"), "nominated", |pod| {
        pod["status"]["nominatedNodeName"] == node.as_str()
    })
    .await;
    let path = test.core("pods/low?gracePeriodSeconds=0");
    test.admin.delete(&path).await.expect_status(200);
    assert_eq!(wait_until_scheduled(&test, "high").await, node);
}

#[tokio::test]
async fn pod_with_preemption_policy_never_preempts_nothing() {
    let test = start().await;
    create_node(&test, "a", json!({})).await;
    let class = test.name("polite");
    let object = json!({"metadata": {"name": class}, "value": 1000, "preemptionPolicy": "Never"});
    test.create("/apis/scheduling.k8s.io/v1/priorityclasses", &object)
        .await;
    create(&test, &pod_for(&test, "low", with_cpu("800m"))).await;
    wait_until_scheduled(&test, "low").await;
    let mut fields = with_cpu("800m");
    fields["priorityClassName"] = json!(class);
    let high = pod_for(&test, "high", fields);
    integration_tests::wait_for("the class is known", async || {
        test.admin.post(&test.core("pods"), &high).await.status == 201
    })
    .await;
    wait_until_unschedulable(&test, "high", "Insufficient cpu").await;
    let low = test.read(&test.core("pods/low")).await;
    assert_eq!(low["metadata"].get("deletionTimestamp"), None);
}
