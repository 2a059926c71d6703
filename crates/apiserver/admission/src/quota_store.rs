//! Write access to the status of quotas.

use api_meta::ApiError;
use serde_json::Value;
use std::sync::{Arc, OnceLock};

/// Computes the changed quota from the stored one, or rejects the change.
pub type Change<'a> = &'a (dyn Fn(&Value) -> Result<Value, ApiError> + Send + Sync);

/// Writes quota usage.
#[async_trait::async_trait]
pub trait QuotaStore: Send + Sync {
    /// Changes the status of a quota; `change` is called again with the fresh object after a
    /// conflict.
    async fn change(&self, namespace: &str, name: &str, change: Change<'_>)
    -> Result<(), ApiError>;
}

/// A store that is set after the plugins were created, because the registry needs the plugins
/// first. Until then usage is not written.
#[derive(Default)]
pub struct QuotaSlot(OnceLock<Arc<dyn QuotaStore>>);

impl QuotaSlot {
    /// Sets the store; later calls have no effect.
    pub fn set(&self, store: Arc<dyn QuotaStore>) {
        let _ = self.0.set(store);
    }
}

#[async_trait::async_trait]
impl QuotaStore for QuotaSlot {
    async fn change(
        &self,
        namespace: &str,
        name: &str,
        change: Change<'_>,
    ) -> Result<(), ApiError> {
        match self.0.get() {
            Some(store) => store.change(namespace, name, change).await,
            None => Ok(()),
        }
    }
}
