//! Image pulls: policies, credentials, back-off, and archives imported from a directory.

use crate::context::KubeletContext;
use crate::pod::memory::WaitingReason;
use crate::pod::spec;
use base64::Engine;
use k8s_openapi::api::core::v1::{Container, ObjectReference, Pod, Secret};
use node_runtime::v1::{AuthConfig, Image};
use serde_json::Value;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// The reason why an image is not available.
#[derive(Clone, Debug)]
pub(crate) struct ImageError {
    pub(crate) waiting: WaitingReason,
    /// A pull was tried, so the back-off advances.
    pub(crate) pulled: bool,
}

fn image_error(reason: &str, message: String, pulled: bool) -> ImageError {
    ImageError {
        waiting: WaitingReason {
            reason: reason.to_owned(),
            message,
        },
        pulled,
    }
}

/// Adds the default registry and tag to an image reference, as runtimes require.
pub(crate) fn normalize_reference(image: &str) -> Option<String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "./:@_-[]".contains(c);
    // The digest may contain a colon, so it is cut off before the tag is looked for.
    let (name, rest) = image.split_at(image.find('@').unwrap_or(image.len()));
    let (path, tag) = match name.rsplit_once(':') {
        Some((path, tag)) if !tag.contains('/') => (path, Some(tag)),
        _ => (name, None),
    };
    let lower = path
        .split('/')
        .skip(1)
        .all(|p| p.chars().all(|c| !c.is_ascii_uppercase()));
    let first_fine = path.contains('/') || path.chars().all(|c| !c.is_ascii_uppercase());
    let bad_edge = |p: &str| {
        p.is_empty() || p.starts_with(['.', '_', '-']) || p.ends_with(['.', '_', '-', ':'])
    };
    let invalid =
        !image.chars().all(fits) || !lower || !first_fine || path.split('/').any(bad_edge);
    if invalid
        || tag.is_some_and(|t| t.is_empty() || t.contains(':'))
        || path.split('/').skip(1).any(|p| p.contains(':'))
    {
        return None;
    }
    let first = path.split('/').next().unwrap_or_default();
    // Docker's rule: the first part is a host if it has a dot or a port, or is localhost.
    let registry = path.contains('/') && (first.contains(['.', ':']) || first == "localhost");
    let full = match (registry, path.contains('/')) {
        (true, _) => path.to_owned(),
        (false, true) => format!("docker.io/{path}"),
        (false, false) => format!("docker.io/library/{path}"),
    };
    let tag = match (tag, rest.is_empty()) {
        (Some(tag), _) => format!(":{tag}"),
        (None, true) => ":latest".to_owned(),
        (None, false) => String::new(),
    };
    Some(format!("{full}{tag}{rest}"))
}

/// Ensures that the node has the container's image. `back_off` is the remaining back-off of pulls
/// in seconds, if any.
pub(crate) async fn ensure_image(
    kubelet: &KubeletContext,
    pod: &Pod,
    container: &Container,
    about: &ObjectReference,
    back_off: Option<i64>,
) -> Result<Image, ImageError> {
    let given = container.image.as_deref().unwrap_or_default();
    // Normalized here: runtimes list images by their full name, and would not find the short one.
    let Some(image) = normalize_reference(given) else {
        return Err(reject_reference(kubelet, about, given));
    };
    let policy = container
        .image_pull_policy
        .as_deref()
        .unwrap_or("IfNotPresent");
    // Events and reasons are upstream's, in upstream's order: present image, policy Never,
    // back-off, pull.
    // An error counts as absent: the pull that follows reports the reason better.
    let present = kubelet
        .runtime
        .image_status(&image)
        .await
        .unwrap_or_default();
    if let (Some(found), true) = (&present, policy != "Always") {
        kubelet.recorder.normal(
            about,
            "Pulled",
            format!("Container image {given:?} already present on machine and can be accessed by the pod"),
        );
        return Ok(found.clone());
    }
    // Before the back-off: this failure does not end by waiting.
    if policy == "Never" {
        kubelet.recorder.warning(
            about,
            "ErrImageNeverPull",
            format!("Container image {given:?} is not present with pull policy of Never"),
        );
        return Err(image_error(
            "ErrImageNeverPull",
            format!("Container image {given:?} is not present with pull policy of Never"),
            false,
        ));
    }
    if let Some(seconds) = back_off {
        let message = format!("Back-off pulling image {given:?}");
        kubelet.recorder.normal(about, "BackOff", message.clone());
        tracing::debug!(image, seconds, "pull is backed off");
        // Not counted as a pull, or waiting would lengthen the back-off.
        return Err(image_error("ImagePullBackOff", message, false));
    }
    pull_image(kubelet, pod, given, &image, about).await
}

