//! TokenRequest.

use crate::registry::Registry;
use crate::write::Write;
use api_meta::ApiError;
use apiserver_request::Operation;
use serde_json::Value;

impl Registry {
    /// Handles POST of a TokenRequest for a ServiceAccount.
    pub async fn request_token(
        &self,
        write: &mut Write,
        request: Value,
    ) -> Result<Value, ApiError> {
        let Some(issuer) = &self.options.tokens else {
            return Err(ApiError::no_such_path());
        };
        // Waits for a fresh cache: a deleted account must not get a token.
        let account = self
            .get(&write.resource, &write.namespace, &write.name, "")
            .await?
            .tree_as(&write.resource)?;
        let name = write.name.clone();
        let mut admission = write.admission_request(Operation::Create, &name, request, None);
        self.run_mutating(&mut admission).await?;
        self.run_validating(&admission).await?;
        issuer.issue(&account, admission.object).await
    }
}
