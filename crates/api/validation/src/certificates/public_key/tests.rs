#![allow(clippy::unwrap_used)]
use super::*;
use base64::Engine;

/// Lines of a name and base64, made with OpenSSL: keys, certificate requests and signatures of the
/// text `uid-1`.
const VECTORS: &str = include_str!("vectors.txt");

/// Returns the bytes with a name, such as `rsa3072.key`.
pub(crate) fn vector(name: &str) -> Vec<u8> {
    let mut lines = VECTORS.lines().filter_map(|line| line.split_once(' '));
    let (_, text) = lines.find(|(known, _)| *known == name).unwrap();
    base64::engine::general_purpose::STANDARD
        .decode(text)
        .unwrap()
}

#[test]
fn proofs_are_verified_for_each_type_of_key() {
    for (key, signature, verifies) in [
        ("rsa3072", "rsa3072.max", true),
        ("rsa3072", "rsa3072.s32", true),
        ("rsa3072", "rsa3072.s0", true),
        ("rsa3072", "rsa3072.pkcs", false),
        ("ecP-256", "ecP-256.sig", true),
        ("ecP-256", "ecP-384.sig", false),
        ("ecP-384", "ecP-384.sig", true),
        ("ed", "ed.sig", true),
        ("ed", "rsa3072.max", false),
    ] {
        let key = PodKey::parse(&vector(&format!("{key}.key"))).unwrap();
        let signature = vector(signature);
        assert_eq!(key.verifies(b"uid-1", &signature), verifies, "{key:?}");
        assert!(!key.verifies(b"uid-2", &signature), "{key:?}");
        let mut changed = signature.clone();
        *changed.last_mut().unwrap() ^= 1;
        assert!(!key.verifies(b"uid-1", &changed), "{key:?}");
        assert!(!key.verifies(b"uid-1", &[]), "{key:?}");
        assert!(
            !key.verifies(b"uid-1", &vec![0; signature.len()]),
            "{key:?}"
        );
        assert!(
            !key.verifies(b"uid-1", &vec![0xff; signature.len()]),
            "{key:?}"
        );
    }
}

#[test]
fn other_keys_are_not_accepted() {
    for (name, expect) in [
        ("rsa2048", KeyProblem::Modulus(2048)),
        ("ecP-521", KeyProblem::Curve("P-521")),
        ("eck1", KeyProblem::Curve("unknown")),
    ] {
        let der = vector(&format!("{name}.key"));
        assert_eq!(PodKey::parse(&der), Err(expect), "{name}");
    }
    let der = vector("ed.key");
    for malformed in [&[][..], &der[..20], &[&der[..], &[0]].concat()] {
        assert_eq!(PodKey::parse(malformed), Err(KeyProblem::Malformed));
    }
}

#[test]
fn rsa_keys_that_are_none_are_malformed() {
    let modulus = [&[0, 0xff][..], &[0xff; 383]].concat();
    let parse = |modulus: &[u8], exponent: &[u8]| parse_rsa(&RSAPublicKey { modulus, exponent });
    assert!(parse(&modulus, &[1, 0, 1]).is_ok());
    let even = [&modulus[..384], &[2]].concat();
    for (modulus, exponent) in [
        (&modulus[..], &[1, 0, 0][..]),
        (&modulus, &[1]),
        (&modulus, &[0x80]),
        (&modulus, &[]),
        (&modulus, &[0, 0x80, 0, 0, 1]),
        (&modulus[1..], &[1, 0, 1]),
        (&[], &[1, 0, 1]),
        (&even, &[1, 0, 1]),
    ] {
        assert_eq!(
            parse(modulus, exponent),
            Err(KeyProblem::Malformed),
            "{exponent:?}"
        );
    }
}