fn reject_reference(kubelet: &KubeletContext, about: &ObjectReference, given: &str) -> ImageError {
    kubelet.recorder.warning(
        about,
        "InspectFailed",
        format!("Failed to apply default image tag {given:?}: couldn't parse image name"),
    );
    let message = format!(
        "Failed to apply default image tag {given:?}: couldn't parse image name {given:?}: invalid reference format"
    );
    image_error("InvalidImageName", message, false)
}

async fn pull_image(
    kubelet: &KubeletContext,
    pod: &Pod,
    given: &str,
    image: &str,
    about: &ObjectReference,
) -> Result<Image, ImageError> {
    kubelet
        .recorder
        .normal(about, "Pulling", format!("Pulling image {given:?}"));
    let begun = Instant::now();
    let mut auths = read_credentials(kubelet, pod, image)
        .await
        .into_iter()
        .map(Some)
        .collect::<Vec<_>>();
    // Without credentials only if there are none: upstream does not fall back either.
    if auths.is_empty() {
        auths.push(None);
    }
    let mut last = String::new();
    for auth in auths {
        match kubelet.runtime.pull_image(image, auth, None).await {
            Ok(reference) => {
                let took = begun.elapsed().as_millis();
                // The pull returns a reference; id, size and user of the image are needed, too.
                let found = kubelet
                    .runtime
                    .image_status(&reference)
                    .await
                    .ok()
                    .flatten();
                let image = found.unwrap_or_else(|| Image {
                    id: reference,
                    ..Image::default()
                });
                let text = format!(
                    "Successfully pulled image {given:?} in {took}ms. Image size: {} bytes.",
                    image.size
                );
                kubelet.recorder.normal(about, "Pulled", text);
                return Ok(image);
            }
            // Several Secrets may name the registry; the next one may have the rights.
            Err(e) => last = e.to_string(),
        }
    }
    kubelet.recorder.warning(
        about,
        "Failed",
        format!("Failed to pull image {given:?}: {last}"),
    );
    kubelet
        .recorder
        .warning(about, "Failed", "Error: ErrImagePull");
    Err(image_error("ErrImagePull", last, true))
}

/// Returns credentials for the image's registry from the pod's imagePullSecrets.
async fn read_credentials(kubelet: &KubeletContext, pod: &Pod, image: &str) -> Vec<AuthConfig> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let registry = image.split('/').next().unwrap_or_default();
    let mut all = Vec::new();
    for reference in spec::read_spec(pod).image_pull_secrets.iter().flatten() {
        let secret: Result<Option<Arc<Secret>>, String> =
            kubelet.objects.get(namespace, &reference.name, true).await;
        // A missing Secret is no error for upstream either: the image may be public.
        let Ok(Some(secret)) = secret else { continue };
        for (key, value) in secret.data.iter().flatten() {
            // A broken Secret must not keep the others from being tried.
            let Ok(json) = serde_json::from_slice::<Value>(&value.0) else {
                continue;
            };
            let auths = if key == ".dockerconfigjson" {
                json.get("auths").cloned()
            } else {
                // The old format .dockercfg has no outer object.
                Some(json)
            };
            all.extend(find_matching_auths(auths.as_ref(), registry));
        }
    }
    all
}

fn find_matching_auths(auths: Option<&Value>, registry: &str) -> Vec<AuthConfig> {
    let host = |name: &str| {
        let name = name
            .trim_start_matches("https://")
            .trim_start_matches("http://");
        // Keys of Docker's files are URLs with a path, such as https://index.docker.io/v1/.
        let name = name.split('/').next().unwrap_or_default();
        if name == "index.docker.io" {
            "docker.io".to_owned()
        } else {
            name.to_owned()
        }
    };
    let entries = auths.and_then(Value::as_object).into_iter().flatten();
    entries
        .filter(|(name, _)| host(name) == registry)
        .map(|(_, entry)| auth_config(entry))
        .collect()
}

