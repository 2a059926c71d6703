//! Wires the conversion webhooks of definitions.

use api_kinds::{Conversion, Converter};
use apiserver_crd::BuildConverter;
use apiserver_webhook::{ConversionClient, ConversionWebhook};
use serde_json::Value;
use std::fmt::{self, Debug, Formatter};
use std::sync::Arc;

struct WebhookConverter {
    client: Arc<ConversionClient>,
    webhook: ConversionWebhook,
}

impl Debug for WebhookConverter {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("WebhookConverter")
    }
}

impl Converter for WebhookConverter {
    fn convert_objects<'a>(&'a self, objects: Vec<Value>, api_version: &'a str) -> Conversion<'a> {
        Box::pin(async move {
            let converted = self
                .client
                .convert_objects(&self.webhook, objects, api_version);
            converted.await.map_err(|error| error.into_api_error())
        })
    }
}

/// Returns the builder of converters that call webhooks.
pub fn webhook_converters(client: ConversionClient) -> BuildConverter {
    let client = Arc::new(client);
    Box::new(move |definition| {
        let webhook = ConversionWebhook::parse(definition)?;
        let client = client.clone();
        Some(Arc::new(WebhookConverter { client, webhook }) as Arc<dyn Converter>)
    })
}
