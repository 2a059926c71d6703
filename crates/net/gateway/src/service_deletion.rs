//! Reads before the deletion of a Gateway's Service, which loses its address with it.
//!
//! The informers may be old, as after the start from an old cache of an API server. A Gateway that
//! they do not have may exist.

use client::{Client, DynamicObject, Error, ListParams, ObjectExt};
use k8s_openapi::api::core::v1::Service;

use crate::crds::{GATEWAY_CLASSES, GATEWAYS, resource_of};
use crate::gateway_api::{GatewayClassSpec, GatewayObject, GatewaySpec};
use crate::gateway_services::{NAMESPACE_LABEL, UID_LABEL};

/// Reads from the API server for the deletion of Services.
pub(crate) struct LiveGateways<'a> {
    pub(crate) client: &'a Client,
    /// Name of the controller in GatewayClasses.
    pub(crate) controller: &'a str,
    /// Served versions of Gateways and of their classes; `None` for a kind that is not served.
    pub(crate) versions: (Option<&'a str>, Option<&'a str>),
}

impl LiveGateways<'_> {
    /// Returns whether no Gateway of this controller, and none whose class is not known, has the
    /// Service.
    ///
    /// # Errors
    /// The Gateways or their classes can't be read: the Service must remain.
    pub(crate) async fn is_unused(&self, service: &Service) -> Result<bool, Error> {
        let Some(gateway) = self.find_gateway(service).await? else {
            return Ok(true);
        };
        let Ok(spec) = GatewayObject::<GatewaySpec>::decode(&gateway).spec else {
            return Ok(false);
        };
        let resource = resource_of(GATEWAY_CLASSES, self.versions.1.unwrap_or("v1"));
        let classes = self.client.dynamic(&resource, None);
        let class = classes.get_opt(&spec.gateway_class_name).await?;
        let class = class.map(|class| GatewayObject::<GatewayClassSpec>::decode(&class).spec);
        Ok(match class {
            Some(Ok(class)) => class.controller_name != self.controller,
            // It may become one of this controller.
            Some(Err(_)) | None => false,
        })
    }

    /// Returns the Gateway of a Service.
    async fn find_gateway(&self, service: &Service) -> Result<Option<DynamicObject>, Error> {
        let uid = service.label(UID_LABEL).unwrap_or_default();
        let namespace = service.label(NAMESPACE_LABEL);
        let resource = resource_of(GATEWAYS, self.versions.0.unwrap_or("v1"));
        let gateways = self.client.dynamic(&resource, namespace);
        let listed = match gateways.list(&ListParams::new()).await {
            // Without a definition there are no objects.
            Err(error) if error.is_not_found() && self.versions.0.is_none() => return Ok(None),
            listed => listed?,
        };
        let mut all = listed.items.into_iter();
        Ok(all.find(|gateway| gateway.uid() == uid))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use base_task::{CancellationToken, Tasks};
    use bytes::Bytes;
    use client::Config;
    use http::{Request, Response};
    use http_body_util::Full;
    use hyper::body::Incoming;
    use hyper::service::service_fn;
    use serde_json::{Value, json};
    use std::convert::Infallible;

    const API: &str = "/apis/gateway.networking.k8s.io/v1";

    /// Starts an API server with these objects by their paths.
    async fn start_server(objects: Vec<(String, Value)>, tasks: &Tasks) -> Client {
        let listener = base_serve::bind_listener(([127, 0, 0, 1], 0).into())
            .await
            .unwrap();
        let address = listener.local_addr().unwrap();
        let service = service_fn(move |request: Request<Incoming>| {
            let mut found = objects.iter();
            let found = found.find(|(path, _)| path == request.uri().path());
            let (status, body) = match found {
                Some((_, body)) => (200, body.clone()),
                None => (
                    404,
                    json!({"kind": "Status", "code": 404, "reason": "NotFound"}),
                ),
            };
            let response = Response::builder().status(status);
            let response = response.header("content-type", "application/json");
            let body = Full::new(Bytes::from(body.to_string()));
            async move { Ok::<_, Infallible>(response.body(body).unwrap()) }
        });
        let serve = base_serve::serve_http(
            listener,
            base_serve::Options::default(),
            service,
            tasks.shutdown().clone(),
        );
        tasks.spawn_isolated("server", serve);
        Client::new(Config::builder(format!("http://{address}")))
    }

    fn gateways(uid: &str, class: &str) -> (String, Value) {
        let gateway = json!({"metadata": {"name": "g", "namespace": "a", "uid": uid},
            "spec": {"gatewayClassName": class}});
        let list = json!({"metadata": {"resourceVersion": "1"}, "items": [gateway]});
        (format!("{API}/namespaces/a/gateways"), list)
    }

    fn class(name: &str, spec: Value) -> (String, Value) {
        let class = json!({"metadata": {"name": name}, "spec": spec});
        (format!("{API}/gatewayclasses/{name}"), class)
    }

    #[tokio::test]
    async fn service_is_unused_if_no_live_gateway_may_have_it() {
        let own = || class("c", json!({"controllerName": "own"}));
        let other = || class("c", json!({"controllerName": "other"}));
        let served = (Some("v1"), Some("v1"));
        let service: Service = serde_json::from_value(json!({"metadata": {"name": "lb-0",
            "labels": {UID_LABEL: "u", NAMESPACE_LABEL: "a"}}}))
        .unwrap();
        let cases = [
            (
                "its Gateway",
                vec![gateways("u", "c"), own()],
                served,
                Some(false),
            ),
            (
                "an earlier Gateway",
                vec![gateways("v", "c"), own()],
                served,
                Some(true),
            ),
            (
                "another controller",
                vec![gateways("u", "c"), other()],
                served,
                Some(true),
            ),
            ("no class", vec![gateways("u", "c")], served, Some(false)),
            (
                "a class that can't be decoded",
                vec![gateways("u", "c"), class("c", json!({}))],
                served,
                Some(false),
            ),
            ("a kind that is not served now", vec![own()], served, None),
            (
                "a kind without a definition",
                vec![],
                (None, None),
                Some(true),
            ),
        ];
        let tasks = Tasks::new(CancellationToken::new());
        for (case, objects, versions, expected) in cases {
            let client = start_server(objects, &tasks).await;
            let live = LiveGateways {
                client: &client,
                controller: "own",
                versions,
            };
            assert_eq!(live.is_unused(&service).await.ok(), expected, "{case}");
        }
        tasks.shutdown().cancel();
    }
}
