//! ClusterTrustBundles: certificates of CAs that pods trust.

use crate::field::{Errors, Path};
use crate::kind_rules::{Rules, accept_subresource};
use crate::metadata::{NameRule, validate_own_names};
use crate::rules;
use crate::signer_name::validate_signer_name;
use api_meta::names;
use api_meta::pem::{PemBlock, read_blocks};
use api_meta::tree::{get, text};
use serde_json::Value;
use std::collections::BTreeMap;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

/// Rules of ClusterTrustBundles, whose name begins with that of the signer.
pub const TRUST_BUNDLE: Rules = Rules {
    name: NameRule::Own,
    create: |new, errors| {
        validate_bundle(new, errors);
        validate_anchors(new, errors);
    },
    update: validate_bundle_update,
    sub: accept_subresource,
};

/// Longest bundle, in bytes.
const LONGEST_BUNDLE: usize = 1024 * 1024;
/// The bundle is not shown, because the message would contain it for each error.
const OMITTED: &str = "<value omitted>";

fn validate_bundle(object: &Value, errors: &mut Errors) {
    let signer = text(get(object, "spec"), "signerName");
    validate_own_names(object, errors, |name, is_prefix| {
        find_name_problems(name, signer, is_prefix)
    });
    if !signer.is_empty() {
        let path = Path::ROOT.child("spec");
        validate_signer_name(signer, &path.child("signerName"), errors);
    }
}

fn find_name_problems(name: &str, signer: &str, is_prefix: bool) -> Vec<String> {
    if signer.is_empty() {
        if name.contains(':') {
            return vec![
                "ClusterTrustBundle without signer name must not have \":\" in its name".to_owned(),
            ];
        }
        return NameRule::Subdomain.problems(name, is_prefix);
    }
    let prefix = format!("{}:", signer.replace('/', ":"));
    match name.strip_prefix(&prefix) {
        Some(rest) if is_prefix => NameRule::Subdomain.problems(rest, true),
        Some(rest) => names::dns1123_subdomain(rest),
        None => vec![format!(
            "ClusterTrustBundle for signerName {signer} must be named with prefix {prefix}"
        )],
    }
}

fn validate_bundle_update(new: &Value, old: &Value, errors: &mut Errors) {
    validate_bundle(new, errors);
    let (spec, before) = (get(new, "spec"), get(old, "spec"));
    // An unchanged bundle may have been accepted by a release with another parser.
    if text(spec, "trustBundle") != text(before, "trustBundle") {
        validate_anchors(new, errors);
    }
    let path = Path::ROOT.child("spec");
    rules::validate_immutable(spec, before, "signerName", &path, errors);
}

fn validate_anchors(object: &Value, errors: &mut Errors) {
    let bundle = text(get(object, "spec"), "trustBundle");
    let path = Path::ROOT.child("spec");
    let path = path.child("trustBundle");
    if bundle.len() > LONGEST_BUNDLE {
        errors.too_long(&path, LONGEST_BUNDLE);
        return;
    }
    let before = errors.len();
    // In their order, for the message about duplicates.
    let mut anchors: BTreeMap<Vec<u8>, Vec<usize>> = BTreeMap::new();
    for (i, block) in read_blocks(bundle.as_bytes()).enumerate() {
        match parse_anchor(block, i) {
            Ok(anchor) => anchors.entry(anchor).or_default().push(i),
            Err(problem) => errors.invalid(&path, OMITTED, problem),
        }
    }
    // After a malformed block, these could only repeat the cause.
    if errors.len() > before {
        return;
    }
    if anchors.is_empty() {
        errors.invalid(&path, OMITTED, "at least one trust anchor must be provided");
    }
    let mut repeated: Vec<&Vec<usize>> = anchors.values().filter(|at| at.len() > 1).collect();
    repeated.sort();
    for indices in repeated {
        let indices: Vec<String> = indices.iter().map(usize::to_string).collect();
        let detail = format!("duplicate trust anchor (indices [{}])", indices.join(" "));
        errors.invalid(&path, OMITTED, detail);
    }
}

