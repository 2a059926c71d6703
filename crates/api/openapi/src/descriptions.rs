//! Descriptions of types and fields, from the sources of k8s-openapi (see `build.rs`).
//!
//! They are decompressed while a document is built and dropped afterwards, because a server needs
//! them only once.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::Read;

static PACKED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptions.gz"));

/// The decompressed text with an index.
pub(crate) struct Descriptions {
    text: String,
    index: HashMap<u64, (u32, u32)>,
}

impl Descriptions {
    pub(crate) fn load() -> Self {
        let mut text = String::new();
        if flate2::read::GzDecoder::new(PACKED)
            .read_to_string(&mut text)
            .is_err()
        {
            // A document without descriptions is still valid, and clients need its schemas.
            text.clear();
        }
        let mut index = HashMap::new();
        let mut start = 0;
        for line in text.split('\n') {
            if let Some((key, value)) = line.split_once('\t') {
                let at = start + key.len() + 1;
                // Offsets of 32 bits halve the index. The whole text is far smaller than 4 GiB.
                if let (Ok(from), Ok(to)) = (u32::try_from(at), u32::try_from(at + value.len())) {
                    index.insert(hash_key(key), (from, to));
                }
            }
            start += line.len() + 1;
        }
        Self { text, index }
    }

    fn get(&self, key: &str) -> Option<String> {
        let (from, to) = self.index.get(&hash_key(key))?;
        let raw = self
            .text
            .get(usize::try_from(*from).ok()?..usize::try_from(*to).ok()?)?;
        Some(unescape_text(raw).into_owned())
    }

    /// Returns the description of a type by its OpenAPI name.
    pub(crate) fn of_type(&self, name: &str) -> Option<String> {
        self.get(name)
    }

    /// Returns the description of a field.
    pub(crate) fn of_field(&self, name: &str, field: &str) -> Option<String> {
        self.get(&format!("{name}.{field}"))
    }
}

// Keys are looked up by hash, so that the index holds no text.
fn hash_key(key: &str) -> u64 {
    use std::hash::{Hash, Hasher};
    let mut hasher = std::hash::DefaultHasher::new();
    key.hash(&mut hasher);
    hasher.finish()
}

/// Returns the text of a Rust string literal.
fn unescape_text(raw: &str) -> Cow<'_, str> {
    if !raw.contains('\\') {
        return Cow::Borrowed(raw);
    }
    let mut out = String::with_capacity(raw.len());
    let mut chars = raw.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('n') => out.push('\n'),
            Some('t') => out.push('\t'),
            Some('r') => out.push('\r'),
            Some('u') => {
                let code: String = chars.by_ref().skip(1).take_while(|c| *c != '}').collect();
                out.extend(u32::from_str_radix(&code, 16).ok().and_then(char::from_u32));
            }
            Some(other) => out.push(other),
            None => {}
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_are_found_by_key() {
        let descriptions = Descriptions::load();
        let text = descriptions
            .of_field("io.k8s.api.core.v1.ContainerPort", "protocol")
            .unwrap_or_default();
        assert!(text.contains("Defaults to \"TCP\""), "{text}");
        let text = descriptions
            .of_field("io.k8s.api.apps.v1.DeploymentSpec", "strategy")
            .unwrap_or_default();
        assert!(text.contains("strategy"), "{text}");
        assert!(descriptions.of_type("io.k8s.api.core.v1.Pod").is_some());
    }
}
