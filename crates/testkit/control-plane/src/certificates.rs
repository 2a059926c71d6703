//! Client certificates for users of a test.

use operator_pki::{Authority, Kubeconfig, Names, NodeName, Pki, Renewal, Subject};
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

/// The certificates of one test's cluster.
pub(crate) struct Certificates {
    folder: PathBuf,
    names: Names,
    pub(crate) pki: Pki,
}

impl Certificates {
    /// Writes the cluster's certificates, with one kubelet identity for each name of `nodes`.
    pub(crate) fn create(folder: &Path, nodes: &[String]) -> anyhow::Result<Self> {
        let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let node = |name: &String| NodeName {
            name: name.clone(),
            addresses: vec![loopback],
        };
        let names = Names {
            domain: "cluster.local".to_owned(),
            service_address: IpAddr::V4(Ipv4Addr::new(10, 96, 0, 1)),
            extra_dns: Vec::new(),
            server_addresses: Vec::new(),
            addresses: Vec::new(),
            nodes: nodes.iter().map(node).collect(),
        };
        let (pki, _) = operator_pki::ensure_pki(folder, &names)?;
        Ok(Self {
            folder: folder.to_owned(),
            names,
            pki,
        })
    }

    /// Writes the certificates that are due, such as those of a former CA. Returns their names.
    pub(crate) fn renew(&self) -> anyhow::Result<Vec<String>> {
        let (_, written) = operator_pki::write_pki(&self.folder, &self.names, Renewal::Due)?;
        Ok(written)
    }

    /// Returns certificate and key, in PEM, of a user in at most one group.
    pub(crate) fn client(
        &self,
        user: &str,
        group: Option<&str>,
    ) -> anyhow::Result<(Vec<u8>, Vec<u8>)> {
        let authority = Authority::ensure(&self.folder, "ca", "")?;
        let name = format!("client-{}", file_name(user, group));
        operator_pki::ensure_certificate(
            &authority,
            &self.folder,
            &name,
            &Subject::client(user, group),
        )?;
        let read = |path: PathBuf| std::fs::read(path);
        Ok((read(self.pki.crt(&name))?, read(self.pki.key(&name))?))
    }

    /// Writes a kubeconfig for the identity called `name` in the cluster's set.
    pub(crate) fn kubeconfig(&self, name: &str, server: &str) -> anyhow::Result<PathBuf> {
        let path = self.folder.join(format!("{name}.kubeconfig"));
        let (certificate, key) = (self.pki.crt(name), self.pki.key(name));
        let authority = std::fs::read_to_string(self.pki.crt("ca"))?;
        let file = Kubeconfig {
            cluster: "test",
            user: name,
            server,
            authority: &authority,
            certificate: &certificate,
            key: &key,
            further: &[],
        };
        file.write(&path)?;
        Ok(path)
    }
}

fn file_name(user: &str, group: Option<&str>) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    format!("{user}-{}", group.unwrap_or_default())
        .chars()
        .map(plain)
        .collect()
}
