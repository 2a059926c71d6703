//! The content of ConfigMap, Secret, downward API and projected volumes.

use super::objects::{Found, Objects};
use super::token::Tokens;
use crate::cri_config::fields::{self, Addresses};
use crate::pod::spec;
use api_meta::Quantity;
use client::Client;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    ConfigMap, DownwardAPIVolumeFile, KeyToPath, Pod, ProjectedVolumeSource, Secret, Volume,
};
use node_volumes::{Payload, PayloadFile};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Inputs of the contents.
pub(crate) struct Sources<'a> {
    pub(crate) pod: &'a Pod,
    pub(crate) objects: &'a Objects,
    pub(crate) client: Option<&'a Client>,
    pub(crate) tokens: &'a Tokens,
    pub(crate) addresses: &'a Addresses,
    pub(crate) allocatable: &'a BTreeMap<String, Quantity>,
}

/// A volume's content, and the latest time of its next refresh.
pub(crate) struct Content {
    pub(crate) files: Payload,
    pub(crate) refresh_at: Option<Timestamp>,
}

const DEFAULT_MODE: i32 = 0o644;

/// Returns the content of a volume; None if the volume is of another type.
pub(crate) async fn build_content(
    volume: &Volume,
    sources: &Sources<'_>,
) -> Option<Result<Content, String>> {
    // Only tokens expire. The other sources are written again when their object changes.
    let plain = |files: Result<Payload, String>| {
        Some(files.map(|files| Content {
            files,
            refresh_at: None,
        }))
    };
    if let Some(source) = &volume.config_map {
        let mode = source.default_mode.unwrap_or(DEFAULT_MODE);
        return plain(
            read_config_map(
                sources,
                &source.name,
                source.items.as_deref(),
                mode,
                source.optional,
            )
            .await,
        );
    }
    if let Some(source) = &volume.secret {
        let mode = source.default_mode.unwrap_or(DEFAULT_MODE);
        let name = source.secret_name.as_deref().unwrap_or_default();
        return plain(
            read_secret(
                sources,
                name,
                source.items.as_deref(),
                mode,
                source.optional,
            )
            .await,
        );
    }
    if let Some(source) = &volume.downward_api {
        let mode = source.default_mode.unwrap_or(DEFAULT_MODE);
        return plain(read_downward(
            sources,
            source.items.as_deref().unwrap_or_default(),
            mode,
        ));
    }
    match &volume.projected {
        Some(source) => Some(read_projected(sources, source).await),
        None => None,
    }
}

fn mode_bits(mode: i32) -> u32 {
    // File type bits must not reach chmod.
    u32::try_from(mode).unwrap_or(0o644) & 0o7777
}

fn payload_file(data: Vec<u8>, mode: i32) -> PayloadFile {
    PayloadFile {
        data,
        mode: mode_bits(mode),
        uid: None,
    }
}

async fn read_config_map(
    sources: &Sources<'_>,
    name: &str,
    items: Option<&[KeyToPath]>,
    mode: i32,
    optional: Option<bool>,
) -> Result<Payload, String> {
    let namespace = sources
        .pod
        .metadata
        .namespace
        .as_deref()
        .unwrap_or_default();
    let optional = optional.unwrap_or(false);
    let map: Option<Arc<ConfigMap>> = sources.objects.get(namespace, name, optional).await?;
    let Some(map) = map else {
        return Ok(Payload::new());
    };
    let text = map
        .data
        .iter()
        .flatten()
        .map(|(k, v)| (k.clone(), v.clone().into_bytes()));
    let binary = map
        .binary_data
        .iter()
        .flatten()
        .map(|(k, v)| (k.clone(), v.0.clone()));
    choose_keys(
        // Validation rejects a key in both maps, so that the order does not matter.
        text.chain(binary).collect(),
        items,
        mode,
        optional,
        ConfigMap::KIND_NAME,
    )
}

async fn read_secret(
    sources: &Sources<'_>,
    name: &str,
    items: Option<&[KeyToPath]>,
    mode: i32,
    optional: Option<bool>,
) -> Result<Payload, String> {
    let namespace = sources
        .pod
        .metadata
        .namespace
        .as_deref()
        .unwrap_or_default();
    let optional = optional.unwrap_or(false);
    let secret: Option<Arc<Secret>> = sources.objects.get(namespace, name, optional).await?;
    let Some(secret) = secret else {
        return Ok(Payload::new());
    };
    let data = secret
        .data
        .iter()
        .flatten()
        .map(|(k, v)| (k.clone(), v.0.clone()))
        .collect();
    choose_keys(data, items, mode, optional, Secret::KIND_NAME)
}

fn choose_keys(
    mut data: BTreeMap<String, Vec<u8>>,
    items: Option<&[KeyToPath]>,
    mode: i32,
    optional: bool,
    word: &str,
) -> Result<Payload, String> {
    let items = items.unwrap_or_default();
    if items.is_empty() {
        return Ok(data
            .into_iter()
            .map(|(key, data)| (key, payload_file(data, mode)))
            .collect());
    }
    let mut files = Payload::new();
    for item in items {
        match data.get_mut(&item.key) {
            Some(data) => {
                files.insert(
                    item.path.clone(),
                    payload_file(data.clone(), item.mode.unwrap_or(mode)),
                );
            }
            // An optional key that is missing leaves out its file; the others are written.
            None if optional => {}
            None => return Err(format!("references non-existent {word} key: {}", item.key)),
        }
    }
    Ok(files)
}

