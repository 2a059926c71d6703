#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use super::*;
use rcgen::{CertificateParams, DnType, KeyPair, SanType};

/// CN=first, CN=second, O=group-a, O=group-b.
const SEVERAL: &str = "-----BEGIN CERTIFICATE REQUEST-----
MIIBATCBpwIBADBFMQ4wDAYDVQQDDAVmaXJzdDEPMA0GA1UEAwwGc2Vjb25kMRAw
DgYDVQQKDAdncm91cC1hMRAwDgYDVQQKDAdncm91cC1iMFkwEwYHKoZIzj0CAQYI
KoZIzj0DAQcDQgAEQJKImVzyvscbys2/oL0aHx5yQsiV1SGDW2JT+bR7aPN1nl+F
4sb2gmFHmi6h7mKPFb449HOyeG2uZ+hQfrPgq6AAMAoGCCqGSM49BAMCA0kAMEYC
IQDWVHcg2o86m9+EGi1k0VqQwl/S1bl63KOvNjGhke67GAIhAItUHzUfOzP0x2tO
6kdPNdZX7wn1v5bxVtZ+eF50ew1I
-----END CERTIFICATE REQUEST-----
";

/// CN=user, then one relative distinguished name of O=group-a and O=system:masters.
const MULTI_VALUED: &str = "-----BEGIN CERTIFICATE REQUEST-----
MIHzMIGaAgEAMDgxDTALBgNVBAMMBHVzZXIxJzAOBgNVBAoMB2dyb3VwLWEwFQYD
VQQKDA5zeXN0ZW06bWFzdGVyczBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABECS
iJlc8r7HG8rNv6C9Gh8eckLIldUhg1tiU/m0e2jzdZ5fheLG9oJhR5ouoe5ijxW+
OPRzsnhtrmfoUH6z4KugADAKBggqhkjOPQQDAgNIADBFAiEA5R5X3GT1rTFNHCuT
sJVPQ4533sjRlHmxP6+kSPVkXLgCIFVrWKN6lqrYnZZoIjSEoHv5/wIT37BfMLoW
HYEj4D05
-----END CERTIFICATE REQUEST-----
";

fn request(name: &str, organization: &str, names: &[SanType]) -> String {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params
        .distinguished_name
        .push(DnType::OrganizationName, organization);
    params.subject_alt_names = names.to_vec();
    params
        .serialize_request(&KeyPair::generate().unwrap())
        .unwrap()
        .pem()
        .unwrap()
}

#[test]
fn all_organizations_and_the_last_common_name_are_read() {
    let several = CertificateRequest::from_pem(SEVERAL.as_bytes()).unwrap();
    assert_eq!(
        (
            several.common_name.as_str(),
            several.organizations.as_slice()
        ),
        ("second", &["group-a".into(), "group-b".into()][..])
    );
    let joined = CertificateRequest::from_pem(MULTI_VALUED.as_bytes()).unwrap();
    assert_eq!(joined.organizations, ["group-a", "system:masters"]);
    assert_eq!(joined.subject[0], ("2.5.4.3".to_owned(), "user".to_owned()));
    assert!(several.verify_signature().is_ok() && joined.verify_signature().is_ok());
}

#[test]
fn anything_but_one_block_is_refused() {
    const END: &str = "-----END CERTIFICATE REQUEST-----";
    let (evil, good) = (
        request("evil", "system:masters", &[]),
        request("good", "friends", &[]),
    );
    let renamed = |to: &str| good.replace("CERTIFICATE REQUEST", to);
    let mixed = good.replacen("CERTIFICATE REQUEST", "CERTIFICATE", 1);
    let empty = format!("-----BEGIN CERTIFICATE REQUEST-----\n{END}\n");
    use RequestError::{BlockType, Malformed, SeveralBlocks};
    for (name, text, expect) in [
        (
            "hidden block first",
            format!(" {evil}{good}"),
            SeveralBlocks,
        ),
        ("two blocks", format!("{good}{evil}"), SeveralBlocks),
        ("hidden block last", format!("{good} {evil}"), SeveralBlocks),
        ("other type", renamed("NEW CERTIFICATE REQUEST"), BlockType),
        (
            "other type first",
            format!("{}{good}", renamed("X")),
            BlockType,
        ),
        ("mixed types", mixed, BlockType),
        ("byte-order mark", format!("\u{feff}{good}"), BlockType),
        ("no end", good.replace(END, ""), BlockType),
        ("empty block", empty, Malformed),
        ("nothing", String::new(), BlockType),
    ] {
        let found = CertificateRequest::from_pem(text.as_bytes());
        assert_eq!(found, Err(expect), "{name}");
    }
}