/// Parses a block, and returns its certificate in DER.
fn parse_anchor(block: PemBlock, at: usize) -> Result<Vec<u8>, String> {
    if block.label != "CERTIFICATE" {
        return Err(format!("entry {at} has bad block type: {}", block.label));
    }
    if block.has_headers {
        return Err(format!("entry {at} has PEM block headers"));
    }
    let unparsable = || format!("entry {at} does not parse as X.509");
    let is_ca = match X509Certificate::from_der(&block.contents) {
        Ok(([], certificate)) => certificate
            .basic_constraints()
            .map_err(|_| unparsable())?
            .is_some_and(|constraints| constraints.value.ca),
        _ => return Err(unparsable()),
    };
    if !is_ca {
        return Err(format!("entry {at} does not have the CA bit set"));
    }
    Ok(block.contents)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// A certificate of a CA.
    const ANCHOR: &str = "-----BEGIN CERTIFICATE-----
MIIBcDCCARegAwIBAgIUZAb31ELztw2Uil+0ATXfbl4oLHowCgYIKoZIzj0EAwIw
DTELMAkGA1UEAwwCY2EwIBcNMjYxMTI2MjAzMjAyWhgPMjEyNjExMDIyMDMyMDJa
MA0xCzAJBgNVBAMMAmNhMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEHjBlKsaf
Z8ZmotCZmxyrdb7fFHCTAbAEPT8RVKKFdH/bvBsv+7eoitPBScScRWMh4EXvplTk
RLaTzw/HSxvf66NTMFEwHQYDVR0OBBYEFFnQX9IvTuDh2X+YNKcFN+mJZlsWMB8G
A1UdIwQYMBaAFFnQX9IvTuDh2X+YNKcFN+mJZlsWMA8GA1UdEwEB/wQFMAMBAf8w
CgYIKoZIzj0EAwIDRwAwRAIgX+2+5yoL417dudCTyjd4+mli7gLG6kpTf+g0d6fJ
dYoCIGqmaT6kk2LYrUW+dSIeuRNg8sahgUrpwxiSwGxsnm9n
-----END CERTIFICATE-----
";
    /// A certificate that signs no others.
    const LEAF: &str = "-----BEGIN CERTIFICATE-----
MIIBcTCCARigAwIBAgIUD5iM+t+N9I7B70rQGUQIKbAVM8QwCgYIKoZIzj0EAwIw
DzENMAsGA1UEAwwEbGVhZjAgFw0yNjExMjYyMDMyMDJaGA8yMTI2MTEwMjIwMzIw
MlowDzENMAsGA1UEAwwEbGVhZjBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABOii
0xhKrW2IrmFmwfwPyQYVX3czIgtXgko/EHY06r+oHHVM/j+MrwWBjNqtLm/gZudE
nUbNXjhGPxXgja2T+bujUDBOMB0GA1UdDgQWBBT7i/0GIbzPaQ3xfKBnJSvR0OXk
IDAfBgNVHSMEGDAWgBT7i/0GIbzPaQ3xfKBnJSvR0OXkIDAMBgNVHRMBAf8EAjAA
MAoGCCqGSM49BAMCA0cAMEQCIAEKGv1UKsuzA29iu+WTDyIepTAMp8k4pxDmRQ1G
WgIaAiA+SfqmDkECVEBGEW0/wvX6CcJT4JxXbRsRLh1odaVYLw==
-----END CERTIFICATE-----
";

    fn problems(bundle: &str) -> Vec<String> {
        let mut errors = Errors::default();
        validate_anchors(&json!({"spec": {"trustBundle": bundle}}), &mut errors);
        errors.0.into_iter().map(|error| error.detail).collect()
    }

    #[test]
    fn bundle_has_certificates_of_cas_only() {
        let headers = ANCHOR.replacen("-----\nMII", "-----\nKey: value\n\nMII", 1);
        let key = ANCHOR.replace("CERTIFICATE", "PRIVATE KEY");
        let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        for (bundle, expect) in [
            (ANCHOR.to_owned(), vec![]),
            (format!("comment\n{ANCHOR}# more\n"), vec![]),
            (
                String::new(),
                vec!["at least one trust anchor must be provided"],
            ),
            (
                "garbage".into(),
                vec!["at least one trust anchor must be provided"],
            ),
            (LEAF.into(), vec!["entry 0 does not have the CA bit set"]),
            (
                format!("{ANCHOR}{broken}"),
                vec!["entry 1 does not parse as X.509"],
            ),
            (key, vec!["entry 0 has bad block type: PRIVATE KEY"]),
            (headers, vec!["entry 0 has PEM block headers"]),
            (
                format!("{ANCHOR}{ANCHOR}"),
                vec!["duplicate trust anchor (indices [0 1])"],
            ),
            (
                format!("{ANCHOR}{ANCHOR}{LEAF}"),
                vec!["entry 2 does not have the CA bit set"],
            ),
        ] {
            assert_eq!(problems(&bundle), expect, "{bundle}");
        }
        let long = "x".repeat(LONGEST_BUNDLE + 1);
        assert!(problems(&long)[0].contains("1048576"));
    }

    #[test]
    fn name_begins_with_the_signer() {
        for (name, signer, is_valid) in [
            ("a", "", true),
            ("a:b", "", false),
            ("example.com:web:a", "example.com/web", true),
            ("a", "example.com/web", false),
            ("example.com:web:", "example.com/web", false),
            ("example.com:web:A", "example.com/web", false),
        ] {
            assert_eq!(
                find_name_problems(name, signer, false).is_empty(),
                is_valid,
                "{name}"
            );
        }
        assert!(find_name_problems("example.com:web:a-", "example.com/web", true).is_empty());
    }

    #[test]
    fn unchanged_bundle_is_not_parsed_again() {
        let object = |signer: &str, bundle: &str| {
            let spec = json!({"signerName": signer, "trustBundle": bundle});
            json!({"metadata": {"name": "example.com:web:a"}, "spec": spec})
        };
        let old = object("example.com/web", "old");
        for (new, expect) in [
            (old.clone(), vec![]),
            (object("example.com/web", ANCHOR), vec![]),
            (object("example.com/web", "new"), vec!["spec.trustBundle"]),
            (
                object("example.com/other", "old"),
                vec!["metadata.name", "spec.signerName"],
            ),
        ] {
            let mut errors = Errors::default();
            validate_bundle_update(&new, &old, &mut errors);
            let fields: Vec<&str> = errors.0.iter().map(|error| error.field.as_str()).collect();
            assert_eq!(fields, expect, "{new}");
        }
    }
}
