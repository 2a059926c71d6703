//! Lists of objects.

use crate::lenient::from_tree;
use crate::object_key::key_of;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// A list of objects at one resource version.
#[derive(Clone, Debug, Deserialize)]
#[serde(bound = "K: DeserializeOwned")]
pub struct List<K> {
    /// List metadata: `resourceVersion` is the version from which to watch, `continue` the token of
    /// the next page.
    #[serde(default)]
    pub metadata: ListMeta,
    /// The objects.
    #[serde(default = "Vec::new", deserialize_with = "null_as_empty")]
    pub items: Vec<K>,
    /// Keys (`namespace/name`) of objects that exist but can't be decoded.
    #[serde(skip)]
    pub(crate) undecodable: Vec<String>,
}

fn null_as_empty<'de, D, K>(deserializer: D) -> Result<Vec<K>, D::Error>
where
    D: serde::Deserializer<'de>,
    K: DeserializeOwned,
{
    Ok(Option::<Vec<K>>::deserialize(deserializer)?.unwrap_or_default())
}

impl<K> List<K> {
    /// Returns the resource version of the list.
    pub fn resource_version(&self) -> &str {
        self.metadata
            .resource_version
            .as_deref()
            .unwrap_or_default()
    }

    /// Decodes a page of objects of `kind`. An object that can't be decoded is logged and added to
    /// `undecodable`.
    pub(crate) fn decode_page(bytes: &[u8], kind: &str) -> serde_json::Result<Self>
    where
        K: DeserializeOwned,
    {
        // The common case costs one pass. Only if any object fails, all are decoded one by one from
        // a tree.
        if let Ok(list) = serde_json::from_slice(bytes) {
            return Ok(list);
        }
        let trees: List<Value> = serde_json::from_slice(bytes)?;
        let mut list = List {
            metadata: trees.metadata,
            items: Vec::new(),
            undecodable: Vec::new(),
        };
        for tree in trees.items {
            let key = key_of(&tree);
            match from_tree(tree) {
                Ok(item) => list.items.push(item),
                Err(error) => {
                    tracing::error!(%kind, object = key, %error, "object can't be decoded");
                    list.undecodable.push(key);
                }
            }
        }
        Ok(list)
    }

    pub(crate) fn continue_token(&self) -> Option<String> {
        self.metadata
            .continue_
            .clone()
            .filter(|token| !token.is_empty())
    }
}
