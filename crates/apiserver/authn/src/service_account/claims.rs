//! The claims of bound and legacy tokens, and the user they name.

use apiserver_request::User;
use serde_json::{Map, Value, json};

/// The issuer of tokens in Secrets.
pub const LEGACY_ISSUER: &str = "kubernetes/serviceaccount";
const PRIVATE: &str = "kubernetes.io";

/// Name and UID of an object in claims.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reference {
    /// Name.
    pub name: String,
    /// UID, empty if the claim has none.
    pub uid: String,
}

impl Reference {
    fn from_value(value: &Value) -> Option<Reference> {
        let text = |f: &str| {
            value
                .get(f)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        value.is_object().then(|| Reference {
            name: text("name"),
            uid: text("uid"),
        })
    }

    fn to_value(&self) -> Value {
        let mut out = Map::new();
        out.insert("name".into(), self.name.clone().into());
        if !self.uid.is_empty() {
            out.insert("uid".into(), self.uid.clone().into());
        }
        Value::Object(out)
    }
}

/// The claims of a token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claims {
    /// `iss`
    pub issuer: String,
    /// `aud`
    pub audiences: Vec<String>,
    /// `exp`, seconds; None in legacy tokens.
    pub expires: Option<i64>,
    /// `nbf`, seconds.
    pub not_before: Option<i64>,
    /// `iat`, seconds.
    pub issued: i64,
    /// `jti`
    pub id: String,
    /// The account's namespace.
    pub namespace: String,
    /// The ServiceAccount.
    pub account: Reference,
    /// The pod that the token is bound to.
    pub pod: Option<Reference>,
    /// The Secret that the token is bound to or stored in.
    pub secret: Option<Reference>,
    /// The node of the pod, or the node that the token is bound to.
    pub node: Option<Reference>,
    /// Time after which a use causes a warning.
    pub warn_after: Option<i64>,
}

