//! The ConfigMap `cluster-info` in kube-public: a kubeconfig without credentials, and its signature
//! by each token.
//!
//! A signature is a JSON Web Signature (RFC 7515) without its payload, which stands beside it.
//! Clients of upstream compare the whole text, so the header is exactly that of upstream's library.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;

use crate::token::BootstrapToken;

/// The name of the ConfigMap.
pub const CLUSTER_INFO: &str = "cluster-info";
/// The namespace of the ConfigMap.
pub const CLUSTER_INFO_NAMESPACE: &str = "kube-public";
/// The key of the kubeconfig.
pub const KUBECONFIG_KEY: &str = "kubeconfig";
/// The start of the key of a signature; the token's ID follows.
pub const SIGNATURE_PREFIX: &str = "jws-kubeconfig-";

/// Returns the signature of `content` by a token.
#[must_use]
pub fn sign_content(content: &str, token: &BootstrapToken) -> String {
    sign_with(content, token.id(), token.secret())
}

/// Returns whether `signature` is that of `content` by a token.
#[must_use]
pub fn is_signature_valid(signature: &str, content: &str, token: &BootstrapToken) -> bool {
    let header = encode_header(token.id());
    let code = signature
        .strip_prefix(&header)
        .and_then(|rest| rest.strip_prefix(".."))
        .and_then(|code| URL_SAFE_NO_PAD.decode(code).ok());
    code.is_some_and(|code| {
        let key = hmac::Key::new(hmac::HMAC_SHA256, token.secret().as_bytes());
        let input = format_signing_input(&header, content);
        hmac::verify(&key, input.as_bytes(), &code).is_ok()
    })
}

fn sign_with(content: &str, id: &str, secret: &str) -> String {
    let header = encode_header(id);
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let code = hmac::sign(&key, format_signing_input(&header, content).as_bytes());
    format!("{header}..{}", URL_SAFE_NO_PAD.encode(code.as_ref()))
}

/// Returns the protected header. An ID has no character that JSON would escape.
fn encode_header(id: &str) -> String {
    URL_SAFE_NO_PAD.encode(format!(r#"{{"alg":"HS256","kid":"{id}"}}"#))
}

fn format_signing_input(header: &str, content: &str) -> String {
    format!("{header}.{}", URL_SAFE_NO_PAD.encode(content))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Computed with Python's hmac and base64 modules.
    #[test]
    fn signature_is_the_one_of_other_implementations() {
        let content = "Hello from the other side. I must have called a thousand times.";
        assert_eq!(
            sign_with(content, "joshua", "my voice is my passcode"),
            "eyJhbGciOiJIUzI1NiIsImtpZCI6Impvc2h1YSJ9..VShe2taLd-YTrmWuRkcL_8QTNDHYxQIEBsAYYiIj1_8"
        );
    }

    #[test]
    fn only_the_signature_of_this_content_by_this_token_is_valid() {
        let token = |text: &str| text.parse::<BootstrapToken>().unwrap();
        let own = token("abcdef.0123456789abcdef");
        let signature = sign_content("content", &own);
        assert!(is_signature_valid(&signature, "content", &own));
        let (header, code) = signature.split_once("..").unwrap();
        let unsigned = URL_SAFE_NO_PAD.encode(r#"{"alg":"none","kid":"abcdef"}"#);
        for (signature, content, token) in [
            (signature.clone(), "other", &own),
            (
                signature.clone(),
                "content",
                &token("abcdef.0123456789abcdeg"),
            ),
            (
                signature.clone(),
                "content",
                &token("abcdeg.0123456789abcdef"),
            ),
            (format!("{header}.Y29udGVudA.{code}"), "content", &own),
            (format!("{header}.."), "content", &own),
            (format!("{unsigned}.."), "content", &own),
            (format!("{unsigned}..{code}"), "content", &own),
            (format!("{signature}="), "content", &own),
            (String::new(), "content", &own),
        ] {
            assert!(
                !is_signature_valid(&signature, content, token),
                "{signature} {content} {token:?}"
            );
        }
    }
}
