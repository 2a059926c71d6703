//! Rules of the built-in signers.

use super::{CertificateRequest, RequestError};

impl CertificateRequest {
    /// Checks the rules of the signer `kubernetes.io/kube-apiserver-client-kubelet`.
    ///
    /// # Errors
    /// [`RequestError::Rule`] names the first rule that is broken.
    pub fn check_kubelet_client(&self, usages: &[&str]) -> Result<(), RequestError> {
        self.check_node_subject()?;
        // A client certificate with a host name could be used as a serving certificate of that
        // host.
        let named = !self.dns_names.is_empty() || !self.ip_addresses.is_empty();
        if named
            || !self.email_addresses.is_empty()
            || !self.uris.is_empty()
            || self.other_names > 0
        {
            return Err(RequestError::Rule(
                "subjectAltNames are not allowed in a kubelet's client certificate",
            ));
        }
        check_node_usages(usages, "client auth")
    }

    /// Checks the rules of the signer `kubernetes.io/kubelet-serving`.
    ///
    /// # Errors
    /// [`RequestError::Rule`] names the first rule that is broken.
    pub fn check_kubelet_serving(&self, usages: &[&str]) -> Result<(), RequestError> {
        self.check_node_subject()?;
        // Go ignores the common name when it verifies a host.
        if self.dns_names.is_empty() && self.ip_addresses.is_empty() {
            return Err(RequestError::Rule("DNS or IP subjectAltName is required"));
        }
        if !self.email_addresses.is_empty() || !self.uris.is_empty() || self.other_names > 0 {
            return Err(RequestError::Rule(
                "only DNS and IP subjectAltNames are allowed",
            ));
        }
        check_node_usages(usages, "server auth")
    }

    /// Returns the kubelet's user name if the subject is exactly a kubelet's.
    pub fn kubelet_name(&self) -> Option<&str> {
        self.check_node_subject()
            .ok()
            .map(|()| self.common_name.as_str())
    }

    fn check_node_subject(&self) -> Result<(), RequestError> {
        // Exactly this group: another one beside it, such as system:masters, would come with the
        // certificate.
        if self.organizations != ["system:nodes"] {
            return Err(RequestError::Rule(
                "subject organization is not system:nodes",
            ));
        }
        if !self.common_name.starts_with("system:node:") {
            return Err(RequestError::Rule(
                "subject common name does not begin with system:node:",
            ));
        }
        Ok(())
    }
}

/// Checks the usages of the signer `kubernetes.io/kube-apiserver-client`.
///
/// # Errors
/// "client auth" is missing, or a usage is not needed by a client certificate.
pub fn check_client_usages(usages: &[&str]) -> Result<(), RequestError> {
    if usages.iter().any(|usage| {
        !matches!(
            *usage,
            "client auth" | "digital signature" | "key encipherment"
        )
    }) {
        return Err(RequestError::Rule("invalid usage for a client certificate"));
    }
    if !usages.contains(&"client auth") {
        return Err(RequestError::Rule(
            "missing required usage for a client certificate: client auth",
        ));
    }
    Ok(())
}

/// Checks the usages of a node's certificate: signing and the purpose are required, key
/// encipherment is optional, for RSA keys.
fn check_node_usages(usages: &[&str], purpose: &str) -> Result<(), RequestError> {
    let known = usages.iter().all(|usage| {
        *usage == purpose || matches!(*usage, "digital signature" | "key encipherment")
    });
    if known && usages.contains(&purpose) && usages.contains(&"digital signature") {
        return Ok(());
    }
    Err(RequestError::Rule("usages are not those of the signer"))
}
