#![allow(clippy::unwrap_used, clippy::expect_used)]
use super::*;
use crate::testing::{EmptyCluster, labelled_node};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::resource::v1::DeviceClass;
use scheduler_devices::{Allocated, DeviceView, Ledger, Pools};
use scheduler_framework::cycle::{Feasibility, NoNominatedPods};
use scheduler_framework::{ClaimView, Profile};
use serde_json::json;

/// A cluster with claims, classes and slices.
#[derive(Default)]
struct Devices {
    claims: Vec<Value>,
    slices: Vec<Value>,
    ledger: Ledger,
}

impl Devices {
    fn claims(&self) -> Vec<Arc<ResourceClaim>> {
        let claims = self.claims.iter();
        claims
            .map(|claim| Arc::new(serde_json::from_value(claim.clone()).unwrap()))
            .collect()
    }
}

impl DeviceView for Devices {
    fn has_synced(&self) -> bool {
        true
    }

    fn resource_claim(&self, _: &str, name: &str) -> Option<Arc<ResourceClaim>> {
        let mut claims = self.claims().into_iter();
        claims.find(|claim| claim.metadata.name.as_deref() == Some(name))
    }

    fn device_class(&self, name: &str) -> Option<Arc<DeviceClass>> {
        let class = json!({"metadata": {"name": "c"}, "spec": {}});
        (name == "c").then(|| Arc::new(serde_json::from_value(class).unwrap()))
    }

    fn pools(&self) -> Arc<Pools> {
        let slices = self.slices.iter();
        let slices = slices.map(|slice| Arc::new(serde_json::from_value(slice.clone()).unwrap()));
        Arc::new(Pools::new(slices.collect()))
    }

    fn allocated(&self) -> Arc<Allocated> {
        Arc::new(self.ledger.count_allocated(self.claims().iter()))
    }

    fn ledger(&self) -> &Ledger {
        &self.ledger
    }
}

impl Cluster for Devices {
    fn disruption_budgets(&self, _: &str) -> Vec<Arc<PodDisruptionBudget>> {
        Vec::new()
    }

    fn claim_view(&self) -> &dyn ClaimView {
        &EmptyCluster
    }

    fn service_selectors(
        &self,
        _: &str,
        _: &api_semantics::selectors::Labels,
    ) -> Vec<api_semantics::selectors::Labels> {
        Vec::new()
    }

    fn device_view(&self) -> &dyn DeviceView {
        self
    }
}

fn plugin_for(devices: Devices) -> DynamicResources {
    let cluster: Arc<dyn Cluster> = Arc::new(devices);
    DynamicResources::new(&Value::Null, &cluster).unwrap()
}

/// Returns a slice with devices of one node.
fn slice(node: &str, devices: &[&str]) -> Value {
    let devices: Vec<_> = devices.iter().map(|name| json!({"name": name})).collect();
    json!({"metadata": {"name": node}, "spec": {"driver": "d", "nodeName": node,
        "pool": {"name": node, "generation": 1, "resourceSliceCount": 1}, "devices": devices}})
}

/// Returns a claim for one device of the class `c`.
fn claim(name: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "ns", "uid": name},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c"}}]}}})
}

/// Returns a claim with a device of a node, reserved for these pods.
fn allocated_claim(name: &str, node: &str, reserved: &[&str]) -> Value {
    let reserved: Vec<_> = reserved
        .iter()
        .map(|uid| json!({"resource": "pods", "name": uid, "uid": uid}))
        .collect();
    let mut claim = claim(name);
    claim["status"] = json!({"reservedFor": reserved, "allocation": {
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields":
            [{"key": "metadata.name", "operator": "In", "values": [node]}]}]},
        "devices": {"results": [{"request": "r", "driver": "d", "pool": node, "device": "x"}]}}});
    claim
}

/// Returns the pod `name` that uses claims by name.
fn pod(name: &str, claims: &[&str]) -> PodInfo {
    let entry =
        |claim: &&str| json!({"name": format!("entry-{claim}"), "resourceClaimName": claim});
    let entries: Vec<_> = claims.iter().map(entry).collect();
    let pod = json!({"metadata": {"name": name, "namespace": "ns", "uid": name},
        "spec": {"containers": [], "resourceClaims": entries}});
    PodInfo::new(Arc::new(serde_json::from_value(pod).unwrap()))
}

