//! Objects with which machines join the cluster: the public cluster-info, and the rights of
//! bootstrap tokens. Their rights are those of kubeadm's tokens: create certificate requests, and
//! have the one for a kubelet's client certificate approved.

use api_bootstrap::CLUSTER_INFO_NAMESPACE;
use api_meta::pem::{format_block, read_blocks};
use serde_json::{Value, json};

use crate::settings::Settings;

/// The group of clients with a token that `ironclad token create` made.
pub const TOKEN_GROUP: &str = "system:bootstrappers:ironclad:default-node-token";
const CERTIFICATE: &str = "CERTIFICATE";
const READER: &str = "ironclad:cluster-info";
const RBAC: &str = "rbac.authorization.k8s.io";

/// The reason why a file can't be published.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum CaDefect {
    /// It has a block of this type.
    #[error("holds a block of type {0:?}")]
    Label(String),
    /// It names a private key. The key may be in a form that no parser of PEM finds.
    #[error("holds the words \"PRIVATE KEY\"")]
    PrivateKey,
    /// It has lines that begin or end a block, and are not those of a certificate that can be read.
    #[error("holds blocks that are cut off, indented or badly encoded")]
    Unreadable,
    /// It has no certificate.
    #[error("holds no certificate")]
    Empty,
}

/// Returns the certificates of a PEM text, encoded again: what is not decoded here is not published
/// in cluster-info. Other components publish the file as it is (the ConfigMaps `kube-root-ca.crt`
/// and `extension-apiserver-authentication`), so that a block which can't be decoded is an error,
/// too.
///
/// # Errors
/// The text has no certificate, or a block that is not one, such as the CA's key, also a malformed
/// one.
pub fn extract_certificates(text: &[u8]) -> Result<String, CaDefect> {
    let mut count = 0;
    let mut certificates = String::new();
    for block in read_blocks(text) {
        if block.label != CERTIFICATE {
            return Err(CaDefect::Label(block.label));
        }
        count += 1;
        certificates += &format_block(&block.label, &block.contents);
    }
    if count_parts(text, b"PRIVATE KEY") > 0 {
        return Err(CaDefect::PrivateKey);
    }
    let all = [&b"-----BEGIN "[..], b"-----END "].map(|start| count_parts(text, start));
    if all != [count, count] {
        return Err(CaDefect::Unreadable);
    }
    if count == 0 {
        return Err(CaDefect::Empty);
    }
    Ok(certificates)
}

/// Returns the number of times that a text contains `part`.
fn count_parts(text: &[u8], part: &[u8]) -> usize {
    let windows = text.windows(part.len());
    windows.filter(|window| *window == part).count()
}

/// Returns the ConfigMap `cluster-info`: a kubeconfig without credentials. The bootstrap signer
/// adds the signatures.
pub fn cluster_info(settings: &Settings, ca: &str) -> Value {
    let ca = operator_pki::encode_base64(ca);
    let server = settings.join_url();
    // The signatures cover these bytes, so the text must not vary between two starts.
    let kubeconfig = format!(
        "apiVersion: v1\nclusters:\n- cluster:\n    certificate-authority-data: {ca}\n    server: {server}\n  \
         name: \"\"\ncontexts: null\ncurrent-context: \"\"\nkind: Config\npreferences: {{}}\nusers: null\n"
    );
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": api_bootstrap::CLUSTER_INFO, "namespace": CLUSTER_INFO_NAMESPACE },
        "data": { api_bootstrap::KUBECONFIG_KEY: kubeconfig },
    })
}

/// Returns the Role to read cluster-info. A joining machine reads it before it can verify to whom
/// it would send a credential, so it must be readable without any.
pub fn reader_role() -> Value {
    json!({
        "apiVersion": format!("{RBAC}/v1"),
        "kind": "Role",
        "metadata": { "name": READER, "namespace": CLUSTER_INFO_NAMESPACE },
        "rules": [{
            "apiGroups": [""],
            "resources": ["configmaps"],
            "resourceNames": [api_bootstrap::CLUSTER_INFO],
            "verbs": ["get"],
        }],
    })
}

/// Returns the binding of [`reader_role`].
pub fn reader_binding() -> Value {
    json!({
        "apiVersion": format!("{RBAC}/v1"),
        "kind": "RoleBinding",
        "metadata": { "name": READER, "namespace": CLUSTER_INFO_NAMESPACE },
        "roleRef": { "apiGroup": RBAC, "kind": "Role", "name": READER },
        // kubeadm binds this user, too, and not the group of all unauthenticated clients.
        "subjects": [{ "apiGroup": RBAC, "kind": "User", "name": "system:anonymous" }],
    })
}

