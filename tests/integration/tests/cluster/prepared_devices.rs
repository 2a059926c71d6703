//! Devices of claims at the kubelet: the plugin of a driver prepares them before the pod starts,
//! and releases them after it has ended.

use std::sync::{Arc, Mutex};

use integration_tests::{Components, Test, pod_with};
use proto_plugins::dra::v1::dra_plugin_server::{DraPlugin, DraPluginServer};
use proto_plugins::dra::v1::{
    Device, NodePrepareResourceResponse, NodePrepareResourcesRequest, NodePrepareResourcesResponse,
    NodeUnprepareResourceResponse, NodeUnprepareResourcesRequest, NodeUnprepareResourcesResponse,
};
use proto_plugins::registration::registration_server::{Registration, RegistrationServer};
use proto_plugins::registration::{
    InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse,
};
use serde_json::{Value, json};
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, Status};

use crate::devices::{claims, create_class, create_slice, driver_of, generated_claim};

const NODE: &str = "node-a";

/// A plugin that records its calls.
#[derive(Clone)]
struct Plugin {
    driver: String,
    calls: Arc<Mutex<Vec<String>>>,
}

impl Plugin {
    fn record(&self, call: &str, name: &str) {
        self.calls.lock().unwrap().push(format!("{call} {name}"));
    }
}

#[tonic::async_trait]
impl Registration for Plugin {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        Ok(Response::new(PluginInfo {
            r#type: "DRAPlugin".to_owned(),
            name: self.driver.clone(),
            endpoint: String::new(),
            supported_versions: vec!["v1.DRAPlugin".to_owned()],
        }))
    }

    async fn notify_registration_status(
        &self,
        _: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}

#[tonic::async_trait]
impl DraPlugin for Plugin {
    async fn node_prepare_resources(
        &self,
        request: Request<NodePrepareResourcesRequest>,
    ) -> Result<Response<NodePrepareResourcesResponse>, Status> {
        let claims = request.into_inner().claims.into_iter().map(|claim| {
            self.record("prepare", &claim.name);
            let devices = vec![Device {
                cdi_device_ids: vec!["example.com/gpu=0".to_owned()],
                ..Device::default()
            }];
            let error = String::new();
            (claim.uid, NodePrepareResourceResponse { devices, error })
        });
        let claims = claims.collect();
        Ok(Response::new(NodePrepareResourcesResponse { claims }))
    }

    async fn node_unprepare_resources(
        &self,
        request: Request<NodeUnprepareResourcesRequest>,
    ) -> Result<Response<NodeUnprepareResourcesResponse>, Status> {
        let claims = request.into_inner().claims.into_iter().map(|claim| {
            self.record("unprepare", &claim.name);
            (claim.uid, NodeUnprepareResourceResponse::default())
        });
        let claims = claims.collect();
        Ok(Response::new(NodeUnprepareResourcesResponse { claims }))
    }
}

/// Starts the plugin of the test's driver at the node's kubelet.
fn start_plugin(test: &Test) -> Plugin {
    let plugin = Plugin {
        driver: driver_of(test),
        calls: Arc::default(),
    };
    let folder = test.plane().folder().join(NODE).join("plugins_registry");
    let socket = folder.join(format!("{}.sock", test.namespace));
    let incoming = UnixListenerStream::new(UnixListener::bind(socket).unwrap());
    let server = tonic::transport::Server::builder()
        .add_service(RegistrationServer::new(plugin.clone()))
        .add_service(DraPluginServer::new(plugin.clone()));
    #[allow(clippy::disallowed_methods)]
    tokio::spawn(server.serve_with_incoming(incoming));
    plugin
}

#[tokio::test]
async fn pod_starts_after_its_devices_are_prepared_and_ends_before_they_are_released() {
    let test = Test::start(Components::All).await;
    create_class(&test).await;
    create_slice(&test, NODE, 1).await;
    let claim = json!({"name": "gpu", "resourceClaimTemplateName": "one"});
    let mut pod = pod_with("p", &json!({"resourceClaims": [claim]}));
    pod["spec"]["containers"][0]["resources"] = json!({"claims": [{"name": "gpu"}]});
    test.create(&test.core("pods"), &pod).await;
    let failed = |events: &[Value]| {
        let mut events = events.iter();
        events.any(|event| event["reason"] == "FailedPrepareDynamicResources")
    };
    let events = test.core("events");
    test.wait_until_items(&events, "reported", failed).await;
    let path = test.core("pods/p");
    let waiting = test.read(&path).await;
    assert_eq!(
        (&waiting["spec"]["nodeName"], &waiting["status"]["phase"]),
        (&json!(NODE), &json!("Pending"))
    );

    let plugin = start_plugin(&test);
    let is_running = |pod: &Value| pod["status"]["phase"] == "Running";
    test.wait_until(&path, "running", is_running).await;
    let name = generated_claim(&test, "p").await;
    assert_eq!(*plugin.calls.lock().unwrap(), [format!("prepare {name}")]);
    test.admin.delete(&path).await.expect_status(200);
    test.wait_until_deleted(&path).await;
    let want = [format!("prepare {name}"), format!("unprepare {name}")];
    assert_eq!(*plugin.calls.lock().unwrap(), want);
    test.wait_until_deleted(&format!("{}/{name}", claims(&test)))
        .await;
}