fn node(name: &str) -> NodeInfo {
    labelled_node(name, json!({}))
}

/// Runs PreFilter; returns the state, or the reasons of the rejection.
fn prepare(plugin: &DynamicResources, pod: &PodInfo) -> Result<CycleState, String> {
    let mut state = CycleState::default();
    match plugin.pre_filter(&mut state, pod, &Snapshot::default()) {
        PreFilterResult::Reject(rejection) => Err(rejection.reasons.join("; ")),
        _ => Ok(state),
    }
}

/// Returns the reason for which a node is rejected; None if it fits.
fn reason(plugin: &DynamicResources, state: &CycleState, on: &str) -> Option<String> {
    let rejection = plugin.filter(state, &pod("p", &[]), &node(on)).err();
    rejection.map(|rejection| rejection.reasons.join("; "))
}

#[test]
fn pod_waits_until_its_claims_are_there_and_its_own() {
    let mut deleting = claim("deleting");
    deleting["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let full: Vec<String> = (0..256).map(|i| format!("other-{i}")).collect();
    let full: Vec<&str> = full.iter().map(String::as_str).collect();
    let mut unknown = claim("unknown");
    unknown["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] = json!("missing");
    let claims = vec![
        deleting,
        allocated_claim("full", "a", &full),
        unknown,
        claim("good"),
    ];
    let devices = Devices {
        claims,
        ..Devices::default()
    };
    let plugin = plugin_for(devices);
    for (name, want) in [
        ("absent", Some("resourceclaim \"absent\" not found")),
        (
            "deleting",
            Some("resourceclaim \"deleting\" is being deleted"),
        ),
        ("full", Some("resourceclaim in use")),
        (
            "unknown",
            Some("request r: device class missing does not exist"),
        ),
        ("good", None),
    ] {
        let got = prepare(&plugin, &pod("p", &[name])).err();
        assert_eq!(got.as_deref(), want, "{name}");
    }
}

#[test]
fn generated_claim_must_be_recorded_and_owned_by_the_pod() {
    let generated = |status: Value| {
        let object = json!({"metadata": {"name": "p", "namespace": "ns", "uid": "p"},
            "spec": {"containers": [], "resourceClaims": [
                {"name": "gpu", "resourceClaimTemplateName": "t"}]}, "status": status});
        PodInfo::new(Arc::new(serde_json::from_value(object).unwrap()))
    };
    let recorded = || {
        generated(json!({"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "p-gpu"}]}))
    };
    let plugin = plugin_for(Devices {
        claims: vec![claim("p-gpu")],
        ..Devices::default()
    });
    let want = "pod \"ns/p\": ResourceClaim not created yet";
    assert_eq!(
        prepare(&plugin, &generated(json!({}))).err().as_deref(),
        Some(want)
    );
    let want = "ResourceClaim ns/p-gpu was not created for pod ns/p (pod is not owner)";
    assert_eq!(prepare(&plugin, &recorded()).err().as_deref(), Some(want));
    let mut own = claim("p-gpu");
    own["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "p", "controller": true}]);
    let plugin = plugin_for(Devices {
        claims: vec![own],
        ..Devices::default()
    });
    assert!(prepare(&plugin, &recorded()).is_ok());
    let mut state = CycleState::default();
    let not_needed = generated(json!({"resourceClaimStatuses": [{"name": "gpu"}]}));
    let got = plugin.pre_filter(&mut state, &not_needed, &Snapshot::default());
    assert!(matches!(got, PreFilterResult::Skip));
}

#[test]
fn reserved_device_is_taken_for_other_pods_until_it_is_unreserved() {
    let devices = Devices {
        claims: vec![claim("one"), claim("two")],
        slices: vec![slice("a", &["x"]), slice("b", &[])],
        ..Devices::default()
    };
    let plugin = plugin_for(devices);
    let first = pod("p1", &["one"]);
    let mut state = prepare(&plugin, &first).unwrap();
    assert_eq!(reason(&plugin, &state, "a"), None);
    let none = Some("cannot allocate all claims".to_owned());
    assert_eq!(reason(&plugin, &state, "b"), none);
    plugin.reserve(&mut state, &first, "a").unwrap();

    let want = "resource claim ns/one is in the process of being allocated";
    assert_eq!(
        prepare(&plugin, &pod("p2", &["one"])).err().as_deref(),
        Some(want)
    );
    let other = prepare(&plugin, &pod("p2", &["two"])).unwrap();
    assert_eq!(reason(&plugin, &other, "a"), none);

    plugin.unreserve(&mut state, &first, "a");
    let other = prepare(&plugin, &pod("p2", &["two"])).unwrap();
    assert_eq!(reason(&plugin, &other, "a"), None);
    let mut late = prepare(&plugin, &first).unwrap();
    assert_eq!(reason(&plugin, &late, "a"), None);
    plugin.reserve(&mut state, &first, "a").unwrap();
    // The second attempt began before the reservation of the first.
    let rejection = plugin.reserve(&mut late, &first, "a").unwrap_err();
    assert!(
        rejection.reasons[0].contains("got allocated in the meantime"),
        "{rejection:?}"
    );
}

#[test]
fn node_whose_devices_lack_an_attribute_does_not_end_the_attempt() {
    let mut choosy = claim("one");
    choosy["spec"]["devices"]["requests"][0]["exactly"]["selectors"] =
        json!([{"cel": {"expression": "device.attributes['d'].kind == 'x'"}}]);
    let mut good = slice("a", &["x"]);
    good["spec"]["devices"][0]["attributes"] = json!({"kind": {"string": "x"}});
    let plugin = plugin_for(Devices {
        claims: vec![choosy],
        slices: vec![good, slice("b", &["x"])],
        ..Devices::default()
    });
    let state = prepare(&plugin, &pod("p", &["one"])).unwrap();
    let rejection = plugin.filter(&state, &pod("p", &["one"]), &node("b"));
    let rejection = rejection.unwrap_err();
    assert!(
        rejection.reasons[0].contains("no such key"),
        "{rejection:?}"
    );
    assert_eq!(
        rejection.code,
        scheduler_framework::Code::UnschedulableAndUnresolvable
    );
    assert_eq!(reason(&plugin, &state, "a"), None);
}

#[test]
fn claim_that_two_entries_name_is_allocated_once() {
    let devices = Devices {
        claims: vec![claim("one")],
        slices: vec![slice("a", &["x"])],
        ..Devices::default()
    };
    let plugin = plugin_for(devices);
    let state = prepare(&plugin, &pod("p", &["one", "one"])).unwrap();
    assert_eq!(reason(&plugin, &state, "a"), None);
}

/// Returns the names of the claims that PostFilter frees for the pod `p` of the claim `one`.
fn freed(reserved: &[&str]) -> Vec<String> {
    let claims = vec![allocated_claim("one", "a", reserved)];
    let plugin = plugin_for(Devices {
        claims,
        ..Devices::default()
    });
    let pod = pod("p", &["one"]);
    let state = prepare(&plugin, &pod).unwrap();
    assert_eq!(reason(&plugin, &state, "a"), None);
    assert_eq!(reason(&plugin, &state, "b").as_deref(), Some(NOT_HERE));
    let profile = Profile {
        name: String::new(),
        points: ExtensionPoints::default(),
        percentage_of_nodes_to_score: 0,
    };
    let snapshot = Snapshot::default();
    let runner = Feasibility::new(&profile, &snapshot, &NoNominatedPods);
    let got = plugin.post_filter(&state, &pod, &Diagnosis::default(), &runner);
    let names = got
        .deallocate
        .iter()
        .map(|claim| claim.metadata.name.clone().unwrap());
    names.collect()
}

#[test]
fn allocated_claim_limits_the_nodes_and_is_freed_only_if_no_other_pod_uses_it() {
    assert_eq!(freed(&[]), ["one"]);
    assert_eq!(freed(&["p"]), ["one"]);
    assert!(freed(&["other"]).is_empty());
    assert!(freed(&["other", "p"]).is_empty());
}

#[test]
fn node_with_the_preferred_alternative_scores_higher() {
    let mut choosy = claim("one");
    let sub = |name: &str, device: &str| {
        let expression = format!("device.attributes['d'].?kind.orValue('') == '{device}'");
        json!({"name": name, "deviceClassName": "c", "selectors": [{"cel": {"expression": expression}}]})
    };
    choosy["spec"]["devices"]["requests"][0] =
        json!({"name": "r", "firstAvailable": [sub("best", "large"), sub("next", "small")]});
    let with_kind = |node: &str, kind: &str| {
        let mut slice = slice(node, &["x"]);
        slice["spec"]["devices"][0]["attributes"] = json!({"kind": {"string": kind}});
        slice
    };
    let devices = Devices {
        claims: vec![choosy],
        slices: vec![with_kind("a", "small"), with_kind("b", "large")],
        ..Devices::default()
    };
    let plugin = plugin_for(devices);
    let pod = pod("p", &["one"]);
    let mut state = prepare(&plugin, &pod).unwrap();
    let snapshot = Snapshot::default();
    assert!(plugin.pre_score(&mut state, &pod, &[], &snapshot));
    let mut scores = ["a", "b"].map(|name| plugin.score(&state, &pod, &node(name), &snapshot));
    assert_eq!(scores, [7, 8]);
    plugin.normalize_scores(&state, &pod, &[], &mut scores);
    assert_eq!(scores, [87, 100]);
}

#[test]
fn pod_is_woken_by_its_own_claims_and_by_freed_devices() {
    let plugin = plugin_for(Devices::default());
    let waiting = pod("p", &["one"]);
    for (namespace, name, freed, expect) in [
        ("ns", "one", false, true),
        ("ns", "two", false, false),
        ("other", "one", false, false),
        ("other", "two", true, true),
    ] {
        let event = ClusterEvent::ResourceClaimChanged {
            namespace: namespace.into(),
            name: name.into(),
            freed,
        };
        assert_eq!(plugin.queueing_hint(&waiting, &event), expect, "{event:?}");
    }
    for (gone, expect) in [(pod("gone", &["two"]), true), (pod("gone", &[]), false)] {
        let event = ClusterEvent::AssignedPodDeleted(Arc::new(gone));
        assert_eq!(plugin.queueing_hint(&waiting, &event), expect, "{event:?}");
    }
    assert!(
        plugin
            .events_to_register()
            .contains(&EventKind::AssignedPodDeleted)
    );
}

#[test]
fn arguments_are_durations() {
    for (args, expect) in [
        (json!({"filterTimeout": "5s", "bindingTimeout": "1m"}), true),
        (json!({"filterTimeout": "0s"}), true),
        (json!({"filterTimeout": "soon"}), false),
        (json!({"bindingTimeout": "0s"}), false),
        (json!({"bindingTimeout": 5}), false),
    ] {
        assert_eq!(Settings::from_args(&args).is_ok(), expect, "{args}");
    }
}

#[test]
fn share_has_an_identifier_in_the_form_of_a_uuid() {
    let id = random_id();
    let lengths: Vec<usize> = id.split('-').map(str::len).collect();
    assert_eq!(lengths, [8, 4, 4, 4, 12], "{id}");
    assert!(id[14..].starts_with('4'), "{id}");
    assert_ne!(id, random_id());
}

#[test]
fn binding_conditions_hold_the_pod_and_failures_free_the_claim() {
    let settings = Settings::from_args(&json!({"bindingTimeout": "60s"})).unwrap();
    let now: jiff::Timestamp = "2026-01-01T00:02:00Z".parse().unwrap();
    let condition = |kind: &str| {
        json!({"type": kind, "status": "True", "reason": "R", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"})
    };
    for (conditions, since, ready, failed) in [
        (json!([condition("Attached")]), "00:00:00", true, false),
        (json!([]), "00:01:30", false, false),
        (json!([]), "00:00:30", false, true),
        (json!([]), "01:00:00", false, false),
        (json!([condition("Broken")]), "00:01:30", false, true),
    ] {
        let mut claim = allocated_claim("one", "a", &[]);
        let status = &mut claim["status"];
        status["allocation"]["allocationTimestamp"] = json!(format!("2026-01-01T{since}Z"));
        let result = &mut status["allocation"]["devices"]["results"][0];
        result["bindingConditions"] = json!(["Attached"]);
        result["bindingFailureConditions"] = json!(["Broken"]);
        status["devices"] =
            json!([{"driver": "d", "pool": "a", "device": "x", "conditions": conditions}]);
        let claim: ResourceClaim = serde_json::from_value(claim).unwrap();
        let is_ready = conditions::read_conditions(&claim) == conditions::Readiness::Ready;
        assert_eq!(
            (is_ready, has_failed(&claim, &settings, now)),
            (ready, failed),
            "{since}"
        );
    }
}

#[test]
fn claim_that_changed_since_the_decision_is_not_bound() {
    let decode =
        |value: &Value| -> ResourceClaim { serde_json::from_value(value.clone()).unwrap() };
    let free = claim("one");
    let mut deleting = claim("one");
    deleting["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let mine = allocated_claim("one", "a", &["p"]);
    let shared = allocated_claim("one", "a", &["other"]);
    let mut stamped = mine.clone();
    stamped["status"]["allocation"]["allocationTimestamp"] = json!("2026-01-01T00:00:00Z");
    let mut other_device = mine.clone();
    other_device["status"]["allocation"]["devices"]["results"][0]["device"] = json!("y");
    let mut other_share = mine.clone();
    other_share["status"]["allocation"]["devices"]["results"][0]["shareID"] = json!("s");
    let other_node = allocated_claim("one", "b", &["p"]);
    let full: Vec<String> = (0..256).map(|i| format!("other-{i}")).collect();
    let full: Vec<&str> = full.iter().map(String::as_str).collect();
    let full = allocated_claim("one", "a", &full);
    let elsewhere = Err("got allocated elsewhere in the meantime");
    let deallocated = Err("got deallocated elsewhere in the meantime");
    let allocation = decode(&mine).status.unwrap().allocation.unwrap();
    for (current, fresh, known) in [
        (&free, Ok(false), deallocated),
        (
            &deleting,
            Err("got deleted in the meantime"),
            Err("got deleted in the meantime"),
        ),
        (&mine, Ok(true), Ok(true)),
        (&stamped, Ok(true), Ok(true)),
        (&shared, elsewhere, Ok(false)),
        (&full, elsewhere, Err("is in use")),
        (&other_device, elsewhere, elsewhere),
        (&other_share, elsewhere, elsewhere),
        (&other_node, elsewhere, elsewhere),
    ] {
        let current = decode(current);
        let before = decode(&free);
        let decision = claims::Decision::new(&before, Some(&allocation), "p");
        assert_eq!(decision.is_carried_out(&current), fresh, "new: {current:?}");
        let before = decode(&shared);
        let decision = claims::Decision::new(&before, None, "p");
        assert_eq!(
            decision.is_carried_out(&current),
            known,
            "known: {current:?}"
        );
    }
}

#[test]
fn claim_whose_search_came_to_no_end_gets_less_time_until_it_changes() {
    let names: Vec<String> = (0..60).map(|i| format!("x{i}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut slice = slice("a", &names);
    for (i, device) in slice["spec"]["devices"]
        .as_array_mut()
        .unwrap()
        .iter_mut()
        .enumerate()
    {
        device["attributes"] = json!({"id": {"int": i}});
    }
    let counted = |name: &str, count: usize| {
        json!({"name": name, "exactly":
            {"deviceClassName": "c", "allocationMode": "ExactCount", "count": count}})
    };
    let mut hard = claim("hard");
    hard["spec"]["devices"] = json!({"requests": [counted("many", 30), counted("pair", 2)],
        "constraints": [{"matchAttribute": "d/id", "requests": ["pair"]}]});
    let mut changed = hard.clone();
    changed["metadata"]["resourceVersion"] = json!("2");
    changed["metadata"]["name"] = json!("changed");
    let plugin = plugin_for(Devices {
        claims: vec![hard, changed, claim("easy")],
        slices: vec![slice],
        ..Devices::default()
    });
    let time_of = |pod_name: &str, claims: &[&str]| {
        let state = prepare(&plugin, &pod(pod_name, claims)).unwrap();
        let PodDevices(attempt) = state.get::<PodDevices>().unwrap();
        attempt.time
    };
    assert_eq!(time_of("p", &["hard"]), ATTEMPT_TIME);
    let state = prepare(&plugin, &pod("p", &["hard"])).unwrap();
    let text = reason(&plugin, &state, "a").unwrap();
    assert!(text.contains("timed out"), "{text}");
    assert_eq!(time_of("p", &["hard"]), HARD_ATTEMPT_TIME);
    assert_eq!(time_of("other", &["easy", "hard"]), HARD_ATTEMPT_TIME);
    assert_eq!(time_of("p", &["easy"]), ATTEMPT_TIME);
    assert_eq!(time_of("p", &["changed"]), ATTEMPT_TIME);
}