/// Returns the bindings of bootstrap roles: tokens may request certificates, and the controller
/// manager approves those for kubelets. Nodes may renew their own.
pub fn bindings() -> [Value; 3] {
    let requests = "system:certificates.k8s.io:certificatesigningrequests";
    [
        (
            "ironclad:kubelet-bootstrap",
            "system:node-bootstrapper".to_owned(),
            TOKEN_GROUP,
        ),
        (
            "ironclad:node-autoapprove-bootstrap",
            format!("{requests}:nodeclient"),
            TOKEN_GROUP,
        ),
        (
            "ironclad:node-autoapprove-certificate-rotation",
            format!("{requests}:selfnodeclient"),
            "system:nodes",
        ),
    ]
    .map(|(name, role, group)| {
        json!({
            "apiVersion": format!("{RBAC}/v1"),
            "kind": "ClusterRoleBinding",
            "metadata": { "name": name },
            "roleRef": { "apiGroup": RBAC, "kind": "ClusterRole", "name": role },
            "subjects": [{ "apiGroup": RBAC, "kind": "Group", "name": group }],
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cluster_info_has_the_address_and_the_ca_and_no_credential() {
        let map = cluster_info(&Settings::example(), "CA");
        let text = map["data"]["kubeconfig"].as_str().unwrap_or_default();
        assert!(text.contains("server: https://192.0.2.2:6443\n"), "{text}");
        assert!(text.contains("authority-data: Q0E=\n"), "{text}");
        assert!(text.contains("users: null\n"), "{text}");
    }

    #[test]
    fn only_certificates_are_published() {
        let certificate = "-----BEGIN CERTIFICATE-----\nQ0E=\n-----END CERTIFICATE-----\n";
        let key = |label: &str| format!("-----BEGIN {label}-----\nS0VZ\n-----END {label}-----\n");
        let defect = |label: &str| Err(CaDefect::Label(label.to_owned()));
        let two = format!("{certificate}{certificate}");
        for (text, expected) in [
            (two.clone(), Ok(two)),
            (
                format!("# the CA\n{certificate}secret"),
                Ok(certificate.to_owned()),
            ),
            (
                format!("{certificate}{}", key("PRIVATE KEY")),
                defect("PRIVATE KEY"),
            ),
            (
                format!("{}{certificate}", key("EC PRIVATE KEY")),
                defect("EC PRIVATE KEY"),
            ),
            // Cut off, indented, or badly encoded: other components publish the file as it is.
            (
                format!("{certificate}-----BEGIN PRIVATE KEY-----\nS0VZ\n"),
                Err(CaDefect::PrivateKey),
            ),
            (
                format!("{certificate}S0VZ\n-----END PRIVATE KEY-----\n"),
                Err(CaDefect::PrivateKey),
            ),
            (
                format!("{certificate}  {}", key("RSA PRIVATE KEY")),
                Err(CaDefect::PrivateKey),
            ),
            (
                format!(
                    "{}{certificate}",
                    key("PRIVATE KEY").replace("S0VZ", "S0V%")
                ),
                Err(CaDefect::PrivateKey),
            ),
            (
                format!("{certificate}---{}", key("PRIVATE KEY")),
                Err(CaDefect::PrivateKey),
            ),
            (
                format!("{certificate}-----BEGIN SECRET-----\nS0VZ\n"),
                Err(CaDefect::Unreadable),
            ),
            (
                format!("-----BEGIN SECRET-----\nS0VZ\n{certificate}"),
                Err(CaDefect::Unreadable),
            ),
            (
                format!("{certificate} {certificate}"),
                Err(CaDefect::Unreadable),
            ),
            (
                certificate.replace("Q0E=", "Q0%="),
                Err(CaDefect::Unreadable),
            ),
            (
                format!("{certificate}S0VZ\n-----END CERTIFICATE-----\n"),
                Err(CaDefect::Unreadable),
            ),
            (String::new(), Err(CaDefect::Empty)),
            ("S0VZ\n".to_owned(), Err(CaDefect::Empty)),
        ] {
            assert_eq!(extract_certificates(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn anonymous_clients_may_get_cluster_info_only() {
        let rules = json!([{"apiGroups": [""], "resources": ["configmaps"],
            "resourceNames": ["cluster-info"], "verbs": ["get"]}]);
        assert_eq!(reader_role()["rules"], rules);
        assert_eq!(reader_role()["metadata"]["namespace"], "kube-public");
        let subjects = reader_binding()["subjects"].take();
        assert_eq!(subjects.as_array().map(Vec::len), Some(1));
        assert_eq!(subjects[0]["name"], "system:anonymous");
    }

    #[test]
    fn tokens_may_request_certificates_and_nothing_else() {
        let roles: Vec<_> = bindings()
            .iter()
            .filter(|binding| binding["subjects"][0]["name"] == TOKEN_GROUP)
            .filter_map(|binding| binding["roleRef"]["name"].as_str().map(str::to_owned))
            .collect();
        let requests = "system:certificates.k8s.io:certificatesigningrequests";
        let expected = [
            "system:node-bootstrapper".to_owned(),
            format!("{requests}:nodeclient"),
        ];
        assert_eq!(roles, expected);
    }
}
