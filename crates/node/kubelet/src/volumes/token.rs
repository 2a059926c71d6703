//! ServiceAccount tokens of projected volumes: bound to the pod, cached until they must be
//! refreshed.

use client::Client;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Pod, ServiceAccount, ServiceAccountTokenProjection};
use parking_lot::Mutex;
use std::collections::HashMap;

/// A token is refreshed after this share of its lifetime, or after a day.
const REFRESH_SHARE: f64 = 0.8;
const DAY: SignedDuration = SignedDuration::from_hours(24);

#[derive(Clone)]
struct CachedToken {
    token: String,
    refresh_at: Timestamp,
}

/// Cached tokens of one pod.
#[derive(Default)]
pub(crate) struct Tokens(Mutex<HashMap<(String, i64), CachedToken>>);

impl Tokens {
    /// Returns a token for a projection, and the time of its refresh.
    pub(crate) async fn get(
        &self,
        client: Option<&Client>,
        pod: &Pod,
        source: &ServiceAccountTokenProjection,
    ) -> Result<(String, Timestamp), String> {
        let audience = source.audience.clone().unwrap_or_default();
        let life = source.expiration_seconds.unwrap_or(3600);
        let key = (audience.clone(), life);
        let now = Timestamp::now();
        // Each refresh of the volumes asks for the token; a new one every time would load the API
        // server and change the file.
        if let Some(kept) = self.0.lock().get(&key).filter(|k| k.refresh_at > now) {
            return Ok((kept.token.clone(), kept.refresh_at));
        }
        let client = client.ok_or("tokens can't be had without an API server")?;
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let account = crate::pod::spec::read_spec(pod)
            .service_account_name
            .clone()
            .filter(|n| !n.is_empty());
        let account = account.unwrap_or_else(|| "default".into());
        let request = build_request(pod, audience, life);
        let api = client.namespaced::<ServiceAccount>(namespace);
        let response: TokenRequest = api
            .subresource_create(&account, "token", &request)
            .await
            .map_err(|e| format!("failed to fetch token: {e}"))?;
        let status = response
            .status
            .ok_or("failed to fetch token: the answer has none")?;
        let token = status
            .token
            .ok_or("failed to fetch token: the answer has none")?;
        let life_over = SignedDuration::from_secs(life);
        let expires = status
            .expiration_timestamp
            .map_or_else(|| now + life_over, |t| t.0);
        let share = expires.duration_since(now).mul_f64(REFRESH_SHARE);
        // Upstream's rule. The minimum keeps a clock that is wrong from requesting tokens without a
        // pause.
        let refresh_at = now + share.min(DAY).max(SignedDuration::from_secs(10));
        self.0.lock().insert(
            key,
            CachedToken {
                token: token.clone(),
                refresh_at,
            },
        );
        Ok((token, refresh_at))
    }
}

fn build_request(pod: &Pod, audience: String, life: i64) -> TokenRequest {
    let bound = BoundObjectReference {
        api_version: Some("v1".into()),
        kind: Some("Pod".into()),
        name: pod.metadata.name.clone(),
        uid: pod.metadata.uid.clone(),
    };
    TokenRequest {
        spec: Some(TokenRequestSpec {
            audiences: (!audience.is_empty()).then(|| vec![audience]),
            bound_object_ref: Some(bound),
            expiration_seconds: Some(life),
        }),
        ..TokenRequest::default()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// The API server rejects the token once this pod is deleted.
    #[test]
    fn token_is_bound_to_the_pod_and_its_audience() {
        let pod = crate::testing::pod(serde_json::json!({"containers": []}));
        let spec = build_request(&pod, "vault".into(), 600).spec.unwrap();
        let bound = spec.bound_object_ref.unwrap();
        assert_eq!(
            (bound.name.as_deref(), bound.uid.as_deref()),
            (Some("a"), Some("u"))
        );
        assert_eq!(spec.audiences, Some(vec!["vault".to_owned()]));
        assert_eq!(spec.expiration_seconds, Some(600));
        assert_eq!(
            build_request(&pod, String::new(), 600)
                .spec
                .unwrap()
                .audiences,
            None
        );
    }
}
