//! The agent of NetworkPolicies, as kube-proxy runs it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use base_task::{CancellationToken, Tasks};
use base_telemetry::Metrics;
use clap::Parser;
use client::{Client, Config};
use integration_tests::{ControlPlane, DEADLINE, grant_rule, wait_for};
use net_policy::{AgentSettings, GuardedNetwork};
use serde_json::{Value, json};
use testkit_network::Transport::Tcp;
use testkit_network::{NodeNetwork, OUTSIDE, run_script};
use tokio::runtime::{Builder, Runtime};

const PODS: &str = "/api/v1/namespaces/default/pods";
const POLICIES: &str = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies";
const SERVER: &str = "10.244.0.3:8080";
const SERVER6: &str = "[fd00::3]:8080";
const HOST: &str = "192.0.2.2:8080";
/// Interval of checks for removed rules; kube-proxy's is 30 s.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);

/// A control plane and a node with pods; the test's thread is in the node's network.
pub(crate) struct Setting {
    pub(crate) network: NodeNetwork,
    pub(crate) runtime: Runtime,
    pub(crate) plane: ControlPlane,
}

impl Setting {
    /// Returns None, with the reason printed, if the caller is not root.
    pub(crate) fn start() -> Option<Self> {
        let network = NodeNetwork::create_as_root()?;
        for place in ["a", "b", OUTSIDE] {
            network.serve(place);
        }
        // The threads of the runtime, and the programs that they start, are there as well.
        network.enter("node");
        let runtime = Builder::new_multi_thread().enable_all().build().unwrap();
        let plane = runtime.block_on(start_plane());
        Some(Self {
            network,
            runtime,
            plane,
        })
    }

    fn start_agent(&self) -> Tasks {
        let config = Config::from_kubeconfig(self.plane.kubeconfig("proxy")).unwrap();
        let settings = AgentSettings {
            node_name: "n1".to_owned(),
            network: GuardedNetwork {
                ranges: vec![
                    "10.244.0.0/24".parse().unwrap(),
                    "fd00::/64".parse().unwrap(),
                ],
                bridge: Some("br0".to_owned()),
            },
            check_interval: CHECK_INTERVAL,
        };
        let closing = net_policy::close_new_tables(&settings.network);
        self.runtime.block_on(closing).unwrap();
        let _inside = self.runtime.enter();
        let tasks = Tasks::new(CancellationToken::new());
        let metrics = Arc::new(Metrics::new());
        let agent = net_policy::run_agent(Client::new(config), settings, metrics, tasks.clone());
        tasks.spawn_critical("network policies", agent);
        tasks
    }

    /// Starts kube-proxy without the enforcement of policies, with more flags.
    pub(crate) fn start_proxy(&self, more: &[&str]) -> Tasks {
        let words = [
            "kube-proxy",
            "--hostname-override=n1",
            "--conntrack-max-per-core=0",
            "--conntrack-tcp-timeout-established=0s",
            "--conntrack-tcp-timeout-close-wait=0s",
            "--healthz-bind-address=127.0.0.1:0",
            "--metrics-bind-address=127.0.0.1:0",
        ];
        let words = words.iter().chain(more);
        let args = net_proxy::Args::try_parse_from(words).unwrap();
        let (_, settings) = args.settings().unwrap();
        let config = Config::from_kubeconfig(self.plane.kubeconfig("proxy")).unwrap();
        let _inside = self.runtime.enter();
        let tasks = Tasks::new(CancellationToken::new());
        let proxy = net_proxy::run(Client::new(config), settings, tasks.clone());
        tasks.spawn("kube-proxy", async move {
            proxy.await.unwrap();
        });
        tasks
    }

    pub(crate) fn stop(&self, tasks: Tasks) {
        tasks.shutdown().cancel();
        let ended = tasks.finish(Duration::from_secs(30));
        self.runtime.block_on(ended).unwrap();
    }

    /// Creates a pod of the node, with its address if it has one yet.
    fn create_pod(&self, name: &str, app: &str, address: Option<&str>) {
        self.runtime.block_on(async {
            let admin = self.plane.admin();
            let pod = json!({ "metadata": { "name": name, "labels": { "app": app } }, "spec": {
                "nodeName": "n1", "containers": [{ "name": "c", "image": "c", "ports": [
                    { "name": "web", "containerPort": 8080 }] }] } });
            admin.post(PODS, &pod).await.expect_success();
        });
        if let Some(address) = address {
            self.set_address(name, address);
        }
    }

    fn set_address(&self, name: &str, host: &str) {
        let status = json!({ "status": { "phase": "Running", "podIP": format!("10.244.0.{host}"),
            "podIPs": [{ "ip": format!("10.244.0.{host}") }, { "ip": format!("fd00::{host}") }] } });
        let path = format!("{PODS}/{name}/status");
        let admin = self.plane.admin();
        let patched = admin.merge_patch(&path, &status);
        self.runtime.block_on(patched).expect_success();
    }

    fn create_policy(&self, name: &str, app: &str, rest: Value) {
        let mut spec = json!({ "podSelector": { "matchLabels": { "app": app } } });
        spec.as_object_mut()
            .unwrap()
            .extend(rest.as_object().unwrap().clone());
        let policy = json!({ "metadata": { "name": name }, "spec": spec });
        let admin = self.plane.admin();
        let created = admin.post(POLICIES, &policy);
        self.runtime.block_on(created).expect_success();
    }

