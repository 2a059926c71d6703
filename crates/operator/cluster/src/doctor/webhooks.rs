//! Webhooks that reject requests because they can't be called. All functions are decisions without
//! IO.

use std::path::Path;

use client::{ApiResource, DynamicObject, ObjectExt};
use k8s_openapi::api::admissionregistration::v1::{ServiceReference, WebhookClientConfig};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::Value;

use super::finding::{Finding, Severity};

/// Port of a webhook's Service if the configuration names none.
const DEFAULT_PORT: i32 = 443;
/// Label of EndpointSlices with the name of their Service.
pub(super) const SERVICE_LABEL: &str = "kubernetes.io/service-name";

/// A webhook whose failure rejects requests.
#[derive(Debug, Clone)]
pub(super) struct StrictWebhook {
    /// `validatingwebhookconfiguration` or `mutatingwebhookconfiguration`.
    singular: String,
    configuration: String,
    name: String,
    /// None if it can't be decoded, such as for a caBundle that is not base64.
    client: Option<WebhookClientConfig>,
}

/// The Service of a webhook, as the API server sees it.
#[derive(Debug, Clone, Default)]
pub(super) struct Backend {
    /// The Service, if it exists.
    pub(super) service: Option<Service>,
    /// Its EndpointSlices.
    pub(super) slices: Vec<EndpointSlice>,
}

/// The Service of a webhook, or the reason why it can't be read.
pub(super) type BackendResult = Result<Backend, String>;

/// Returns the kinds of webhook configurations.
pub(super) fn list_configuration_kinds() -> [ApiResource; 2] {
    ["Mutating", "Validating"].map(|phase| ApiResource {
        group: "admissionregistration.k8s.io".to_owned(),
        version: "v1".to_owned(),
        kind: format!("{phase}WebhookConfiguration"),
        plural: format!("{}webhookconfigurations", phase.to_lowercase()),
        namespaced: false,
    })
}

/// Returns the webhooks of a configuration that have a rule and the `failurePolicy` Fail.
pub(super) fn find_strict_webhooks(
    kind: &ApiResource,
    configuration: &DynamicObject,
) -> Vec<StrictWebhook> {
    let webhooks = configuration.rest.get("webhooks").and_then(Value::as_array);
    let text = |webhook: &Value, field: &str| {
        let found = webhook.get(field).and_then(Value::as_str);
        found.unwrap_or_default().to_owned()
    };
    let has_rules = |webhook: &Value| {
        let rules = webhook.get("rules").and_then(Value::as_array);
        rules.is_some_and(|rules| !rules.is_empty())
    };
    let strict = webhooks
        .into_iter()
        .flatten()
        // Fail is the default.
        .filter(|webhook| text(webhook, "failurePolicy") != "Ignore" && has_rules(webhook));
    strict
        .map(|webhook| StrictWebhook {
            singular: kind.kind.to_lowercase(),
            configuration: configuration.name().to_owned(),
            name: text(webhook, "name"),
            client: webhook
                .get("clientConfig")
                .and_then(|config| serde_json::from_value(config.clone()).ok()),
        })
        .collect()
}

impl StrictWebhook {
    /// Returns the Service that serves the webhook, unless it is a URL.
    pub(super) fn service(&self) -> Option<&ServiceReference> {
        self.client.as_ref()?.service.as_ref()
    }

    /// Returns the problem that keeps the API server from calling the webhook. `backend` is that of
    /// its Service, if it has one.
    pub(super) fn examine(&self, backend: Option<&BackendResult>) -> Option<Finding> {
        let bundle = self.find_bundle_problem();
        let problem = match (bundle, self.service().zip(backend)) {
            (Some(problem), _) => problem,
            (None, Some((service, Ok(backend)))) => find_service_problem(service, backend)?,
            (None, Some((service, Err(why)))) => {
                return Some(self.describe_unread(service, why));
            }
            (None, None) => return None,
        };
        let (singular, configuration) = (&self.singular, &self.configuration);
        // The flag for a controller that restores the configuration at once.
        let remedy = format!(
            "kubectl delete {singular} {configuration}  # or kube-apiserver --skip-admission-webhooks={}",
            self.name
        );
        Some(Finding::new(
            Severity::Error,
            self.format_subject(),
            format!("{problem}: it rejects all requests that its rules match"),
            remedy,
        ))
    }

