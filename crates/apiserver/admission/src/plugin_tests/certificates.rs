use super::*;
use crate::certificates::{
    CertificateApproval, CertificateSigning, PodCertificateSigning, Requester, SubjectRestriction,
    TrustBundleAttest,
};
use crate::node_restriction::NodeRestriction;
use base64::Engine;
use rcgen::{CertificateParams, DnType, KeyPair};

const PATH: &str = "certificates.k8s.io:certificatesigningrequests";

fn with_grants(grants: &[(&'static str, &'static str)]) -> Context {
    context_with(&[], grants, Arc::new(FakeQuotas::default()))
}

/// Builds a signing request for a subject.
fn signing_request(signer: &str, name: &str, organization: &str) -> Value {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params
        .distinguished_name
        .push(DnType::OrganizationName, organization);
    let pem = params
        .serialize_request(&KeyPair::generate().unwrap())
        .unwrap()
        .pem()
        .unwrap();
    json!({"spec": {"signerName": signer, "request": base64::engine::general_purpose::STANDARD.encode(pem)}})
}

fn csr_forbidden(why: &str) -> Result<(), String> {
    forbidden("certificatesigningrequests.certificates.k8s.io", why)
}

#[test]
fn requester_replaces_what_the_client_claims_to_be() {
    let mut write = create(
        PATH,
        json!({"spec": {"username": "admin", "uid": "0", "groups": ["system:masters"], "extra": {"a": ["b"]}}}),
    );
    write.user.groups = vec!["dev".into()];
    let admitted = admit(&Requester, &write).unwrap();
    assert_eq!(
        admitted["spec"],
        json!({"username": "jane", "groups": ["dev"]})
    );
}

#[test]
fn approval_needs_the_signer_or_its_domain() {
    let object = json!({"spec": {"signerName": "example.com/web"}});
    let write = update(
        "certificates.k8s.io:certificatesigningrequests/approval",
        object.clone(),
        object,
    );
    let denied =
        csr_forbidden("user not permitted to approve requests with signerName \"example.com/web\"");
    for (grants, expect) in [
        (vec![("approve", "example.com/web")], Ok(())),
        (vec![("approve", "example.com/*")], Ok(())),
        (vec![("approve", "example.com/other")], denied.clone()),
        (vec![("sign", "example.com/web")], denied),
    ] {
        assert_eq!(
            validate(&CertificateApproval(with_grants(&grants)), &write),
            expect,
            "{grants:?}"
        );
    }
}

#[test]
fn signing_is_checked_if_certificate_or_conditions_change() {
    let object =
        |status: Value| json!({"spec": {"signerName": "example.com/web"}, "status": status});
    let write = |status: Value| {
        update(
            "certificates.k8s.io:certificatesigningrequests/status",
            object(json!({})),
            object(status),
        )
    };
    let denied =
        csr_forbidden("user not permitted to sign requests with signerName \"example.com/web\"");
    let plugin = CertificateSigning(with_grants(&[]));
    assert_eq!(validate(&plugin, &write(json!({}))), Ok(()));
    assert_eq!(
        validate(&plugin, &write(json!({"certificate": "x"}))),
        denied
    );
    assert_eq!(
        validate(&plugin, &write(json!({"conditions": [{"type": "Failed"}]}))),
        denied
    );
    let signer = CertificateSigning(with_grants(&[("sign", "example.com/web")]));
    assert_eq!(
        validate(&signer, &write(json!({"certificate": "x"}))),
        Ok(())
    );
}

#[test]
fn bundle_of_a_signer_needs_the_right_to_attest() {
    let path = "certificates.k8s.io:clustertrustbundles";
    let bundle = |signer: &str, bundle: &str| json!({"metadata": {"name": "x"}, "spec": {"signerName": signer, "trustBundle": bundle}});
    let (old, new) = (
        bundle("example.com/web", "a"),
        bundle("example.com/web", "b"),
    );
    let mut owned = old.clone();
    owned["metadata"]["ownerReferences"] = json!([{"name": "o"}]);
    let denied = forbidden(
        "clustertrustbundles.certificates.k8s.io",
        "user not permitted to attest for signerName \"example.com/web\"",
    );
    for (grants, write, expect) in [
        (vec![], create(path, new.clone()), denied.clone()),
        (
            vec![("attest", "example.com/web")],
            create(path, new.clone()),
            Ok(()),
        ),
        (
            vec![("attest", "example.com/*")],
            create(path, new.clone()),
            Ok(()),
        ),
        (
            vec![("sign", "example.com/web")],
            create(path, new.clone()),
            denied.clone(),
        ),
        (vec![], create(path, bundle("", "a")), Ok(())),
        (vec![], update(path, old.clone(), new), denied),
        (vec![], update(path, old.clone(), owned), Ok(())),
    ] {
        let plugin = TrustBundleAttest(with_grants(&grants));
        assert_eq!(
            validate(&plugin, &write),
            expect,
            "{grants:?} {:?}",
            write.object
        );
    }
}

