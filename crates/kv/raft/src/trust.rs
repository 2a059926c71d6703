//! Proof that a caller is a member of the cluster.
//!
//! Raft does not tolerate malicious members. It is enough to distinguish members from other holders
//! of certificates of the same CA, such as clients. A member's certificate also serves its peer
//! port, so it is valid for the host of a peer URL. A client's certificate is valid for none.

use crate::peer::PeerAddress;
use base_serve::Peer;
use http::{Extensions, Uri};
use rustls::client::verify_server_name;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::ParsedCertificate;
use tonic::service::Interceptor;
use tonic::{Request, Status};
use x509_parser::extensions::GeneralName;

/// Proof required from a caller before its messages are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerTrust {
    /// A certificate that was verified in the TLS handshake and is valid for a host.
    Certificate,
    /// No proof: every caller is accepted. For simulations, and for operators who accept the risk.
    Unverified,
}

/// Status message for a caller without proof.
pub(crate) const NO_PROOF: &str =
    "only members of the cluster are answered: the certificate is not valid for a peer URL";

/// Rejects callers that can't be members before their messages are read.
#[derive(Clone, Copy)]
pub struct PeerInterceptor(pub(crate) PeerTrust);

impl Interceptor for PeerInterceptor {
    fn call(&mut self, request: Request<()>) -> Result<Request<()>, Status> {
        if self.0.holds_for_host(request.extensions()) {
            Ok(request)
        } else {
            Err(Status::permission_denied(NO_PROOF))
        }
    }
}

impl PeerTrust {
    /// Returns whether a caller may be a member that is unknown here or has moved: its certificate
    /// is valid for some host.
    pub(crate) fn holds_for_host(self, connection: &Extensions) -> bool {
        self == PeerTrust::Unverified || peer_certificate(connection).is_some_and(names_host)
    }

    /// Returns whether a caller is the member with these peer URLs: its certificate is valid for
    /// one of their hosts.
    pub(crate) fn holds_for_member(self, connection: &Extensions, urls: &PeerAddress) -> bool {
        self == PeerTrust::Unverified
            || peer_certificate(connection)
                .is_some_and(|shown| urls.iter().any(|url| is_valid_for(shown, url)))
    }

    /// Returns whether a member at this URL may be called.
    pub(crate) fn admits_url(self, url: &str) -> bool {
        self == PeerTrust::Unverified || url.starts_with("https://")
    }
}

fn peer_certificate(connection: &Extensions) -> Option<&[u8]> {
    Some(connection.get::<Peer>()?.certificates.first()?.as_slice())
}

fn names_host(certificate: &[u8]) -> bool {
    let Ok((_, certificate)) = x509_parser::parse_x509_certificate(certificate) else {
        return false;
    };
    let Ok(Some(names)) = certificate.subject_alternative_name() else {
        return false;
    };
    names
        .value
        .general_names
        .iter()
        .any(|name| matches!(name, GeneralName::DNSName(_) | GeneralName::IPAddress(_)))
}

fn is_valid_for(certificate: &[u8], url: &str) -> bool {
    let Ok(uri) = url.parse::<Uri>() else {
        return false;
    };
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    let Ok(name) = ServerName::try_from(host) else {
        return false;
    };
    let certificate = CertificateDer::from(certificate);
    // The TLS handshake has verified chain and expiry. Here only the name matters.
    ParsedCertificate::try_from(&certificate)
        .is_ok_and(|parsed| verify_server_name(&parsed, &name).is_ok())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use rcgen::{CertificateParams, KeyPair};
    use std::net::{Ipv4Addr, SocketAddr};

    fn connection(hosts: Option<&[&str]>) -> Extensions {
        let certificate = hosts.map(|hosts| {
            let hosts: Vec<String> = hosts.iter().map(|&host| host.to_owned()).collect();
            let params = CertificateParams::new(hosts).unwrap();
            params
                .self_signed(&KeyPair::generate().unwrap())
                .unwrap()
                .der()
                .to_vec()
        });
        let mut extensions = Extensions::new();
        let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        extensions.insert(Peer {
            addr,
            certificates: certificate.into_iter().collect(),
            server_name: None,
        });
        extensions
    }

    #[test]
    fn certificate_proves_membership_only_for_a_host_of_the_peer_urls() {
        let urls = [
            "https://10.0.0.1:2380".to_owned(),
            "https://[::1]:2380".to_owned(),
            "https://m1.etcd.svc:2380".to_owned(),
        ];
        let (urls, trust) = (urls.to_vec(), PeerTrust::Certificate);
        for (hosts, host, member) in [
            (None, false, false),
            (Some(&[][..]), false, false),
            (Some(&["m2.etcd.svc"]), true, false),
            (Some(&["10.0.0.2", "*.other"]), true, false),
            (Some(&["m1.etcd.svc"]), true, true),
            (Some(&["*.etcd.svc"]), true, true),
            (Some(&["10.0.0.1"]), true, true),
            (Some(&["::1"]), true, true),
        ] {
            let connection = connection(hosts);
            assert_eq!(trust.holds_for_host(&connection), host, "{hosts:?}");
            assert_eq!(
                trust.holds_for_member(&connection, &urls),
                member,
                "{hosts:?}"
            );
            assert!(
                PeerTrust::Unverified.holds_for_member(&connection, &urls),
                "{hosts:?}"
            );
        }
        assert!(!trust.holds_for_host(&Extensions::new()));
    }

    #[test]
    fn only_encrypted_urls_are_admitted_unless_proof_is_waived() {
        for (url, verified, unverified) in [
            ("https://m1:2380", true, true),
            ("http://m1:2380", false, true),
            ("HTTP://m1:2380", false, true),
        ] {
            assert_eq!(PeerTrust::Certificate.admits_url(url), verified, "{url}");
            assert_eq!(PeerTrust::Unverified.admits_url(url), unverified, "{url}");
        }
    }
}
