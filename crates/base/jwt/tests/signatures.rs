//! Signatures against `openssl` and the examples of the RFCs.

#![allow(clippy::unwrap_used)]

use base_jwt::{check_signing_key, install_provider};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::crypto::{sign, verify};
use jsonwebtoken::jwk::{Jwk, ThumbprintHash};
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey};
use std::fs::{read, write};
use std::path::Path;
use std::process::Command;

use Algorithm::*;

const MESSAGE: &[u8] = b"header.claims";

/// Runs openssl in the folder. Returns its error output if it fails.
fn try_openssl(folder: &Path, words: &str) -> Result<(), String> {
    let done = Command::new("openssl")
        .args(words.split(' '))
        .current_dir(folder)
        .output()
        .unwrap();
    let error = format!("{words}: {}", String::from_utf8_lossy(&done.stderr));
    done.status.success().then_some(()).ok_or(error)
}

fn openssl(folder: &Path, words: &str) {
    try_openssl(folder, words).unwrap();
}

/// Makes a folder with `message`, `key`, `pub`.
fn make_pair(options: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path().join("message"), MESSAGE).unwrap();
    openssl(folder.path(), &format!("genpkey {options} -out key"));
    openssl(folder.path(), "pkey -in key -pubout -out pub");
    folder
}

fn options(algorithm: Algorithm) -> &'static str {
    match algorithm {
        ES256 => "-algorithm EC -pkeyopt ec_paramgen_curve:P-256",
        ES384 => "-algorithm EC -pkeyopt ec_paramgen_curve:P-384",
        EdDSA => "-algorithm ed25519",
        _ => "-algorithm RSA -pkeyopt rsa_keygen_bits:2048",
    }
}

fn private_key(algorithm: Algorithm, pem: &[u8]) -> EncodingKey {
    match algorithm {
        ES256 | ES384 => EncodingKey::from_ec_pem(pem),
        EdDSA => EncodingKey::from_ed_pem(pem),
        _ => EncodingKey::from_rsa_pem(pem),
    }
    .unwrap()
}

fn public_key(algorithm: Algorithm, pem: &[u8]) -> DecodingKey {
    match algorithm {
        ES256 | ES384 => DecodingKey::from_ec_pem(pem),
        EdDSA => DecodingKey::from_ed_pem(pem),
        _ => DecodingKey::from_rsa_pem(pem),
    }
    .unwrap()
}

/// Returns the options of openssl for the algorithm, with which it signs or verifies `message`.
fn method(algorithm: Algorithm) -> String {
    let hash = match algorithm {
        RS256 | PS256 | ES256 => "-sha256",
        RS384 | PS384 | ES384 => "-sha384",
        RS512 | PS512 => "-sha512",
        _ => return "pkeyutl -rawin -in message".into(),
    };
    match algorithm {
        PS256 | PS384 | PS512 => {
            format!("dgst {hash} -sigopt rsa_padding_mode:pss -sigopt rsa_pss_saltlen:digest")
        }
        _ => format!("dgst {hash}"),
    }
}

/// Returns an ECDSA signature of two numbers as DER, which openssl reads.
fn der_signature(fixed: &[u8]) -> Vec<u8> {
    let (r, s) = fixed.split_at(fixed.len() / 2);
    let integer = |digits: &[u8]| {
        let digits: Vec<u8> = digits.iter().copied().skip_while(|b| *b == 0).collect();
        let sign = usize::from(digits[0] >= 0x80);
        let length = u8::try_from(digits.len() + sign).unwrap();
        [vec![2, length], vec![0; sign], digits].concat()
    };
    let body = [integer(r), integer(s)].concat();
    [vec![0x30, u8::try_from(body.len()).unwrap()], body].concat()
}

fn decode(text: &str) -> Vec<u8> {
    URL_SAFE_NO_PAD.decode(text).unwrap()
}

