//! References of pods to Secrets.

use k8s_openapi::api::core::v1::{
    Container, EnvFromSource, EnvVar, EphemeralContainer, Pod, PodSpec, Volume,
};

/// Returns whether a pod refers to the Secret `name` of its namespace.
pub fn refers_to_secret(pod: &Pod, name: &str) -> bool {
    let Some(spec) = &pod.spec else {
        return false;
    };
    let pulls = spec.image_pull_secrets.iter().flatten();
    let mut volumes = spec.volumes.iter().flatten();
    pulls.into_iter().any(|pull| pull.name == name)
        || volumes.any(|volume| volume_refers_to(volume, name))
        || containers_refer_to(spec, name)
}

fn containers_refer_to(spec: &PodSpec, name: &str) -> bool {
    let of = |c: &Container| reads_secret(c.env.as_deref(), c.env_from.as_deref(), name);
    let of_ephemeral =
        |c: &EphemeralContainer| reads_secret(c.env.as_deref(), c.env_from.as_deref(), name);
    spec.containers.iter().any(of)
        || spec.init_containers.iter().flatten().any(of)
        || spec.ephemeral_containers.iter().flatten().any(of_ephemeral)
}

fn reads_secret(env: Option<&[EnvVar]>, sources: Option<&[EnvFromSource]>, name: &str) -> bool {
    let mut variables = env.into_iter().flatten();
    let mut sources = sources.into_iter().flatten();
    variables.any(|variable| {
        let source = variable.value_from.as_ref();
        let key = source.and_then(|source| source.secret_key_ref.as_ref());
        key.is_some_and(|key| key.name == name)
    }) || sources.any(|source| {
        let secret = source.secret_ref.as_ref();
        secret.is_some_and(|secret| secret.name == name)
    })
}

fn volume_refers_to(volume: &Volume, name: &str) -> bool {
    let local = [
        volume.cephfs.as_ref().map(|v| &v.secret_ref),
        volume.cinder.as_ref().map(|v| &v.secret_ref),
        volume.csi.as_ref().map(|v| &v.node_publish_secret_ref),
        volume.flex_volume.as_ref().map(|v| &v.secret_ref),
        volume.iscsi.as_ref().map(|v| &v.secret_ref),
        volume.rbd.as_ref().map(|v| &v.secret_ref),
        volume.storageos.as_ref().map(|v| &v.secret_ref),
    ];
    let local = local.into_iter().flatten().flatten();
    let projected = volume.projected.as_ref();
    let mut projected = projected
        .and_then(|p| p.sources.as_ref())
        .into_iter()
        .flatten();
    let scale = volume.scale_io.as_ref();
    let azure = volume.azure_file.as_ref();
    let secret = volume.secret.as_ref().and_then(|s| s.secret_name.as_ref());
    local.into_iter().any(|reference| reference.name == name)
        || projected.any(|source| source.secret.as_ref().is_some_and(|s| s.name == name))
        || scale.is_some_and(|scale| scale.secret_ref.name == name)
        || azure.is_some_and(|azure| azure.secret_name == name)
        || secret.is_some_and(|secret| secret == name)
}