    fn delete_policy(&self, name: &str) {
        let path = format!("{POLICIES}/{name}");
        let admin = self.plane.admin();
        self.runtime.block_on(admin.delete(&path)).expect_success();
    }

    /// Waits until connections pass, or until they do not.
    #[track_caller]
    pub(crate) fn wait_for(&self, from: &str, to: &str, expect: bool) {
        let passes = || self.network.reaches(from, to, Tcp, false);
        wait_until(&format!("{from} to {to}: {expect}"), || passes() == expect);
    }
}

#[track_caller]
pub(crate) fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let began = Instant::now();
    while !condition() {
        if began.elapsed() > DEADLINE {
            let rules = run_script("nft list ruleset").unwrap_or_default();
            panic!("{what}\n{rules}");
        }
    }
}

async fn start_plane() -> ControlPlane {
    let plane = ControlPlane::start().await;
    let rules = json!([
        grant_rule("", &["pods", "namespaces"], &["list", "watch"]),
        grant_rule(
            "networking.k8s.io",
            &["networkpolicies"],
            &["list", "watch"]
        ),
    ]);
    plane.grant("system:kube-proxy", "", rules).await;
    let account =
        json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "default" } });
    let path = "/api/v1/namespaces/default/serviceaccounts";
    plane.admin().post(path, &account).await.expect_success();
    plane
}

#[test]
fn agent_enforces_policies_of_the_api_across_restarts_and_removed_rules() {
    let Some(setting) = Setting::start() else {
        return;
    };
    setting.create_pod("a", "client", Some("2"));
    setting.create_pod("b", "server", Some("3"));
    assert!(setting.network.answers_tagged_frame("a", "b"));
    let agent = setting.start_agent();
    setting.wait_for("a", SERVER, true);

    setting.create_policy("deny", "server", json!({}));
    setting.wait_for("a", SERVER, false);
    assert!(!setting.network.answers_tagged_frame("c", "b"));
    setting.wait_for("a", SERVER6, false);
    setting.wait_for("node", SERVER, true);
    let client = json!({ "podSelector": { "matchLabels": { "app": "client" } } });
    let ingress = json!([{ "from": [client], "ports": [{ "port": "web" }] }]);
    setting.create_policy("allow", "server", json!({ "ingress": ingress }));
    setting.wait_for("a", SERVER, true);
    setting.wait_for("a", SERVER6, true);
    setting.wait_for(OUTSIDE, SERVER, false);

    // A pod that the API has no address of.
    setting.create_policy("lock", "locked", json!({ "policyTypes": ["Egress"] }));
    setting.create_pod("c", "locked", None);
    setting.wait_for("c", HOST, false);
    setting.wait_for("a", HOST, true);
    setting.set_address("c", "4");
    setting.wait_for("c", HOST, false);

    // The rules stay without the agent, and a new one takes over.
    setting.stop(agent);
    setting.delete_policy("allow");
    setting.delete_policy("lock");
    setting.wait_for("a", SERVER, true);
    setting.wait_for("c", HOST, false);
    let agent = setting.start_agent();
    setting.wait_for("a", SERVER, false);
    setting.wait_for("c", HOST, true);

    // Other programs on the node.
    for command in ["flush ruleset", "flush chain ip kube-proxy-policy egress"] {
        let listing = "nft -t list table ip kube-proxy-policy | sort";
        let before = run_script(listing).unwrap();
        run_script(&format!("nft {command}")).unwrap();
        wait_until(command, || {
            run_script(listing).is_ok_and(|now| now == before)
        });
        setting.wait_for("a", SERVER, false);
    }
    let bridge = "/proc/sys/net/bridge/bridge-nf-call-iptables";
    run_script(&format!("echo 0 > {bridge}")).unwrap();
    setting.wait_for("a", SERVER, false);
    wait_until("bridges are filtered again", || {
        run_script(&format!("cat {bridge}")).unwrap().trim() == "1"
    });
    setting.stop(agent);
}

/// A node that boots: pods must not start without their policies.
#[test]
fn pods_are_closed_until_the_agent_knows_the_policies() {
    let Some(setting) = Setting::start() else {
        return;
    };
    setting.wait_for("a", HOST, true);
    // Nothing lets it list the objects that it needs.
    let binding = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    setting.runtime.block_on(async {
        let admin = setting.plane.admin();
        let bindings = admin.get(binding).await.expect_success().json();
        for item in bindings["items"].as_array().unwrap() {
            let subjects = item["subjects"].to_string();
            if subjects.contains("system:kube-proxy") && !item.to_string().contains("node-proxier")
            {
                let name = item["metadata"]["name"].as_str().unwrap();
                admin
                    .delete(&format!("{binding}/{name}"))
                    .await
                    .expect_success();
            }
        }
        // The server decides from its cache.
        let attributes =
            json!({ "verb": "list", "group": "networking.k8s.io", "resource": "networkpolicies" });
        let review = json!({ "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": { "user": "system:kube-proxy", "resourceAttributes": attributes } });
        wait_for("the right is removed", async || {
            let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
            let review = admin.post(path, &review).await.expect_success();
            review.json()["status"]["allowed"] != true
        })
        .await;
    });
    let agent = setting.start_agent();
    setting.wait_for("a", HOST, false);
    setting.wait_for("b", "10.244.0.2:8080", false);
    setting.wait_for("node", "10.244.0.2:8080", true);
    setting.stop(agent);

    // kube-proxy without the option removes the rules of one with it.
    let proxy = setting.start_proxy(&[]);
    setting.wait_for("a", HOST, true);
    setting.stop(proxy);
}