const ASYMMETRIC: [Algorithm; 9] = [
    RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, EdDSA,
];

#[test]
fn signature_of_each_algorithm_is_verified_by_openssl_and_here() {
    install_provider();
    for algorithm in ASYMMETRIC {
        let pair = make_pair(options(algorithm));
        let (folder, file) = (pair.path(), |name| read(pair.path().join(name)).unwrap());
        let key = private_key(algorithm, &file("key"));
        check_signing_key(&key, algorithm).unwrap();
        let text = sign(MESSAGE, &key, algorithm).unwrap();
        let signature = decode(&text);
        let stored = match algorithm {
            ES256 | ES384 => der_signature(&signature),
            _ => signature.clone(),
        };
        write(folder.join("signature"), stored).unwrap();
        let method = method(algorithm);
        let command = match algorithm {
            EdDSA => format!("{method} -verify -pubin -inkey pub -sigfile signature"),
            _ => format!("{method} -verify pub -signature signature message"),
        };
        openssl(folder, &command);

        let public = public_key(algorithm, &file("pub"));
        let verified =
            |text: &str, message: &[u8]| verify(text, message, &public, algorithm).unwrap();
        assert!(verified(&text, MESSAGE), "{algorithm:?}");
        assert!(!verified(&text, b"header.claimS"), "{algorithm:?}");
        for index in [0, signature.len() / 2, signature.len() - 1] {
            let mut tampered = signature.clone();
            tampered[index] ^= 1;
            let text = URL_SAFE_NO_PAD.encode(tampered);
            assert!(!verified(&text, MESSAGE), "{algorithm:?}: byte {index}");
        }
        for length in [0, 1, signature.len() - 1] {
            let text = URL_SAFE_NO_PAD.encode(&signature[..length]);
            assert!(!verified(&text, MESSAGE), "{algorithm:?}: {length} bytes");
        }
        let longer = URL_SAFE_NO_PAD.encode([&signature[..], &[0]].concat());
        assert!(!verified(&longer, MESSAGE), "{algorithm:?}: a byte more");
        let zeros = URL_SAFE_NO_PAD.encode(vec![0; signature.len()]);
        assert!(!verified(&zeros, MESSAGE), "{algorithm:?}: zeros");

        // ECDSA is covered by the example of RFC 7515: openssl writes DER.
        if !matches!(algorithm, ES256 | ES384) {
            let command = match algorithm {
                EdDSA => format!("{method} -sign -inkey key -out theirs"),
                _ => format!("{method} -sign key -out theirs message"),
            };
            openssl(folder, &command);
            let theirs = URL_SAFE_NO_PAD.encode(file("theirs"));
            assert!(verified(&theirs, MESSAGE), "{algorithm:?} of openssl");
        }
    }
}

#[test]
fn examples_of_the_rfcs_are_verified() {
    install_provider();
    const CLAIMS: &str = "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ";
    let secret = decode(
        "AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow",
    );
    let cases = [
        (
            "RFC 7515 A.1",
            HS256,
            DecodingKey::from_secret(&secret),
            format!("eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9.{CLAIMS}"),
            "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk",
        ),
        (
            "RFC 7515 A.3",
            ES256,
            DecodingKey::from_ec_components(
                "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
                "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0",
            )
            .unwrap(),
            format!("eyJhbGciOiJFUzI1NiJ9.{CLAIMS}"),
            "DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q",
        ),
        (
            "RFC 8037 A.4",
            EdDSA,
            DecodingKey::from_ed_components("11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo").unwrap(),
            "eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc".to_owned(),
            "hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg",
        ),
    ];
    for (name, algorithm, key, message, signature) in cases {
        let verified = verify(signature, message.as_bytes(), &key, algorithm).unwrap();
        assert!(verified, "{name}");
        assert!(
            !verify(signature, MESSAGE, &key, algorithm).unwrap(),
            "{name}"
        );
    }
}