fn read_downward(
    sources: &Sources<'_>,
    items: &[DownwardAPIVolumeFile],
    mode: i32,
) -> Result<Payload, String> {
    let mut files = Payload::new();
    for item in items {
        let value = match (&item.field_ref, &item.resource_field_ref) {
            (Some(reference), _) => {
                fields::read_field(sources.pod, &reference.field_path, sources.addresses)?
            }
            (None, Some(selector)) => {
                let name = selector.container_name.as_deref().unwrap_or_default();
                let (_, container) = spec::find_container(sources.pod, name)
                    .ok_or_else(|| format!("no container is named {name:?}"))?;
                fields::read_resource(&container, selector, sources.allocatable)?
            }
            (None, None) => return Err(format!("{} has no source", item.path)),
        };
        files.insert(
            item.path.clone(),
            payload_file(value.into_bytes(), item.mode.unwrap_or(mode)),
        );
    }
    Ok(files)
}

async fn read_projected(
    sources: &Sources<'_>,
    volume: &ProjectedVolumeSource,
) -> Result<Content, String> {
    let mode = volume.default_mode.unwrap_or(DEFAULT_MODE);
    let mut files = Payload::new();
    let mut refresh_at: Option<Timestamp> = None;
    for source in volume.sources.iter().flatten() {
        if let Some(s) = &source.config_map {
            files.extend(
                read_config_map(sources, &s.name, s.items.as_deref(), mode, s.optional).await?,
            );
        }
        if let Some(s) = &source.secret {
            files
                .extend(read_secret(sources, &s.name, s.items.as_deref(), mode, s.optional).await?);
        }
        if let Some(s) = &source.downward_api {
            files.extend(read_downward(
                sources,
                s.items.as_deref().unwrap_or_default(),
                mode,
            )?);
        }
        if let Some(s) = &source.service_account_token {
            let (token, again) = sources.tokens.get(sources.client, sources.pod, s).await?;
            // The token that expires first decides, because all files of a volume are replaced
            // together.
            refresh_at = Some(refresh_at.map_or(again, |at| at.min(again)));
            files.insert(s.path.clone(), token_file(sources.pod, token, mode));
        }
    }
    Ok(Content { files, refresh_at })
}

/// Returns a token's file. With one user for all containers only that user may read it; with an
/// fsGroup the group too.
fn token_file(pod: &Pod, token: String, mode: i32) -> PayloadFile {
    let context = spec::read_spec(pod)
        .security_context
        .clone()
        .unwrap_or_default();
    // The group of the volume reads it; the owner is root.
    if context.fs_group.is_some() {
        return payload_file(token.into_bytes(), 0o640);
    }
    let own = |c: &k8s_openapi::api::core::v1::Container| {
        c.security_context
            .as_ref()
            .and_then(|s| s.run_as_user)
            .or(context.run_as_user)
    };
    // Init containers count too: a token that only the app's user can read would break them.
    let users: Vec<Option<i64>> = spec::init_containers(pod)
        .map(|(_, c)| own(c))
        .chain(spec::app_containers(pod).map(own))
        .collect();
    match users.first() {
        // With several users no single owner fits, and the mode of the volume stays.
        Some(Some(user)) if users.iter().all(|u| u == &Some(*user)) => PayloadFile {
            data: token.into_bytes(),
            mode: 0o600,
            uid: u32::try_from(*user).ok(),
        },
        _ => payload_file(token.into_bytes(), mode),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::{Value, json};

    fn choose(items: Value, optional: bool) -> Result<Vec<(String, u32)>, String> {
        let items: Option<Vec<KeyToPath>> = serde_json::from_value(items).unwrap();
        let data = BTreeMap::from([
            ("a".to_owned(), b"1".to_vec()),
            ("b".to_owned(), b"2".to_vec()),
        ]);
        let files = choose_keys(data, items.as_deref(), 0o640, optional, "configmap")?;
        Ok(files
            .into_iter()
            .map(|(path, file)| (path, file.mode))
            .collect())
    }

    #[test]
    fn items_choose_keys_paths_and_modes() {
        let file = |path: &str, mode| (path.to_owned(), mode);
        let all = vec![file("a", 0o640), file("b", 0o640)];
        assert_eq!(choose(Value::Null, false), Ok(all.clone()));
        assert_eq!(choose(json!([]), false), Ok(all));
        let some = json!([{"key": "b", "path": "sub/x", "mode": 0o400}]);
        assert_eq!(choose(some, false), Ok(vec![file("sub/x", 0o400)]));
        let missing = json!([{"key": "none", "path": "x"}]);
        assert_eq!(choose(missing.clone(), true), Ok(Vec::new()));
        let error = choose(missing, false).unwrap_err();
        assert_eq!(error, "references non-existent configmap key: none");
    }

    /// The token must not be readable for other users of the pod.
    #[test]
    fn token_file_belongs_to_the_only_user_or_to_the_group() {
        let user =
            |name: &str, user: Value| json!({"name": name, "securityContext": {"runAsUser": user}});
        for (spec, mode, uid) in [
            (
                json!({"containers": [user("a", json!(7)), user("b", json!(7))]}),
                0o600,
                Some(7),
            ),
            (
                json!({"containers": [user("a", json!(7)), user("b", json!(8))]}),
                0o644,
                None,
            ),
            (
                json!({"containers": [user("a", json!(7)), user("b", Value::Null)]}),
                0o644,
                None,
            ),
            (
                json!({"containers": [{"name": "a"}], "securityContext": {"runAsUser": 9}}),
                0o600,
                Some(9),
            ),
            (
                json!({"containers": [user("a", json!(7))], "securityContext": {"fsGroup": 5}}),
                0o640,
                None,
            ),
        ] {
            let pod = crate::testing::pod(spec.clone());
            let file = token_file(&pod, "t".into(), 0o644);
            assert_eq!((file.mode, file.uid), (mode, uid), "{spec}");
        }
    }
}
