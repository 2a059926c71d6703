//! The runtime handler of a pod, from its RuntimeClass.

use crate::context::KubeletContext;
use crate::pod::spec;
use k8s_openapi::api::core::v1::Pod;

/// Returns the runtime handler of the pod's RuntimeClass.
pub(super) async fn read_runtime_handler(
    kubelet: &KubeletContext,
    pod: &Pod,
) -> Result<String, String> {
    use k8s_openapi::api::node::v1::RuntimeClass;
    // Read for each start and not cached: the RuntimeClass may be created after the pod.
    let Some(name) = spec::read_spec(pod)
        .runtime_class_name
        .as_deref()
        .filter(|n| !n.is_empty())
    else {
        return Ok(String::new());
    };
    let client = kubelet
        .client
        .as_ref()
        .ok_or("RuntimeClasses can't be read without an API server")?;
    let class = client.api::<RuntimeClass>().get(name).await;
    class
        .map(|c| c.handler)
        .map_err(|e| format!("failed to get RuntimeClass {name:?}: {e}"))
}
