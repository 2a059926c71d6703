//! The set of certificates of one cluster, in kubeadm's layout, so that kubeadm's guides apply.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

use rcgen::KeyPair;

use crate::authority::Authority;
use crate::certificate::{self, Subject, Usage};
use crate::files::{read_optional, write_private, write_public};
use crate::kubeconfig::CLUSTER;
use crate::{Error, Kubeconfig};

/// A node: its name and addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeName {
    /// Name of the Node object.
    pub name: String,
    /// Addresses of its kubelet.
    pub addresses: Vec<IpAddr>,
}

/// Inputs of the certificates.
#[derive(Debug, Clone)]
pub struct Names {
    /// DNS domain of the cluster.
    pub domain: String,
    /// Address of the `kubernetes` Service.
    pub service_address: IpAddr,
    /// Additional DNS names of the API server.
    pub extra_dns: Vec<String>,
    /// Addresses of the machine, at which the API server and the store listen.
    pub addresses: Vec<IpAddr>,
    /// Additional addresses of the API server only, such as that of a load balancer.
    pub server_addresses: Vec<IpAddr>,
    /// The nodes on this machine.
    pub nodes: Vec<NodeName>,
}

/// The user with which the API server connects to kubelets; it needs a binding to
/// `system:kubelet-api-admin`.
pub const KUBELET_CLIENT: &str = "kube-apiserver-kubelet-client";

/// Paths of the whole set.
pub struct Pki {
    folder: PathBuf,
    cluster: Authority,
    front_proxy: Authority,
    store: Authority,
}

/// The leaf certificates to renew. Certificates of CAs never are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewal<'a> {
    /// Those that are in their last 90 days, or have other names than they should.
    Due,
    /// Those of [`Renewal::Due`], and the named ones.
    Named(&'a [String]),
    /// All.
    All,
}

impl Renewal<'_> {
    fn includes(self, name: &str) -> bool {
        match self {
            Self::Due => false,
            Self::Named(names) => names.iter().any(|named| named == name),
            Self::All => true,
        }
    }
}

/// Creates missing or outdated certificates in `folder`. Returns the names of the written ones.
pub fn ensure_pki(folder: &Path, names: &Names) -> Result<(Pki, Vec<String>), Error> {
    write_pki(folder, names, Renewal::Due)
}

/// Creates missing certificates in `folder`, and those that `renewal` names. Returns the names of
/// the written ones.
pub fn write_pki(
    folder: &Path,
    names: &Names,
    renewal: Renewal<'_>,
) -> Result<(Pki, Vec<String>), Error> {
    let pki = Pki {
        folder: folder.to_owned(),
        cluster: Authority::ensure(folder, "ca", "ironclad-ca")?,
        // A CA of its own: its clients may claim to be any user, which no certificate of the
        // cluster's CA must allow.
        front_proxy: Authority::ensure(folder, "front-proxy-ca", "ironclad-front-proxy-ca")?,
        // A CA of its own: a client of the store may read and write everything, past the API
        // server.
        store: Authority::ensure(&folder.join("etcd"), "ca", "ironclad-store-ca")?,
    };
    let mut written = Vec::new();
    for (signer, name, subject) in desired_certificates(names) {
        let authority = pki.signer(signer);
        let is_written = match renewal.includes(&name) {
            false => certificate::ensure_certificate(authority, folder, &name, &subject)?,
            true => {
                certificate::write_certificate(authority, folder, &name, &subject)?;
                true
            }
        };
        if is_written {
            written.push(name);
        }
    }
    if ensure_service_account_key(folder)? {
        written.push("sa".to_owned());
    }
    Ok((pki, written))
}

/// Returns the names of the leaf certificates that [`ensure_pki`] keeps: paths below the directory
/// without their extension.
#[must_use]
pub fn list_leaf_names(names: &Names) -> Vec<String> {
    let all = desired_certificates(names).into_iter();
    all.map(|(_, name, _)| name).collect()
}

/// The CA that signs a certificate.
#[derive(Clone, Copy)]
enum Signer {
    Cluster,
    FrontProxy,
    Store,
}

/// Signer, name and content of a certificate.
type DesiredCertificate = (Signer, String, Subject);

fn desired_certificates(names: &Names) -> Vec<DesiredCertificate> {
    let mut all = list_control_plane_certificates(names);
    all.extend(list_client_certificates());
    for node in &names.nodes {
        all.extend(list_kubelet_certificates(node));
    }
    all
}

/// Returns the certificates of the API server and the store, and between them.
fn list_control_plane_certificates(names: &Names) -> Vec<DesiredCertificate> {
    [
        (Signer::Cluster, "apiserver", api_server_subject(names)),
        // Not in `system:masters`: a node's object controls where these connections go, so the
        // certificate must give access to kubelets only.
        (
            Signer::Cluster,
            "apiserver-kubelet-client",
            Subject::client(KUBELET_CLIENT, None),
        ),
        (
            Signer::FrontProxy,
            "front-proxy-client",
            Subject::client("front-proxy-client", None),
        ),
        (
            Signer::Store,
            "apiserver-etcd-client",
            Subject::client("kube-apiserver-etcd-client", None),
        ),
        (
            Signer::Store,
            // kubeadm gives it both usages, too: etcd is a client of itself with its serving
            // certificate.
            "etcd/server",
            store_subject(names, Usage::Both),
        ),
        (
            Signer::Store,
            "etcd/peer",
            store_subject(names, Usage::Both),
        ),
    ]
    .map(|(signer, name, subject)| (signer, name.to_owned(), subject))
    .into()
}