#[test]
fn headers_and_text_around_the_block_are_ignored() {
    let good = request("good", "friends", &[]);
    for text in [
        good.clone(),
        good.trim_end().to_owned(),
        format!("{good}\n \n"),
        good.replace('\n', "\r\n"),
        good.replacen("-----\n", "-----\nProc-Type: 4,ENCRYPTED\n\n", 1),
        format!("Certificate Request:\n    Data: none\n{good}"),
        format!("{good}more"),
    ] {
        let found = CertificateRequest::from_pem(text.as_bytes());
        assert_eq!(found.unwrap().common_name, "good", "{text:?}");
    }
}

#[test]
fn bytes_behind_the_request_are_refused() {
    let mut der = CertificateRequest::from_pem(SEVERAL.as_bytes())
        .unwrap()
        .der()
        .to_vec();
    der.push(0);
    assert_eq!(
        CertificateRequest::from_der(der),
        Err(RequestError::TrailingData)
    );
}

#[test]
fn changed_request_fails_the_signature_check() {
    let mut der = CertificateRequest::from_pem(SEVERAL.as_bytes())
        .unwrap()
        .der()
        .to_vec();
    let at = der.windows(7).position(|w| w == b"group-a").unwrap();
    der[at + 6] = b'c';
    let changed = CertificateRequest::from_der(der).unwrap();
    assert_eq!(changed.organizations[0], "group-c");
    assert_eq!(changed.verify_signature(), Err(RequestError::Signature));
}

#[test]
fn kubelet_rules_look_at_subject_names_and_usages() {
    const CLIENT: &[&str] = &["digital signature", "client auth"];
    const SERVING: &[&str] = &["digital signature", "key encipherment", "server auth"];
    let dns = SanType::DnsName("n1".try_into().unwrap());
    let address = SanType::IpAddress([10, 0, 0, 1].into());
    let uri = SanType::URI("spiffe://n1".try_into().unwrap());
    let mail = SanType::Rfc822Name("a@example.com".try_into().unwrap());
    let read = |name, organization, names: &[SanType]| {
        CertificateRequest::from_pem(request(name, organization, names).as_bytes()).unwrap()
    };
    let node = |names: &[SanType]| read("system:node:n1", "system:nodes", names);

    assert_eq!(node(&[]).check_kubelet_client(CLIENT), Ok(()));
    assert_eq!(node(&[]).kubelet_name(), Some("system:node:n1"));
    assert!(node(&[]).check_kubelet_client(SERVING).is_err());
    assert!(node(&[]).check_kubelet_client(&["client auth"]).is_err());
    for name in [&dns, &address, &uri, &mail] {
        assert!(
            node(std::slice::from_ref(name))
                .check_kubelet_client(CLIENT)
                .is_err(),
            "{name:?}"
        );
    }
    assert_eq!(
        node(&[dns.clone(), address.clone()]).check_kubelet_serving(SERVING),
        Ok(())
    );
    assert!(node(&[]).check_kubelet_serving(SERVING).is_err());
    assert!(
        node(&[dns.clone(), uri])
            .check_kubelet_serving(SERVING)
            .is_err()
    );
    assert!(
        node(&[dns.clone(), mail])
            .check_kubelet_serving(SERVING)
            .is_err()
    );
    assert!(node(&[dns]).check_kubelet_serving(CLIENT).is_err());
    assert!(
        read("n1", "system:nodes", &[])
            .check_kubelet_client(CLIENT)
            .is_err()
    );
    assert!(
        read("system:node:n1", "system:masters", &[])
            .check_kubelet_client(CLIENT)
            .is_err()
    );
}

#[test]
fn client_certificates_are_for_clients_only() {
    assert_eq!(
        check_client_usages(&["client auth", "digital signature"]),
        Ok(())
    );
    assert!(check_client_usages(&["client auth", "server auth"]).is_err());
    assert!(check_client_usages(&["digital signature"]).is_err());
}