fn auth_config(entry: &Value) -> AuthConfig {
    let text = |key: &str| {
        entry
            .get(key)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let mut auth = AuthConfig {
        username: text("username"),
        password: text("password"),
        ..AuthConfig::default()
    };
    let decoded = base64::engine::general_purpose::STANDARD
        .decode(text("auth"))
        .ok();
    if let Some((user, password)) = decoded
        .as_deref()
        .and_then(|d| std::str::from_utf8(d).ok())
        .and_then(|t| t.split_once(':'))
    {
        auth.username = user.to_owned();
        auth.password = password.to_owned();
    }
    auth
}

/// Imports every archive of a directory with `ctr`; logs those that fail.
pub(crate) async fn preload_archives(folder: &Path, socket: &Path) {
    let listed = base_task::blocking(|| {
        let entries = std::fs::read_dir(folder)?.flatten();
        std::io::Result::Ok(entries.map(|e| e.path()).collect::<Vec<_>>())
    });
    let Ok(paths) = listed else {
        return tracing::warn!(folder = %folder.display(), "the directory of image archives can't be read");
    };
    for path in paths
        .into_iter()
        // Checksums and notes often stand beside the archives.
        .filter(|p| p.extension().is_some_and(|e| e == "tar"))
    {
        let mut command = tokio::process::Command::new("ctr");
        command
            .arg("--address")
            .arg(socket)
            .args(["-n", "k8s.io", "images", "import"])
            .arg(&path);
        match command.output().await {
            Ok(output) if output.status.success() => {
                tracing::info!(archive = %path.display(), "image archive imported")
            }
            Ok(output) => {
                let stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
                tracing::error!(archive = %path.display(), said = stderr, "image archive can't be imported");
            }
            Err(e) => tracing::error!(archive = %path.display(), error = %e, "ctr can't be run"),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn image_references_are_normalized() {
        for (given, want) in [
            ("busybox", Some("docker.io/library/busybox:latest")),
            ("busybox:1", Some("docker.io/library/busybox:1")),
            ("a/b", Some("docker.io/a/b:latest")),
            ("localhost/b:2", Some("localhost/b:2")),
            ("reg.example:5000/a/b", Some("reg.example:5000/a/b:latest")),
            ("r.io/a@sha256:abc", Some("r.io/a@sha256:abc")),
            ("Not A/Valid::name", None),
            ("Upper", None),
            ("a::b", None),
            ("", None),
        ] {
            assert_eq!(normalize_reference(given).as_deref(), want, "{given}");
        }
    }

    /// Ensures an image on a node whose runtime has none and cannot pull; returns the reason, and
    /// `true` if a pull was tried.
    async fn ensure(policy: &str, image: &str, back_off: Option<i64>) -> (String, bool) {
        let dir = tempfile::tempdir().unwrap();
        let kubelet = crate::testing::context(crate::testing::settings(dir.path()));
        let container = serde_json::json!({"name": "c", "image": image, "imagePullPolicy": policy});
        let pod = crate::testing::pod(serde_json::json!({"containers": [container]}));
        let container = spec::app_containers(&pod).next().unwrap();
        let about = ObjectReference::default();
        let result = ensure_image(&kubelet, &pod, container, &about, back_off).await;
        let error = result.unwrap_err();
        (error.waiting.reason, error.pulled)
    }

    #[tokio::test]
    async fn missing_image_is_pulled_unless_policy_or_back_off_forbid_it() {
        for (policy, back_off, reason, pulled) in [
            ("Always", None, "ErrImagePull", true),
            ("IfNotPresent", None, "ErrImagePull", true),
            ("Always", Some(10), "ImagePullBackOff", false),
            ("IfNotPresent", Some(10), "ImagePullBackOff", false),
            ("Never", None, "ErrImageNeverPull", false),
            ("Never", Some(10), "ErrImageNeverPull", false),
        ] {
            let found = ensure(policy, "i:1", back_off).await;
            assert_eq!(found, (reason.to_owned(), pulled), "{policy} {back_off:?}");
        }
        let invalid = ensure("Always", "In valid", None).await;
        assert_eq!(invalid, ("InvalidImageName".to_owned(), false));
    }

    #[test]
    fn credentials_are_those_of_the_registry_in_all_spellings() {
        let auths = serde_json::json!({
            "https://index.docker.io/v1/": {"username": "hub", "password": "1"},
            "reg.example:5000": {"auth": "dTpwOnE="},
            "https://reg.example:5000/v2": {"username": "second", "password": "2"},
            "other.example": {"username": "x"},
        });
        let of = |registry: &str| {
            let found = find_matching_auths(Some(&auths), registry);
            let users = found.into_iter().map(|a| (a.username, a.password));
            users.collect::<Vec<_>>()
        };
        let pair = |user: &str, password: &str| (user.to_owned(), password.to_owned());
        assert_eq!(of("docker.io"), [pair("hub", "1")]);
        // `auth` is the Base64 form of user and password; the password may have a colon.
        assert_eq!(
            of("reg.example:5000"),
            [pair("second", "2"), pair("u", "p:q")]
        );
        assert_eq!(of("none.example"), []);
    }
}