#[test]
fn secret_signs_as_hmac_of_openssl() {
    install_provider();
    let folder = tempfile::tempdir().unwrap();
    write(folder.path().join("message"), MESSAGE).unwrap();
    for (algorithm, hash) in [(HS256, "sha256"), (HS384, "sha384"), (HS512, "sha512")] {
        // A secret may be shorter and longer than a block of the hash.
        for secret in ["s".to_owned(), "secret".repeat(40)] {
            openssl(
                folder.path(),
                &format!("dgst -{hash} -hmac {secret} -binary -out hmac message"),
            );
            let expected = URL_SAFE_NO_PAD.encode(read(folder.path().join("hmac")).unwrap());
            let key = EncodingKey::from_secret(secret.as_bytes());
            let signature = sign(MESSAGE, &key, algorithm).unwrap();
            assert_eq!(signature, expected, "{algorithm:?}");
            let key = DecodingKey::from_secret(secret.as_bytes());
            assert!(verify(&signature, MESSAGE, &key, algorithm).unwrap());
            let bytes = decode(&signature);
            let shorter = URL_SAFE_NO_PAD.encode(&bytes[..bytes.len() - 1]);
            assert!(!verify(&shorter, MESSAGE, &key, algorithm).unwrap());
        }
    }
}

#[test]
fn key_of_another_kind_is_rejected() {
    install_provider();
    let every = [&[HS256, HS384, HS512][..], &ASYMMETRIC].concat();
    let private = [
        EncodingKey::from_secret(b"x"),
        EncodingKey::from_rsa_der(b"x"),
        EncodingKey::from_ec_der(b"x"),
        EncodingKey::from_ed_der(b"x"),
    ];
    let public = [
        DecodingKey::from_secret(b"x"),
        DecodingKey::from_rsa_raw_components(b"x", b"x"),
        DecodingKey::from_rsa_der(b"x"),
        DecodingKey::from_ec_der(b"x"),
        DecodingKey::from_ed_der(b"x"),
    ];
    for algorithm in every {
        for key in &private {
            let usable = key.family() == algorithm.family() && key.try_get_hmac_secret().is_ok();
            let signed = sign(MESSAGE, key, algorithm);
            assert_eq!(signed.is_ok(), usable, "{algorithm:?}: {key:?}");
        }
        for key in &public {
            let verified = verify("AAAA", MESSAGE, key, algorithm);
            let same_kind = key.family() == algorithm.family();
            // A damaged key of the right kind verifies nothing.
            assert_eq!(
                verified.ok(),
                same_kind.then_some(false),
                "{algorithm:?}: {key:?}"
            );
        }
    }
    // Another curve has keys of the same family.
    for (algorithm, other) in [(ES256, ES384), (ES384, ES256)] {
        let pair = make_pair(options(other));
        let key = private_key(algorithm, &read(pair.path().join("key")).unwrap());
        assert!(check_signing_key(&key, algorithm).is_err());
        assert!(Jwk::from_encoding_key(&key, algorithm).is_err());
        let text = sign(MESSAGE, &key, other).unwrap();
        let public = public_key(algorithm, &read(pair.path().join("pub")).unwrap());
        assert!(!verify(&text, MESSAGE, &public, algorithm).unwrap());
    }
}

#[test]
fn damaged_private_key_signs_nothing() {
    install_provider();
    for algorithm in [RS256, ES256, ES384, EdDSA] {
        let pair = make_pair(options(algorithm));
        let key = private_key(algorithm, &read(pair.path().join("key")).unwrap());
        let whole = key.inner();
        let damage = |der: &[u8]| match algorithm {
            ES256 | ES384 => EncodingKey::from_ec_der(der),
            EdDSA => EncodingKey::from_ed_der(der),
            _ => EncodingKey::from_rsa_der(der),
        };
        for length in 0..whole.len() {
            let key = damage(&whole[..length]);
            assert!(
                check_signing_key(&key, algorithm).is_err(),
                "{algorithm:?}: {length} bytes"
            );
            // Ed25519 has no JWK in jsonwebtoken, which would panic.
            if algorithm != EdDSA {
                let _ = Jwk::from_encoding_key(&key, algorithm);
            }
        }
    }
}