impl Claims {
    /// Parses a payload; None if it does not belong to a ServiceAccount of this cluster.
    pub fn from_payload(payload: &Value) -> Option<Claims> {
        let text = |f: &str| {
            payload
                .get(f)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        let number = |f: &str| {
            payload
                .get(f)
                // Other implementations write times as floating-point numbers.
                .and_then(|v| v.as_i64().or_else(|| v.as_f64().map(|x| x as i64)))
        };
        let mut claims = Claims {
            issuer: text("iss"),
            audiences: parse_audiences(payload.get("aud")),
            expires: number("exp"),
            not_before: number("nbf"),
            issued: number("iat").unwrap_or_default(),
            id: text("jti"),
            ..Claims::default()
        };
        if claims.issuer == LEGACY_ISSUER {
            claims.read_legacy(payload);
        } else {
            claims.read_private(payload.get(PRIVATE)?);
        }
        let subject = user_name(&claims.namespace, &claims.account.name);
        // The subject repeats namespace and name. A mismatch means that another issuer made the
        // token.
        let whole = !claims.namespace.is_empty()
            && !claims.account.name.is_empty()
            // Without a uid, the token would be valid for a later account of the same name.
            && !claims.account.uid.is_empty();
        (whole && text("sub") == subject).then_some(claims)
    }

    fn read_private(&mut self, private: &Value) {
        let reference = |f: &str| private.get(f).and_then(Reference::from_value);
        self.namespace = private
            .get("namespace")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned();
        self.account = reference("serviceaccount").unwrap_or_default();
        (self.pod, self.secret, self.node) =
            (reference("pod"), reference("secret"), reference("node"));
        self.warn_after = private.get("warnafter").and_then(Value::as_i64);
    }

    fn read_legacy(&mut self, payload: &Value) {
        let text = |f: &str| {
            payload
                .get(format!("kubernetes.io/serviceaccount/{f}"))
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        self.namespace = text("namespace");
        self.account = Reference {
            name: text("service-account.name"),
            uid: text("service-account.uid"),
        };
        // Legacy tokens name no uid of their Secret; the token is compared with its content
        // instead.
        self.secret = Some(Reference {
            name: text("secret.name"),
            uid: String::new(),
        });
    }

    /// Returns whether the token is a legacy one: stored in a Secret, without expiration.
    pub fn is_legacy(&self) -> bool {
        self.issuer == LEGACY_ISSUER
    }

    /// Builds the payload of a bound token.
    pub fn to_payload(&self) -> Value {
        let mut private = Map::new();
        private.insert("namespace".into(), self.namespace.clone().into());
        for (field, reference) in [
            ("node", &self.node),
            ("pod", &self.pod),
            ("secret", &self.secret),
        ] {
            if let Some(reference) = reference {
                private.insert(field.into(), reference.to_value());
            }
        }
        private.insert("serviceaccount".into(), self.account.to_value());
        if let Some(at) = self.warn_after {
            private.insert("warnafter".into(), at.into());
        }
        json!({"aud": self.audiences, "exp": self.expires, "iat": self.issued, "iss": self.issuer, "jti": self.id,
            PRIVATE: private, "nbf": self.not_before, "sub": user_name(&self.namespace, &self.account.name)})
    }

    /// Returns the user that the token authenticates.
    pub fn to_user(&self) -> User {
        let mut user = User {
            name: user_name(&self.namespace, &self.account.name),
            uid: self.account.uid.clone(),
            groups: vec![
                // Roles are bound to these groups, for all accounts of the cluster or of a
                // namespace.
                "system:serviceaccounts".into(),
                format!("system:serviceaccounts:{}", self.namespace),
            ],
            ..User::default()
        };
        let mut extra = |key: &str, value: &str| {
            if !value.is_empty() {
                user.extra.insert(
                    format!("authentication.kubernetes.io/{key}"),
                    vec![value.to_owned()],
                );
            }
        };
        if let Some(pod) = &self.pod {
            extra("pod-name", &pod.name);
            extra("pod-uid", &pod.uid);
        }
        if let Some(node) = &self.node {
            extra("node-name", &node.name);
            extra("node-uid", &node.uid);
        }
        if !self.id.is_empty() {
            // Audit events show which token was used, without the token.
            extra("credential-id", &format!("JTI={}", self.id));
        }
        user
    }
}

fn parse_audiences(value: Option<&Value>) -> Vec<String> {
    match value {
        // RFC 7519 allows a single audience without a list.
        Some(Value::String(one)) => vec![one.clone()],
        Some(Value::Array(many)) => many
            .iter()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect(),
        _ => Vec::new(),
    }
}

/// Returns `system:serviceaccount:NAMESPACE:NAME`.
pub fn user_name(namespace: &str, name: &str) -> String {
    format!("system:serviceaccount:{namespace}:{name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_survive_encoding_and_a_forged_subject_is_rejected() {
        let reference = |n: &str| {
            Some(Reference {
                name: n.into(),
                uid: format!("{n}-uid"),
            })
        };
        let claims = Claims {
            issuer: "https://issuer".into(),
            audiences: vec!["a".into()],
            expires: Some(20),
            not_before: Some(10),
            issued: 10,
            id: "x".into(),
            namespace: "n".into(),
            account: reference("sa").unwrap_or_default(),
            pod: reference("p"),
            node: reference("node"),
            secret: None,
            warn_after: Some(15),
        };
        assert_eq!(
            Claims::from_payload(&claims.to_payload()),
            Some(claims.clone())
        );
        let user = claims.to_user();
        assert_eq!(user.name, "system:serviceaccount:n:sa");
        assert_eq!(
            user.extra["authentication.kubernetes.io/credential-id"],
            ["JTI=x"]
        );
        let mut forged = claims.to_payload();
        forged["sub"] = "system:serviceaccount:kube-system:admin".into();
        assert_eq!(Claims::from_payload(&forged), None);
    }
}
