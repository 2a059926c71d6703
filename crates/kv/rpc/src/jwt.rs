//! JWTs (RFC 7519). Every member with the public key verifies them, and no member stores them. The
//! claims are etcd's: `username`, `revision` (of auth), `exp`.

use anyhow::{Context, Result, bail};
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation, decode, encode};
use kv_config::parse_duration;
use kv_machine::{Caller, EtcdError};
use ring::signature::{Ed25519KeyPair, KeyPair};
use serde::{Deserialize, Serialize};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const DEFAULT_TTL: Duration = Duration::from_secs(300);
const METHODS: &str =
    "RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, EdDSA, HS256, HS384 or HS512";

#[derive(Serialize, Deserialize)]
struct Claims {
    username: String,
    revision: u64,
    exp: u64,
}

/// Signs and verifies tokens, or only verifies them.
pub struct Jwt {
    method: Algorithm,
    /// `None` if only the public key is configured.
    signing: Option<EncodingKey>,
    verifying: DecodingKey,
    ttl: Duration,
}

/// The options of the flag, as given.
#[derive(Default)]
struct JwtOptions<'a> {
    public: Option<&'a str>,
    private: Option<&'a str>,
    method: Option<&'a str>,
    ttl: Option<&'a str>,
}

impl<'a> JwtOptions<'a> {
    fn parse(options: &'a str) -> Result<Self> {
        let mut parsed = JwtOptions::default();
        for option in options.split(',') {
            let (name, value) = option.split_once('=').with_context(|| {
                format!("--auth-token: {option:?} is not an option like ttl=5m")
            })?;
            let place = match name {
                "pub-key" => &mut parsed.public,
                "priv-key" => &mut parsed.private,
                "sign-method" => &mut parsed.method,
                "ttl" => &mut parsed.ttl,
                _ => bail!(
                    "--auth-token: {name:?} is not known: jwt has pub-key, priv-key, sign-method and ttl"
                ),
            };
            *place = Some(value);
        }
        Ok(parsed)
    }
}

fn read_key(path: &str) -> Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("--auth-token: can't read {path}"))
}

fn unusable_key(path: &str, what: &str) -> String {
    format!(
        "--auth-token: {path} holds no {what} key for the sign-method in PEM form (private keys of EC and Ed25519: PKCS#8)"
    )
}

fn signing_key(method: Algorithm, path: &str) -> Result<EncodingKey> {
    use Algorithm::*;
    let content = read_key(path)?;
    let key = match method {
        HS256 | HS384 | HS512 => return Ok(EncodingKey::from_secret(&content)),
        RS256 | RS384 | RS512 | PS256 | PS384 | PS512 => EncodingKey::from_rsa_pem(&content),
        ES256 | ES384 => EncodingKey::from_ec_pem(&content),
        EdDSA => EncodingKey::from_ed_pem(&content),
    };
    key.with_context(|| unusable_key(path, "private"))
}

fn verifying_key(method: Algorithm, path: &str) -> Result<DecodingKey> {
    use Algorithm::*;
    let content = read_key(path)?;
    let key = match method {
        HS256 | HS384 | HS512 => {
            bail!("--auth-token: {method:?} has one secret, which priv-key names, and no pub-key")
        }
        RS256 | RS384 | RS512 | PS256 | PS384 | PS512 => DecodingKey::from_rsa_pem(&content),
        ES256 | ES384 => DecodingKey::from_ec_pem(&content),
        EdDSA => DecodingKey::from_ed_pem(&content),
    };
    key.with_context(|| unusable_key(path, "public"))
}

/// Returns the public key of a private key.
fn public_half(method: Algorithm, private: &EncodingKey) -> Option<DecodingKey> {
    if method == Algorithm::EdDSA {
        let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(private.inner()).ok()?;
        return Some(DecodingKey::from_ed_der(pair.public_key().as_ref()));
    }
    let public = Jwk::from_encoding_key(private, method).ok()?;
    DecodingKey::from_jwk(&public).ok()
}

