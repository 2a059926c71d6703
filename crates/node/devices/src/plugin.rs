//! Calls of one plugin.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use proto_plugins::dra::v1::dra_plugin_client::DraPluginClient;
use proto_plugins::dra::v1::{
    Claim, NodePrepareResourcesRequest, NodePrepareResourcesResponse,
    NodeUnprepareResourcesRequest, NodeUnprepareResourcesResponse,
};
use proto_plugins::dra::v1beta1;
use proto_plugins::registration::registration_client::RegistrationClient;
use proto_plugins::registration::{InfoRequest, PluginInfo, RegistrationStatus};
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Response, Status};

use crate::checkpoint::PreparedDevice;

/// Upstream's limit of a preparation and of a release.
const CALL_TIMEOUT: Duration = Duration::from_secs(45);
const REGISTRATION_TIMEOUT: Duration = Duration::from_secs(10);
/// Services by preference.
const SERVICES: [(&str, Service); 2] = [
    ("v1.DRAPlugin", Service::V1),
    ("v1beta1.DRAPlugin", Service::V1beta1),
];
/// Kind of the plugins of drivers of devices.
const KIND: &str = "DRAPlugin";
/// Longest name of a driver.
const MAX_NAME: usize = 63;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Service {
    V1,
    V1beta1,
}

/// A registered plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plugin {
    pub(crate) driver: String,
    endpoint: PathBuf,
    service: Service,
}

/// Opens a connection. Calls are rare, and a plugin may be restarted between two of them.
async fn connect(socket: &Path) -> Result<Channel, String> {
    let path = socket.to_owned();
    let connector = tower::service_fn(move |_| {
        let path = path.clone();
        async move { UnixStream::connect(path).await.map(TokioIo::new) }
    });
    let endpoint = Endpoint::from_static("http://localhost");
    let connected = endpoint.connect_with_connector(connector).await;
    connected.map_err(|error| format!("can't connect to {}: {error}", socket.display()))
}

async fn limit<T>(
    time: Duration,
    call: impl Future<Output = Result<T, String>>,
) -> Result<T, String> {
    let late = |_| Err(format!("no response within {} s", time.as_secs()));
    tokio::time::timeout(time, call).await.unwrap_or_else(late)
}

fn read_response<T>(response: Result<Response<T>, Status>) -> Result<T, String> {
    let text = |status: Status| format!("{}: {}", status.code(), status.message());
    response.map(Response::into_inner).map_err(text)
}

/// Registers the plugin that listens at a socket of the registration folder. Returns None for a
/// plugin of another kind, which is left waiting for a kubelet that supports it.
pub(crate) async fn register_plugin(socket: &Path) -> Result<Option<Plugin>, String> {
    limit(REGISTRATION_TIMEOUT, async {
        let mut client = RegistrationClient::new(connect(socket).await?);
        let info = read_response(client.get_info(InfoRequest {}).await)?;
        if info.r#type != KIND {
            return Ok(None);
        }
        let plugin = accept_plugin(socket, &info);
        let status = RegistrationStatus {
            plugin_registered: plugin.is_ok(),
            error: plugin.as_ref().err().cloned().unwrap_or_default(),
        };
        read_response(client.notify_registration_status(status).await)?;
        plugin.map(Some)
    })
    .await
}

fn accept_plugin(socket: &Path, info: &PluginInfo) -> Result<Plugin, String> {
    if info.name.len() > MAX_NAME || !api_meta::names::dns1123_subdomain(&info.name).is_empty() {
        return Err(format!("{:?} is no name of a driver", info.name));
    }
    let mut services = SERVICES.iter();
    let service = services.find(|(name, _)| info.supported_versions.iter().any(|v| v == name));
    let (_, service) = service.ok_or_else(|| {
        let known = SERVICES.map(|(name, _)| name).join(", ");
        format!(
            "none of the services {:?} is one of {known}",
            info.supported_versions
        )
    })?;
    let endpoint = match info.endpoint.as_str() {
        "" => socket.to_owned(),
        path if path.starts_with('/') => PathBuf::from(path),
        path => return Err(format!("the endpoint {path:?} is no absolute path")),
    };
    Ok(Plugin {
        driver: info.name.clone(),
        endpoint,
        service: *service,
    })
}

impl Plugin {
    /// Returns whether the plugin accepts connections.
    pub(crate) async fn is_reachable(&self) -> bool {
        limit(REGISTRATION_TIMEOUT, connect(&self.endpoint))
            .await
            .is_ok()
    }

    /// Prepares claims; returns the devices by UID of the claim.
    pub(crate) async fn prepare(
        &self,
        claims: Vec<Claim>,
    ) -> Result<HashMap<String, Vec<PreparedDevice>>, String> {
        let wanted: Vec<String> = claims.iter().map(|claim| claim.uid.clone()).collect();
        let request = NodePrepareResourcesRequest { claims };
        let mut response = limit(CALL_TIMEOUT, self.call_prepare(request)).await?;
        let mut prepared = HashMap::new();
        for uid in wanted {
            let missing = || format!("the response lacks the claim {uid}");
            let result = response.claims.remove(&uid).ok_or_else(missing)?;
            if !result.error.is_empty() {
                return Err(result.error);
            }
            let devices = result.devices.into_iter().map(|device| PreparedDevice {
                requests: device.request_names,
                cdi_ids: device.cdi_device_ids,
            });
            prepared.insert(uid, devices.collect());
        }
        Ok(prepared)
    }

    async fn call_prepare(
        &self,
        request: NodePrepareResourcesRequest,
    ) -> Result<NodePrepareResourcesResponse, String> {
        let channel = connect(&self.endpoint).await?;
        read_response(match self.service {
            Service::V1 => {
                DraPluginClient::new(channel)
                    .node_prepare_resources(request)
                    .await
            }
            Service::V1beta1 => {
                let mut client = v1beta1::dra_plugin_client::DraPluginClient::new(channel);
                client.node_prepare_resources(request).await
            }
        })
    }

    /// Releases a claim.
    pub(crate) async fn unprepare(&self, claim: Claim) -> Result<(), String> {
        let uid = claim.uid.clone();
        let request = NodeUnprepareResourcesRequest {
            claims: vec![claim],
        };
        let mut response = limit(CALL_TIMEOUT, self.call_unprepare(request)).await?;
        let missing = || format!("the response lacks the claim {uid}");
        let result = response.claims.remove(&uid).ok_or_else(missing)?;
        if result.error.is_empty() {
            Ok(())
        } else {
            Err(result.error)
        }
    }

    async fn call_unprepare(
        &self,
        request: NodeUnprepareResourcesRequest,
    ) -> Result<NodeUnprepareResourcesResponse, String> {
        let channel = connect(&self.endpoint).await?;
        read_response(match self.service {
            Service::V1 => {
                DraPluginClient::new(channel)
                    .node_unprepare_resources(request)
                    .await
            }
            Service::V1beta1 => {
                let mut client = v1beta1::dra_plugin_client::DraPluginClient::new(channel);
                client.node_unprepare_resources(request).await
            }
        })
    }
}
