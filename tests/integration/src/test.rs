//! A test's part of the cluster.

use crate::{Cluster, Components, DEADLINE, Http2Client};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use testkit_control_plane::{Caller, ControlPlane};

/// Interval of looks at an object.
const POLL: Duration = Duration::from_millis(50);

/// A namespace with a default ServiceAccount, and a client with all permissions.
pub struct Test {
    /// The client.
    pub admin: Http2Client,
    /// The namespace. No other test of this process uses it, also not as a part of a name.
    pub namespace: String,
    cluster: Arc<Cluster>,
}

impl Test {
    /// Connects to the shared cluster and creates a namespace.
    ///
    /// # Panics
    /// If the cluster does not start, like all methods if a request fails that has to succeed.
    pub async fn start(components: Components) -> Self {
        let cluster = Cluster::shared(components).await;
        let admin = Http2Client::connect(&cluster.plane().admin()).await;
        let mut test = Self {
            admin,
            namespace: String::new(),
            cluster,
        };
        test.namespace = test.create_namespace(&json!({})).await;
        test
    }

    /// Returns the control plane.
    pub fn plane(&self) -> &ControlPlane {
        self.cluster.plane()
    }

    /// Creates another namespace, with these labels; returns its name.
    pub async fn create_namespace(&self, labels: &Value) -> String {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("t{:04}", NEXT.fetch_add(1, Ordering::Relaxed));
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": name, "labels": labels}});
        self.create("/api/v1/namespaces", &namespace).await;
        // The controller manager creates this account, too, if there is one.
        let account =
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
        let path = format!("/api/v1/namespaces/{name}/serviceaccounts");
        let status = self.admin.post(&path, &account).await.status;
        assert!([201, 409].contains(&status), "default account: {status}");
        name
    }

    /// Returns a name for an object outside of namespaces.
    pub fn name(&self, stem: &str) -> String {
        format!("{stem}-{}", self.namespace)
    }

    /// Returns the path of a resource of the core group in the test's namespace.
    pub fn core(&self, resource: &str) -> String {
        format!("/api/v1/namespaces/{}/{resource}", self.namespace)
    }

    /// Returns the path of a resource of another group in the test's namespace.
    pub fn group(&self, group_version: &str, resource: &str) -> String {
        format!(
            "/apis/{group_version}/namespaces/{}/{resource}",
            self.namespace
        )
    }

    /// Creates an object; returns it as the server stored it.
    pub async fn create(&self, path: &str, object: &Value) -> Value {
        self.admin
            .post(path, object)
            .await
            .expect_status(201)
            .json()
    }

    /// Returns the object at a path.
    pub async fn read(&self, path: &str) -> Value {
        self.admin.get(path).await.expect_status(200).json()
    }

    /// Returns the `resourceVersion` of a collection.
    pub async fn version(&self, collection: &str) -> String {
        let list = self.read(&format!("{collection}?limit=1")).await;
        let version = list["metadata"]["resourceVersion"].as_str();
        version.unwrap_or_default().to_owned()
    }

    /// Returns the names in a collection, in the order of the server.
    pub async fn names(&self, collection: &str) -> Vec<String> {
        let list = self.read(collection).await;
        let items = list["items"].as_array().into_iter().flatten();
        items
            .map(|item| {
                item["metadata"]["name"]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned()
            })
            .collect()
    }

    /// Returns the objects of a collection.
    pub async fn items(&self, collection: &str) -> Vec<Value> {
        let mut list = self.read(collection).await;
        match list["items"].take() {
            Value::Array(items) => items,
            _ => Vec::new(),
        }
    }

    /// Waits until the object at a path exists and meets a condition; returns it.
    ///
    /// # Panics
    /// If that takes longer than [`crate::DEADLINE`], like the following methods, with the object as
    /// it is then.
    pub async fn wait_until(
        &self,
        path: &str,
        what: &str,
        condition: impl Fn(&Value) -> bool,
    ) -> Value {
        let begun = Instant::now();
        loop {
            let reply = self.admin.get(path).await;
            let object = reply.json();
            if reply.status == 200 && condition(&object) {
                return object;
            }
            assert!(begun.elapsed() < DEADLINE, "not {what}: {object}");
            tokio::time::sleep(POLL).await;
        }
    }

    /// Waits until the objects of a collection meet a condition; returns them.
    pub async fn wait_until_items(
        &self,
        collection: &str,
        what: &str,
        condition: impl Fn(&[Value]) -> bool,
    ) -> Vec<Value> {
        let holds = |list: &Value| list["items"].as_array().is_some_and(|i| condition(i));
        let mut list = self.wait_until(collection, what, holds).await;
        serde_json::from_value(list["items"].take()).unwrap_or_default()
    }

    /// Waits until there is no object at a path.
    pub async fn wait_until_deleted(&self, path: &str) {
        let begun = Instant::now();
        loop {
            let reply = self.admin.get(path).await;
            if reply.status == 404 {
                return;
            }
            assert!(
                begun.elapsed() < DEADLINE,
                "{path} remains: {}",
                reply.text()
            );
            tokio::time::sleep(POLL).await;
        }
    }

    /// Connects as a user with a client certificate and without any rights. The user's name is
    /// unique to the test.
    pub async fn connect_user(&self, stem: &str) -> (String, Http2Client) {
        let user = self.name(stem);
        let client = self.connect(&self.plane().user(&user, None)).await;
        (user, client)
    }

    /// Connects with the identity of a caller.
    pub async fn connect(&self, caller: &Caller) -> Http2Client {
        Http2Client::connect(caller).await
    }

    /// Grants a user these rules in the test's namespace. Waits until the API server applies the
    /// first of them.
    pub async fn grant(&self, user: &str, rules: &[Value]) {
        let plane = self.plane();
        plane.grant(user, &self.namespace, json!(rules)).await;
        let rule = &rules[0];
        let resource = rule["resources"][0].as_str().unwrap_or_default();
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let attributes = json!({"namespace": self.namespace, "verb": rule["verbs"][0],
            "group": rule["apiGroups"][0], "resource": resource, "subresource": subresource,
            "name": rule["resourceNames"][0].as_str().unwrap_or_default()});
        let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": {"user": user, "resourceAttributes": attributes}});
        crate::wait_for("the grant is effective", async || {
            let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
            let review = self.admin.post(path, &review).await.expect_status(201);
            review.json()["status"]["allowed"] == true
        })
        .await;
    }
}
