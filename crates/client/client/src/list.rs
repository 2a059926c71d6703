//! Lists of objects.

use crate::json::Decoder;
use crate::object_key::identify;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use serde::de::DeserializeOwned;

/// A list of objects at one resource version.
#[derive(Clone, Debug)]
pub struct List<K> {
    /// List metadata: `resourceVersion` is the version from which to watch, `continue` the token of
    /// the next page.
    pub metadata: ListMeta,
    /// The objects.
    pub items: Vec<K>,
    /// Keys (`namespace/name`) of objects that exist but can't be decoded.
    pub(crate) undecodable: Vec<String>,
}

impl<K> Default for List<K> {
    fn default() -> Self {
        Self {
            metadata: ListMeta::default(),
            items: Vec::new(),
            undecodable: Vec::new(),
        }
    }
}

impl<K> List<K> {
    /// Adds a page. Returns its metadata.
    pub(crate) fn append_page(&mut self, page: Self) -> ListMeta {
        // Most lists have one page, which need not be copied.
        if self.items.is_empty() {
            self.items = page.items;
        } else {
            self.items.extend(page.items);
        }
        self.undecodable.extend(page.undecodable);
        page.metadata
    }

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
        let mut items = Vec::new();
        let list = Self::decode_items(bytes, kind, &mut |item| items.push(item))?;
        Ok(Self { items, ..list })
    }

    /// Decodes a page as [`List::decode_page`], and calls `receive` for each object instead of
    /// adding it to the list.
    pub(crate) fn decode_items(
        bytes: &[u8],
        kind: &str,
        receive: &mut dyn FnMut(K),
    ) -> serde_json::Result<Self>
    where
        K: DeserializeOwned,
    {
        let mut list = List::default();
        let mut decoder = Decoder::new(bytes);
        let mut first = true;
        decoder.begin_object()?;
        while let Some(key) = decoder.next_key(&mut first)? {
            match key.as_ref() {
                "metadata" => list.metadata = decoder.decode()?,
                "items" => list.read_items(&mut decoder, kind, receive)?,
                _ => decoder.skip()?,
            }
        }
        decoder.finish()?;
        Ok(list)
    }

    fn read_items(
        &mut self,
        decoder: &mut Decoder<'_>,
        kind: &str,
        receive: &mut dyn FnMut(K),
    ) -> serde_json::Result<()>
    where
        K: DeserializeOwned,
    {
        let mut first = true;
        if !decoder.begin_array()? {
            return Ok(());
        }
        while decoder.next_item(&mut first)? {
            match decoder.decode() {
                Ok(item) => receive(item),
                Err(error) => {
                    let (key, _) = identify(decoder.take_text()?);
                    tracing::error!(%kind, object = key, %error, "object can't be decoded");
                    self.undecodable.push(key);
                }
            }
        }
        Ok(())
    }
}

/// Returns the token of the page after that with this metadata; none if it is the last.
pub(crate) fn continue_token(metadata: &ListMeta) -> Option<String> {
    let token = metadata.continue_.clone();
    token.filter(|token| !token.is_empty())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use k8s_openapi::api::core::v1::Pod;

    fn decode(text: &str) -> serde_json::Result<(String, Vec<String>, Vec<String>)> {
        let list = List::<Pod>::decode_page(text.as_bytes(), "Pod")?;
        let version = list.resource_version().to_owned();
        let names = list.items.into_iter().map(|pod| pod.metadata.name);
        Ok((
            version,
            names.map(Option::unwrap).collect(),
            list.undecodable,
        ))
    }

    #[test]
    fn objects_that_fail_are_named_beside_the_others() {
        let text = r#"{"items":[{"metadata":{"name":"a"}},{"metadata":{"name":"b","namespace":"n"},"spec":{"containers":5}},
            {"metadata":{"name":"c"},"status":{"startTime":null}}],"kind":"PodList","metadata":{"resourceVersion":"7"}}"#;
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let (version, decoded, undecodable) = decode(text).unwrap();
        assert_eq!(
            (version.as_str(), decoded, undecodable),
            ("7", names(&["a", "c"]), names(&["n/b"]))
        );
    }

    #[test]
    fn object_that_is_too_deep_does_not_hide_others() {
        let deep = format!("{}{}", "[".repeat(1_000), "]".repeat(1_000));
        let fields = format!(r#"{{"manager":"m","fieldsV1":{{"f:a":{deep}}}}}"#);
        let text = format!(
            r#"{{"items":[{{"metadata":{{"managedFields":[{fields}],"name":"a"}}}},{{"metadata":{{"name":"b"}}}}]}}"#
        );
        let expected = (String::new(), vec!["b".to_owned()], vec!["a".to_owned()]);
        assert_eq!(decode(&text).unwrap(), expected);
    }

    #[test]
    fn null_items_are_an_empty_list() {
        for text in [r#"{"items":null}"#, r#"{"metadata":{},"items":[]}"#, "{}"] {
            assert_eq!(
                decode(text).unwrap(),
                (String::new(), vec![], vec![]),
                "{text}"
            );
        }
    }

    #[test]
    fn document_that_is_no_list_is_an_error() {
        for text in [
            "null",
            "[]",
            "5",
            "",
            r#"{"items":5}"#,
            r#"{"items":[{}]"#,
            r#"{"items":[]}x"#,
        ] {
            assert!(decode(text).is_err(), "{text}");
        }
    }
}