impl Jwt {
    /// Parses `--auth-token`. Returns `None` for simple tokens.
    pub fn from_flag(flag: &str) -> Result<Option<Jwt>> {
        match flag.split_once(',') {
            Some(("jwt", options)) => Jwt::new(&JwtOptions::parse(options)?).map(Some),
            None if flag == "simple" => Ok(None),
            None if flag == "jwt" => Jwt::new(&JwtOptions::default()).map(Some),
            _ => bail!(
                "--auth-token {flag:?} is not known: use simple, or jwt,sign-method=RS256,pub-key=FILE,priv-key=FILE,ttl=5m"
            ),
        }
    }

    fn new(parsed: &JwtOptions<'_>) -> Result<Jwt> {
        base_jwt::install_provider();
        let method = parsed
            .method
            .with_context(|| format!("--auth-token jwt needs sign-method: {METHODS}"))?;
        let method: Algorithm = method.parse().ok().with_context(|| {
            format!("--auth-token: sign-method {method:?} is not one of {METHODS}")
        })?;
        let ttl = parsed.ttl.map_or(Ok(DEFAULT_TTL), |ttl| {
            parse_duration("auth-token ttl", ttl, Duration::from_secs(1))
        })?;
        let signing = parsed
            .private
            .map(|path| signing_key(method, path))
            .transpose()?;
        let public = parsed
            .public
            .map(|path| verifying_key(method, path))
            .transpose()?;
        if let Some(key) = &signing {
            base_jwt::check_signing_key(key, method)
                .context("--auth-token: priv-key can't sign with this sign-method")?;
        }
        // A given public key takes precedence: `try_keys` reports one that does not belong to the
        // private key.
        let verifying = match (&signing, public) {
            (_, Some(public)) => public,
            (Some(signing), None) => public_half(method, signing).context(
                "--auth-token: priv-key can't be used with this sign-method; give the pub-key too",
            )?,
            (None, None) => {
                bail!(
                    "--auth-token jwt needs a key: priv-key=FILE to sign, or pub-key=FILE to verify only"
                )
            }
        };
        let jwt = Jwt {
            method,
            signing,
            verifying,
            ttl,
        };
        jwt.try_keys()?;
        Ok(jwt)
    }

    /// Verifies at start that both keys belong together, so that the error does not appear at the
    /// first login.
    fn try_keys(&self) -> Result<()> {
        if self.signing.is_none() {
            return Ok(());
        }
        let token = self
            .sign_token("user", 1)
            .ok()
            .context("--auth-token: priv-key can't sign with this sign-method")?;
        let fits = self.ttl.is_zero() || self.verify_token(&token).is_some();
        if fits {
            Ok(())
        } else {
            bail!("--auth-token: pub-key and priv-key are not of one pair; give both of the same")
        }
    }

    /// Signs a token for a user.
    pub fn sign_token(&self, user: &str, revision: u64) -> Result<String, EtcdError> {
        let key = self.signing.as_ref().ok_or(EtcdError::VerifyOnly)?;
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let claims = Claims {
            username: user.to_owned(),
            revision,
            exp: (now + self.ttl).as_secs(),
        };
        encode(&Header::new(self.method), &claims, key).map_err(|error| {
            tracing::error!(%error, "a token can't be signed");
            EtcdError::AuthFailed
        })
    }