#[test]
fn rsa_key_of_a_size_that_cannot_sign_is_rejected_with_the_remedy() {
    // openssl needs up to a minute for a key of 8192 bits, the limit of the verification.
    for bits in [1024, 2560, 5120] {
        let pair = make_pair(&format!("-algorithm RSA -pkeyopt rsa_keygen_bits:{bits}"));
        let file = |name| read(pair.path().join(name)).unwrap();
        let key = private_key(RS256, &file("key"));
        let error = check_signing_key(&key, RS256).unwrap_err().to_string();
        for part in [
            &*format!("{bits} bits"),
            "2048, 3072 or 4096",
            "openssl genrsa",
        ] {
            assert!(error.contains(part), "{error}");
        }
        // The public part verifies what another program signs.
        for algorithm in [RS256, RS512] {
            openssl(
                pair.path(),
                &format!("{} -sign key -out theirs message", method(algorithm)),
            );
            let theirs = URL_SAFE_NO_PAD.encode(file("theirs"));
            let from_pem = public_key(algorithm, &file("pub"));
            let from_jwk =
                DecodingKey::from_jwk(&Jwk::from_encoding_key(&key, algorithm).unwrap()).unwrap();
            for public in [from_pem, from_jwk] {
                assert!(
                    verify(&theirs, MESSAGE, &public, algorithm).unwrap(),
                    "{bits}"
                );
            }
        }
    }
    for bits in [2048, 3072, 4096] {
        let pair = make_pair(&format!("-algorithm RSA -pkeyopt rsa_keygen_bits:{bits}"));
        let key = private_key(RS256, &read(pair.path().join("key")).unwrap());
        check_signing_key(&key, RS256).unwrap();
    }
}

#[test]
fn ec_key_without_its_public_key_is_rejected_with_a_command_that_rewrites_it() {
    for (algorithm, curve) in [(ES256, "prime256v1"), (ES384, "secp384r1")] {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        openssl(
            folder,
            &format!("ecparam -name {curve} -genkey -noout -out sec1"),
        );
        openssl(folder, "ec -in sec1 -no_public -out bare");
        openssl(folder, "pkcs8 -topk8 -nocrypt -in bare -out key");
        openssl(folder, "ec -in sec1 -conv_form compressed -out bare2");
        openssl(folder, "pkcs8 -topk8 -nocrypt -in bare2 -out key2");
        for name in ["key", "key2"] {
            let key = private_key(algorithm, &read(folder.join(name)).unwrap());
            let error = check_signing_key(&key, algorithm).unwrap_err().to_string();
            assert!(
                error.contains("openssl ec -conv_form uncompressed"),
                "{error}"
            );
            // The command of the error.
            openssl(
                folder,
                &format!("ec -conv_form uncompressed -in {name} -out between"),
            );
            openssl(folder, "pkcs8 -topk8 -nocrypt -in between -out rewritten");
            let key = private_key(algorithm, &read(folder.join("rewritten")).unwrap());
            check_signing_key(&key, algorithm).unwrap();
        }
    }
}

#[test]
fn thumbprint_is_that_of_rfc_7638() {
    install_provider();
    let jwk: Jwk = serde_json::from_str(
        r#"{"kty":"RSA","e":"AQAB","n":"0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZCiFV4n3oknjhMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdAZHzu6qMQvRL5hajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-kEgU8awapJzKnqDKgw"}"#,
    )
    .unwrap();
    assert_eq!(
        jwk.thumbprint(ThumbprintHash::SHA256),
        "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs"
    );
}
