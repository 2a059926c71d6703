//! Errors of cancelled watchers, in the text of Go's client.

use crate::context::to_status;
use kv_machine::EtcdError;

/// Formats the error of a cancelled watcher like etcd.
pub fn cancel_reason(refusal: EtcdError) -> String {
    let status = to_status(refusal);
    format!(
        "rpc error: code = {} desc = {}",
        go_code_name(status.code()),
        status.message()
    )
}

/// Returns the name of a code in Go.
fn go_code_name(code: tonic::Code) -> &'static str {
    match code {
        tonic::Code::PermissionDenied => "PermissionDenied",
        tonic::Code::InvalidArgument => "InvalidArgument",
        tonic::Code::Unauthenticated => "Unauthenticated",
        _ => "Unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reason_of_a_cancelled_watcher_is_the_error_of_gos_client() {
        assert_eq!(
            cancel_reason(EtcdError::Denied),
            "rpc error: code = PermissionDenied desc = etcdserver: permission denied"
        );
        assert_eq!(
            cancel_reason(EtcdError::InvalidToken),
            "rpc error: code = Unauthenticated desc = etcdserver: invalid auth token"
        );
    }
}
