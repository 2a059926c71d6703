//! Writes quota usage through the registry.

use api_meta::ApiError;
use apiserver_admission::QuotaStore;
use apiserver_registry::{Mode, Registry, Update, Write};
use serde_json::Value;
use std::sync::Arc;

/// The change of a quota, as the plugin computes it.
type Change<'a> = &'a (dyn Fn(&Value) -> Result<Value, ApiError> + Send + Sync);

/// Writes to `resourcequotas/status`.
pub struct Quotas(pub Arc<Registry>);

#[async_trait::async_trait]
impl QuotaStore for Quotas {
    async fn change(
        &self,
        namespace: &str,
        name: &str,
        change: Change<'_>,
    ) -> Result<(), ApiError> {
        let resource =
            api_kinds::find("", "v1", "resourcequotas").ok_or_else(ApiError::no_such_path)?;
        let mut write = Write::internal(resource, namespace, name);
        let change = |quota: &Value| change(quota);
        self.0
            .update(
                &mut write,
                &Update {
                    change: &change,
                    replaces: false,
                    // The server's own bookkeeping, not a write of the client.
                    mode: Mode::Raw,
                },
            )
            .await
            .map(|_| ())
    }
}
