//! Writes quota usage through the registry.

use api_meta::ApiError;
use apiserver_admission::QuotaStore;
use apiserver_registry::{Change, Mode, Registry, Update, Write};
use std::sync::Arc;

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
        self.0
            .update(
                &mut write,
                &Update {
                    change,
                    replaces: false,
                    // The server's own bookkeeping, not a write of the client.
                    mode: Mode::Raw,
                },
            )
            .await
            .map(|_| ())
    }
}