    /// Returns the finding about a Service that can't be examined.
    fn describe_unread(&self, service: &ServiceReference, why: &str) -> Finding {
        let name = format!("{}/{}", service.namespace, service.name);
        Finding::new(
            Severity::Warning,
            self.format_subject(),
            format!("its Service {name} can't be examined: {why}"),
            format!(
                "kubectl get {} {} -o yaml",
                self.singular, self.configuration
            ),
        )
    }

    fn format_subject(&self) -> String {
        let (singular, configuration) = (&self.singular, &self.configuration);
        format!("{singular} {configuration}, webhook {}", self.name)
    }

    fn find_bundle_problem(&self) -> Option<String> {
        let Some(client) = &self.client else {
            return Some("its clientConfig can't be parsed".to_owned());
        };
        let bundle = &client.ca_bundle.as_ref()?.0;
        // An empty bundle stands for the roots of the API server's machine.
        let is_usable = bundle.is_empty()
            || base_tls::parse_roots(bundle, Path::new("caBundle"))
                .is_ok_and(|roots| !roots.is_empty());
        (!is_usable).then(|| "its caBundle has no usable certificate".to_owned())
    }
}

fn find_service_problem(reference: &ServiceReference, backend: &Backend) -> Option<String> {
    let name = format!("{}/{}", reference.namespace, reference.name);
    let Some(spec) = backend
        .service
        .as_ref()
        .and_then(|found| found.spec.as_ref())
    else {
        return Some(format!("its Service {name} does not exist"));
    };
    // The API server connects to the external name: there are no endpoints.
    if spec.type_.as_deref() == Some("ExternalName") {
        return None;
    }
    let port = reference.port.unwrap_or(DEFAULT_PORT);
    let ports = spec.ports.as_deref().unwrap_or_default();
    let Some(found) = ports.iter().find(|known| known.port == port) else {
        return Some(format!("its Service {name} has no port {port}"));
    };
    let port_name = found.name.as_deref().unwrap_or_default();
    let is_ready = |slice: &EndpointSlice| {
        let ports = slice.ports.as_deref().unwrap_or_default();
        let mut endpoints = slice.endpoints.iter().flatten();
        ports
            .iter()
            .any(|port| port.name.as_deref().unwrap_or_default() == port_name)
            // An unknown condition counts as ready.
            && endpoints.any(|endpoint| {
                let conditions = endpoint.conditions.as_ref();
                conditions.and_then(|known| known.ready) != Some(false)
            })
    };
    (!backend.slices.iter().any(is_ready))
        .then(|| format!("its Service {name} has no ready endpoint"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    /// Base64 of a text that is not PEM.
    const NO_PEM: &str = "Zm9v";

    fn webhooks(webhook: Value) -> Vec<StrictWebhook> {
        let mut full = json!({"name": "guard.example.com", "rules": [{"resources": ["pods"]}],
            "clientConfig": {"service": {"namespace": "n", "name": "guard"}}});
        for (field, value) in webhook.as_object().unwrap() {
            full[field] = value.clone();
        }
        let configuration: DynamicObject =
            serde_json::from_value(json!({"metadata": {"name": "guard"}, "webhooks": [full]}))
                .unwrap();
        find_strict_webhooks(&list_configuration_kinds()[1], &configuration)
    }

    fn backend(kind: &str, endpoints: Value) -> Backend {
        let service = json!({"metadata": {"name": "guard"}, "spec": {"type": kind,
            "ports": [{"name": "https", "port": 443}, {"name": "metrics", "port": 9090}]}});
        let slice = json!({"metadata": {"name": "guard-1"}, "addressType": "IPv4",
            "ports": [{"name": "https", "port": 8443}], "endpoints": endpoints});
        Backend {
            service: serde_json::from_value(service).unwrap(),
            slices: vec![serde_json::from_value(slice).unwrap()],
        }
    }

    #[test]
    fn webhook_is_strict_unless_it_ignores_failures_or_has_no_rules() {
        for (webhook, expect) in [
            (json!({}), 1),
            (json!({"failurePolicy": "Fail"}), 1),
            (json!({"failurePolicy": "Ignore"}), 0),
            (json!({"rules": []}), 0),
        ] {
            assert_eq!(webhooks(webhook.clone()).len(), expect, "{webhook}");
        }
    }

    #[test]
    fn webhook_that_cannot_be_called_is_reported() {
        let ready = json!([{"addresses": ["10.0.0.1"], "conditions": {"ready": true}}]);
        let unready = json!([{"addresses": ["10.0.0.1"], "conditions": {"ready": false}}]);
        let config = |config: Value| json!({"clientConfig": config});
        let service = json!({"namespace": "n", "name": "guard", "port": 9090});
        let url = "https://guard.example.com";
        for (webhook, backend, expect) in [
            (json!({}), backend("ClusterIP", ready.clone()), None),
            (
                json!({}),
                backend("ClusterIP", json!([{"addresses": ["10.0.0.1"]}])),
                None,
            ),
            (json!({}), backend("ExternalName", json!([])), None),
            (
                json!({}),
                Backend::default(),
                Some("its Service n/guard does not exist"),
            ),
            (
                json!({}),
                backend("ClusterIP", unready),
                Some("its Service n/guard has no ready endpoint"),
            ),
            (
                config(json!({"service": service})),
                backend("ClusterIP", ready.clone()),
                Some("its Service n/guard has no ready endpoint"),
            ),
            (
                config(json!({"service": {"namespace": "n", "name": "guard", "port": 8443}})),
                backend("ClusterIP", ready),
                Some("its Service n/guard has no port 8443"),
            ),
            (
                config(json!({"url": url, "caBundle": NO_PEM})),
                Backend::default(),
                Some("its caBundle has no usable certificate"),
            ),
            (
                config(json!({"url": url, "caBundle": "%"})),
                Backend::default(),
                Some("its clientConfig can't be parsed"),
            ),
            (
                config(json!({"url": url, "caBundle": ""})),
                Backend::default(),
                None,
            ),
        ] {
            let strict = webhooks(webhook.clone()).remove(0);
            let backend = strict.service().is_some().then_some(Ok(backend));
            let found = strict
                .examine(backend.as_ref())
                .map(|finding| finding.problem);
            let expect =
                expect.map(|why| format!("{why}: it rejects all requests that its rules match"));
            assert_eq!(found, expect, "{webhook}");
        }
    }

    /// A name that is no valid label value makes the selector of EndpointSlices invalid.
    #[test]
    fn service_that_cannot_be_read_is_a_finding_of_its_webhook() {
        let service = json!({"namespace": "n", "name": "a,b in ("});
        let strict = webhooks(json!({"clientConfig": {"service": service}})).remove(0);
        let finding = strict.examine(Some(&Err("invalid selector".to_owned())));
        let finding = finding.unwrap();
        assert_eq!(
            finding.problem,
            "its Service n/a,b in ( can't be examined: invalid selector"
        );
        assert_eq!(
            (finding.severity, finding.remedy.as_str()),
            (
                Severity::Warning,
                "kubectl get validatingwebhookconfiguration guard -o yaml"
            )
        );
    }

    #[test]
    fn finding_names_the_configuration_and_the_commands() {
        let finding = webhooks(json!({}))
            .remove(0)
            .examine(Some(&Ok(Backend::default())));
        let finding = finding.unwrap();
        assert_eq!(
            finding.subject,
            "validatingwebhookconfiguration guard, webhook guard.example.com"
        );
        assert_eq!(
            finding.remedy,
            "kubectl delete validatingwebhookconfiguration guard  \
             # or kube-apiserver --skip-admission-webhooks=guard.example.com"
        );
    }
}