    /// Returns the user of a token and the auth revision of its login.
    pub fn verify_token(&self, token: &str) -> Option<Caller> {
        let mut validation = Validation::new(self.method);
        // The library accepts tokens for a minute after their expiry by default. etcd does not.
        validation.leeway = 0;
        let Claims {
            username, revision, ..
        } = decode(token, &self.verifying, &validation).ok()?.claims;
        // Revision 0 would mean the current one, and the token would survive changes of users.
        (revision > 0).then(|| Caller {
            user: username,
            auth_revision: revision,
            ..Caller::default()
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn refusal(flag: &str) -> String {
        format!("{:#}", Jwt::from_flag(flag).err().unwrap())
    }

    #[test]
    fn invalid_option_of_a_token_is_rejected_by_name() {
        for (flag, word) in [
            ("none", "\"none\""),
            ("jwt", "sign-method"),
            ("jwt,sign-method=none,priv-key=/x", "\"none\""),
            ("jwt,sign-method=RS256", "priv-key"),
            ("jwt,sign-method=RS256,priv-key=/nowhere", "/nowhere"),
            ("jwt,sign-method=HS256,priv-key=/dev/null,ttl=soon", "soon"),
            ("jwt,sign-metod=HS256", "sign-metod"),
            ("jwt,HS256", "HS256"),
        ] {
            assert!(refusal(flag).contains(word), "{flag}: {}", refusal(flag));
        }
        assert!(Jwt::from_flag("simple").unwrap().is_none());
    }

    #[test]
    fn token_of_a_secret_is_valid_until_its_expiry() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        std::fs::write(&path, "a secret of some length").unwrap();
        let flag = |more: &str| format!("jwt,sign-method=HS256,priv-key={}{more}", path.display());
        let jwt = Jwt::from_flag(&flag("")).unwrap().unwrap();
        let token = jwt.sign_token("u", 7).unwrap();
        let caller = jwt.verify_token(&token).unwrap();
        assert_eq!((caller.user.as_str(), caller.auth_revision), ("u", 7));
        assert!(
            jwt.verify_token(&token[..token.len() - 2]).is_none() && jwt.verify_token("").is_none()
        );
        assert!(
            jwt.verify_token(&jwt.sign_token("u", 0).unwrap()).is_none(),
            "no revision is that old"
        );
        let over = Claims {
            username: "u".into(),
            revision: 7,
            exp: 1,
        };
        let signing = EncodingKey::from_secret(b"a secret of some length");
        assert!(
            jwt.verify_token(&encode(&Header::new(Algorithm::HS256), &over, &signing).unwrap())
                .is_none()
        );
        let other = Jwt {
            verifying: DecodingKey::from_secret(b"another"),
            ..jwt
        };
        assert!(other.verify_token(&token).is_none() && other.try_keys().is_err());
    }

    fn secret_jwt(folder: &std::path::Path, options: &str) -> Jwt {
        let path = folder.join("secret");
        std::fs::write(&path, "a secret of some length").unwrap();
        let flag = format!("jwt,priv-key={}{options}", path.display());
        Jwt::from_flag(&flag).unwrap().unwrap()
    }

    #[test]
    fn member_without_a_private_key_issues_no_tokens() {
        let folder = tempfile::tempdir().unwrap();
        let jwt = Jwt {
            signing: None,
            ..secret_jwt(folder.path(), ",sign-method=HS256")
        };
        let rejected = jwt.sign_token("u", 1).unwrap_err();
        assert_eq!(rejected.to_string(), EtcdError::VerifyOnly.to_string());
    }

    #[test]
    fn token_of_another_method_with_the_same_key_is_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let jwt = secret_jwt(folder.path(), ",sign-method=HS256");
        let other = secret_jwt(folder.path(), ",sign-method=HS512");
        assert!(jwt.verify_token(&jwt.sign_token("u", 1).unwrap()).is_some());
        assert!(
            jwt.verify_token(&other.sign_token("u", 1).unwrap())
                .is_none()
        );
    }

    #[test]
    fn token_is_valid_for_its_ttl() {
        let folder = tempfile::tempdir().unwrap();
        for (ttl, seconds) in [("", 300), (",ttl=1h", 3_600)] {
            let jwt = secret_jwt(folder.path(), &format!(",sign-method=HS256{ttl}"));
            let token = jwt.sign_token("u", 1).unwrap();
            let validation = Validation::new(Algorithm::HS256);
            let claims = decode::<Claims>(&token, &jwt.verifying, &validation)
                .unwrap()
                .claims;
            let now = SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap()
                .as_secs();
            assert!(
                (now + seconds - 5..=now + seconds).contains(&claims.exp),
                "{ttl}"
            );
        }
    }

    #[test]
    fn key_that_does_not_suit_the_method_is_rejected_with_its_path() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        std::fs::write(&path, "a secret of some length").unwrap();
        let path = path.display();
        for (flag, expect) in [
            (
                format!("jwt,sign-method=RS256,priv-key={path}"),
                format!("{path} holds no private key"),
            ),
            (
                format!("jwt,sign-method=ES256,pub-key={path}"),
                format!("{path} holds no public key"),
            ),
            (
                format!("jwt,sign-method=HS256,pub-key={path}"),
                "has one secret".to_owned(),
            ),
        ] {
            let rejected = refusal(&flag);
            assert!(rejected.contains(&expect), "{flag}: {rejected}");
        }
    }
}