/// Returns the certificates of the API server's clients.
fn list_client_certificates() -> Vec<DesiredCertificate> {
    [
        (
            // This group bypasses RBAC, as in kubeadm's `super-admin.conf`: it works also if the
            // bindings are damaged.
            "admin",
            Subject::client("kubernetes-admin", Some("system:masters")),
        ),
        (
            // Upstream's RBAC bootstrap policy binds its roles to these names of users.
            "controller-manager",
            Subject::client("system:kube-controller-manager", None),
        ),
        ("scheduler", Subject::client("system:kube-scheduler", None)),
        ("proxy", Subject::client("system:kube-proxy", None)),
        ("dns", Subject::client("system:cluster-dns", None)),
    ]
    .map(|(name, subject)| (Signer::Cluster, name.to_owned(), subject))
    .into()
}

/// Returns the client certificate and the serving certificate of a kubelet.
fn list_kubelet_certificates(node: &NodeName) -> [DesiredCertificate; 2] {
    // The Node authorizer recognizes kubelets by this user and the group below.
    let user = format!("system:node:{}", node.name);
    let client = Subject::client(&user, Some("system:nodes"));
    let mut addresses = node.addresses.clone();
    addresses.push(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let serving = Subject::server(
        &user,
        vec![node.name.clone(), "localhost".to_owned()],
        addresses,
    );
    [
        (Signer::Cluster, format!("kubelet-{}", node.name), client),
        (
            Signer::Cluster,
            format!("kubelet-serving-{}", node.name),
            serving,
        ),
    ]
}

fn loopback_addresses() -> [IpAddr; 2] {
    [
        IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(Ipv6Addr::LOCALHOST),
    ]
}

fn api_server_subject(names: &Names) -> Subject {
    let mut dns = vec![
        "localhost".to_owned(),
        // The names by which pods reach the Service `kubernetes`, depending on their search
        // domains.
        "kubernetes".to_owned(),
        "kubernetes.default".to_owned(),
        "kubernetes.default.svc".to_owned(),
        format!("kubernetes.default.svc.{}", names.domain),
    ];
    dns.extend(names.extra_dns.iter().cloned());
    // Pods reach the API server at the address of the Service `kubernetes`.
    let mut addresses = vec![names.service_address];
    addresses.extend(loopback_addresses());
    addresses.extend(names.addresses.iter().copied());
    addresses.extend(names.server_addresses.iter().copied());
    Subject::server("kube-apiserver", dns, addresses)
}

fn store_subject(names: &Names, usage: Usage) -> Subject {
    let mut addresses = loopback_addresses().to_vec();
    addresses.extend(names.addresses.iter().copied());
    Subject {
        usage,
        ..Subject::server("kvstore", vec!["localhost".to_owned()], addresses)
    }
}

/// Creates `sa.key` and `sa.pub`, the key pair of ServiceAccount tokens; returns true if they were
/// written.
pub fn ensure_service_account_key(folder: &Path) -> Result<bool, Error> {
    let private = folder.join("sa.key");
    let public = folder.join("sa.pub");
    let bad = |cause| Error::Certificate {
        path: private.clone(),
        cause,
    };
    if let Some(pem) = read_optional(&private)? {
        // The private key is never replaced: all tokens that it signed would become invalid.
        if read_optional(&public)?.is_none() {
            let pair = KeyPair::from_pem(&pem).map_err(bad)?;
            write_public(&public, pair.public_key_pem().as_bytes())?;
        }
        return Ok(false);
    }
    let pair = KeyPair::generate().map_err(bad)?;
    write_private(&private, pair.serialize_pem().as_bytes())?;
    write_public(&public, pair.public_key_pem().as_bytes())?;
    Ok(true)
}

impl Pki {
    fn signer(&self, signer: Signer) -> &Authority {
        match signer {
            Signer::Cluster => &self.cluster,
            Signer::FrontProxy => &self.front_proxy,
            Signer::Store => &self.store,
        }
    }

    /// Returns the path of the certificate `name`.
    #[must_use]
    pub fn crt(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.crt"))
    }

    /// Returns the path of the key `name`.
    #[must_use]
    pub fn key(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.key"))
    }

    /// Returns the CA of clients, API server and kubelets.
    #[must_use]
    pub fn cluster(&self) -> &Authority {
        &self.cluster
    }

    /// Returns the CA of the store and its clients.
    #[must_use]
    pub fn store(&self) -> &Authority {
        &self.store
    }

    /// Returns the CA of proxies in front of extension API servers.
    #[must_use]
    pub fn front_proxy(&self) -> &Authority {
        &self.front_proxy
    }

    /// Writes a kubeconfig with the certificate `name`; returns true if the file changed.
    pub fn write_kubeconfig(
        &self,
        path: &Path,
        name: &str,
        user: &str,
        server: &str,
    ) -> Result<bool, Error> {
        self.write_group_kubeconfig(path, name, user, server, None)
    }

    /// Writes a kubeconfig as [`Self::write_kubeconfig`], which a group can read: that of a process
    /// that drops root.
    pub fn write_group_kubeconfig(
        &self,
        path: &Path,
        name: &str,
        user: &str,
        server: &str,
        group: Option<u32>,
    ) -> Result<bool, Error> {
        Kubeconfig {
            cluster: CLUSTER,
            user,
            server,
            authority: self.cluster.certificate(),
            certificate: &self.crt(name),
            key: &self.key(name),
            further: &[],
        }
        .write_for_group(path, group)
    }
}

#[cfg(test)]
#[path = "set_tests.rs"]
mod tests;