#[test]
fn status_of_a_pod_certificate_needs_the_right_to_sign() {
    let path = "certificates.k8s.io:podcertificaterequests/status";
    let request = |signer: &str, status: Value| json!({"metadata": {"name": "x"}, "spec": {"signerName": signer}, "status": status});
    let (old, denied) = (json!({}), json!({"conditions": [{"type": "Denied"}]}));
    let (mine, other) = ("example.com/mine", "example.com/other");
    for (grants, before, after, is_allowed) in [
        (
            vec![],
            request(mine, old.clone()),
            request(mine, denied.clone()),
            false,
        ),
        (
            vec![("sign", mine)],
            request(mine, old.clone()),
            request(mine, denied.clone()),
            true,
        ),
        (
            vec![("sign", "example.com/*")],
            request(mine, old.clone()),
            request(mine, denied.clone()),
            true,
        ),
        (
            vec![("approve", mine)],
            request(mine, old.clone()),
            request(mine, denied.clone()),
            false,
        ),
        // The stored signer counts.
        (
            vec![("sign", mine)],
            request(other, old.clone()),
            request(mine, denied.clone()),
            false,
        ),
        (
            vec![],
            request(mine, denied.clone()),
            request(mine, denied),
            true,
        ),
    ] {
        let plugin = PodCertificateSigning(with_grants(&grants));
        let write = update(path, before, after);
        let result = validate(&plugin, &write);
        assert_eq!(result.is_ok(), is_allowed, "{grants:?} {result:?}");
        if let Err(text) = result {
            assert!(
                text.contains(
                    "spec.signerName: Forbidden: User \"jane\" is not permitted to \"sign\""
                ),
                "{text}"
            );
        }
    }
    // The object itself is none of the signer's.
    let plugin = PodCertificateSigning(with_grants(&[]));
    let write = create(
        "certificates.k8s.io:podcertificaterequests",
        request(mine, old),
    );
    assert_eq!(validate(&plugin, &write), Ok(()));
}

#[test]
fn client_certificate_for_system_masters_is_rejected() {
    let client = "kubernetes.io/kube-apiserver-client";
    let check = |signer: &str, organization: &str| {
        validate(
            &SubjectRestriction,
            &create(PATH, signing_request(signer, "jane", organization)),
        )
    };
    assert_eq!(check(client, "dev"), Ok(()));
    assert_eq!(check("example.com/web", "system:masters"), Ok(()));
    assert_eq!(
        check(client, "system:masters"),
        csr_forbidden(
            "use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed"
        )
    );
}

#[test]
fn unreadable_client_certificate_request_is_invalid() {
    let object = json!({"spec": {"signerName": "kubernetes.io/kube-apiserver-client", "request": "bm90IFBFTQ=="}});
    let error = validate(&SubjectRestriction, &create(PATH, object)).unwrap_err();
    assert!(error.contains("spec.request: Invalid value"), "{error}");
}

#[test]
fn node_requests_certificates_for_itself_only() {
    let plugin = NodeRestriction(context(&[]));
    let check = |signer: &str, name: &str| {
        let mut write = create(PATH, signing_request(signer, name, "system:nodes"));
        write.user = User {
            name: "system:node:one".into(),
            groups: vec!["system:nodes".into()],
            ..User::default()
        };
        validate(&plugin, &write)
    };
    for signer in [
        "kubernetes.io/kubelet-serving",
        "kubernetes.io/kube-apiserver-client-kubelet",
    ] {
        assert_eq!(check(signer, "system:node:one"), Ok(()));
        assert_eq!(
            check(signer, "system:node:two"),
            csr_forbidden("can only create a node CSR with CN=system:node:one")
        );
    }
    assert_eq!(check("example.com/web", "anything"), Ok(()));
}
