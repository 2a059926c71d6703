//! gRPC health checks (grpc.health.v1): one unary call.

use crate::result::CheckResult;
use proto_grpc::{GrpcClient, MethodName};
use std::time::Duration;
use tonic::transport::Endpoint;

const SERVING: i32 = 1;
/// A response has a few bytes. A container must not make the kubelet hold more.
const MAX_HEALTH_BYTES: usize = 64 << 10;

#[derive(Clone, PartialEq, prost::Message)]
struct Request {
    #[prost(string, tag = "1")]
    service: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Response {
    #[prost(int32, tag = "1")]
    status: i32,
}

pub(crate) async fn check_grpc(
    host: &str,
    port: u16,
    service: &str,
    timeout: Duration,
) -> CheckResult {
    match tokio::time::timeout(timeout, call_health(host, port, service)).await {
        Ok(Ok(SERVING)) => CheckResult::success("service healthy"),
        Ok(Ok(status)) => CheckResult::failure(format!(
            "service unhealthy (responded with status code {status})"
        )),
        Ok(Err(why)) => CheckResult::failure(why),
        Err(_) => CheckResult::failure(format!(
            "timeout: failed to connect service \"{host}:{port}\" within {}s: context deadline exceeded",
            timeout.as_secs()
        )),
    }
}

async fn call_health(host: &str, port: u16, service: &str) -> Result<i32, String> {
    let host = if host.contains(':') {
        format!("[{host}]")
    } else {
        host.to_owned()
    };
    let endpoint =
        Endpoint::from_shared(format!("http://{host}:{port}")).map_err(|e| e.to_string())?;
    let endpoint = endpoint
        .user_agent("kube-probe/1.36")
        .map_err(|e| e.to_string())?;
    // A new connection for each check: one that is kept open could stay with a process that no
    // longer serves.
    let channel = endpoint
        .connect()
        .await
        .map_err(|e| format!("error: failed to connect service \"{host}:{port}\": {e}"))?;
    let request = tonic::Request::new(Request {
        service: service.to_owned(),
    });
    // The one method is called without generated code, which would need the protocol file of the
    // health service.
    let service = "grpc.health.v1.Health";
    let method = MethodName::new(service, "Check", "/grpc.health.v1.Health/Check");
    let mut client = GrpcClient::new(channel).max_decoding_message_size(MAX_HEALTH_BYTES);
    match client.call_unary::<_, Response>(method, request).await {
        Ok(health) => Ok(health.into_inner().status),
        Err(status) if status.code() == tonic::Code::Unimplemented => {
            Err("error: this server does not implement the grpc health protocol (grpc.health.v1.Health)".into())
        }
        Err(status) => Err(format!("error: health rpc failed: {}", status.message())),
    }
}
