//! Starting a container: image, configuration, creation, start, postStart.

use super::messages::{Message, StartError};
use super::mounts::{MountSources, build_mounts, needs_recursive_read_only};
use super::observe::{list_name, read_container};
use super::probing::ContainerCommands;
use crate::context::{KubeletContext, build_reference};
use crate::cri_config::container::{self, Parts};
use crate::cri_config::env::{self, Environment, Sources};
use crate::cri_config::fields::Addresses;
use crate::cri_config::sandbox;
use crate::cri_config::security::{ImageUser, Seccomp};
use crate::images;
use crate::pod::backoff::FailedStep;
use crate::pod::memory::WaitingReason;
use crate::pod::spec;
use crate::pod::view::CriContainer;
use crate::volumes::Volumes;
use crate::worker::hook_timeout::hook_timeout;
use crate::worker::runtime_handler::read_runtime_handler;
use base_task::CancellationToken;
use k8s_openapi::api::core::v1::{Container, ObjectReference, Pod};
use node_probes::{CheckResult, resolve_hook_handler};
use node_runtime::v1::{CdiDevice, ContainerConfig, Image, Mount, PodSandboxConfig};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;

/// The inputs of a container's start.
pub(crate) struct Start {
    pub(crate) kubelet: Arc<KubeletContext>,
    pub(crate) pod: Arc<Pod>,
    pub(crate) name: String,
    pub(crate) attempt: u32,
    pub(crate) sandbox_id: String,
    pub(crate) sandbox_attempt: u32,
    pub(crate) addresses: Addresses,
    pub(crate) volumes: Volumes,
    /// Remaining seconds of the pull's back-off.
    pub(crate) back_off: Option<i64>,
    /// CRI container whose process namespace an ephemeral container shares.
    pub(crate) target: Option<String>,
    pub(crate) inbox: UnboundedSender<Message>,
    pub(crate) is_static: bool,
    /// Cancelled when the pod terminates: aborts pulls and hooks.
    pub(crate) abort: CancellationToken,
}

fn start_error(reason: &str, message: impl Into<String>) -> StartError {
    let waiting = WaitingReason {
        reason: reason.to_owned(),
        message: message.into(),
    };
    StartError {
        waiting,
        step: FailedStep::Preparation,
    }
}

impl Start {
    /// Starts the container and returns its status once it runs.
    pub(crate) async fn run(self) -> Result<CriContainer, StartError> {
        let Some((_, container)) = spec::find_container(&self.pod, &self.name) else {
            return Err(start_error(
                "CreateContainerConfigError",
                "the container is no longer in the spec",
            ));
        };
        let about = build_reference(
            &self.pod,
            Some((list_name(&self.pod, &self.name), &self.name)),
        );
        // The order is upstream's, and clients see it in the events: pull, create, start, postStart
        // hook.
        let image = self.ensure_image(&container, &about).await?;
        let volume_images = self.ensure_volume_images(&container, &about).await?;
        let id = match self
            .create_container(&container, &image, &volume_images)
            .await
        {
            Ok(id) => id,
            Err(e) => {
                self.kubelet.recorder.warning(
                    &about,
                    "Failed",
                    format!("Error: {}", e.waiting.message),
                );
                return Err(e);
            }
        };
        self.kubelet.recorder.normal(
            &about,
            "Created",
            format!("Container created: {}", self.name),
        );
        if let Err(e) = self.start_created(&id).await {
            self.kubelet.recorder.warning(
                &about,
                "Failed",
                format!("Error: {}", e.waiting.message),
            );
            return Err(e);
        }
        self.kubelet.recorder.normal(
            &about,
            "Started",
            format!("Container started: {}", self.name),
        );
        // A container that exits at once is returned as exited and counts for the restart back-off.
        let running = self.read_started(&id).await?;
        self.run_post_start(&container, &about, &running).await?;
        Ok(running)
    }

    /// Pulls the container's image if its policy says so.
    async fn ensure_image(
        &self,
        container: &Container,
        about: &ObjectReference,
    ) -> Result<Image, StartError> {
        let image = tokio::select! {
            // The reason of a container that was never tried: the pod terminates and no failure is
            // to be shown.
            () = self.abort.cancelled() => return Err(start_error("ContainerCreating", "")),
            image = images::ensure_image(&self.kubelet, &self.pod, container, about, self.back_off) => image,
        };
        image.map_err(|e| {
            let backed_off = e.waiting.reason == "ImagePullBackOff";
            let step = match (e.pulled, backed_off) {
                (true, _) => FailedStep::Pull,
                (false, true) => FailedStep::PullBackOff,
                (false, false) => FailedStep::Preparation,
            };
            if backed_off {
                self.kubelet
                    .recorder
                    .warning(about, "Failed", "Error: ImagePullBackOff");
            }
            StartError {
                waiting: e.waiting,
                step,
            }
        })
    }

    /// Pulls the images of the container's image volumes; returns their ids by volume name.
    async fn ensure_volume_images(
        &self,
        container: &Container,
        about: &ObjectReference,
    ) -> Result<BTreeMap<String, String>, StartError> {
        let mut found = BTreeMap::new();
        for volume in spec::read_spec(&self.pod).volumes.iter().flatten() {
            let Some(source) = &volume.image else {
                continue;
            };
            if !container
                .volume_mounts
                .iter()
                .flatten()
                .any(|m| m.name == volume.name)
            {
                continue;
            }
            let image_source = Container {
                image: source.reference.clone(),
                image_pull_policy: source.pull_policy.clone(),
                ..Container::default()
            };
            found.insert(
                volume.name.clone(),
                self.ensure_image(&image_source, about).await?.id,
            );
        }
        Ok(found)
    }

    async fn create_container(
        &self,
        spec: &Container,
        image: &Image,
        volume_images: &BTreeMap<String, String>,
    ) -> Result<String, StartError> {
        let config_error = |why: String| start_error("CreateContainerConfigError", why);
        let sources = Sources {
            objects: &self.kubelet.objects,
            // Read at the start of each container, so that a restart sees Services that were
            // created later.
            services: self.kubelet.list_services(self.is_static).await,
            addresses: self.addresses.clone(),
            allocatable: &self.kubelet.allocatable,
        };
        let environment = env::build_environment(&self.pod, spec, &sources)
            .await
            .map_err(config_error)?;
        // The mounts need the environment for subPathExpr.
        let sources = MountSources {
            kubelet: &self.kubelet,
            pod: &self.pod,
            container: spec,
            volumes: &self.volumes,
            environment: &environment,
            ips: &self.addresses.pod_ips,
            attempt: self.attempt,
            images: volume_images,
            recursive: self
                .supports_recursive_read_only(spec)
                .await
                .map_err(config_error)?,
        };
        // Sub-paths are bind-mounted here and not with the volumes, because subPathExpr needs the
        // environment.
        let mounts = base_task::blocking(|| build_mounts(&sources)).map_err(config_error)?;
        let mut config = self
            .build_config(spec, image, environment, mounts)
            .map_err(config_error)?;
        let devices = self.kubelet.devices.list_cdi_devices(&self.pod, spec);
        let devices = devices.map_err(|error| config_error(error.to_string()))?;
        config.cdi_devices = devices.into_iter().map(|name| CdiDevice { name }).collect();
        let sandbox = base_task::blocking(|| {
            self.create_log_dir()?;
            self.sandbox_config()
        });
        let sandbox = sandbox.map_err(config_error)?;
        let _turn = self.kubelet.starts.acquire().await;
        let made = self
            .kubelet
            .runtime
            .create_container(&self.sandbox_id, config, sandbox)
            .await;
        made.map_err(|e| start_error("CreateContainerError", e.to_string()))
    }

    fn build_config(
        &self,
        spec: &Container,
        image: &Image,
        environment: Environment,
        mounts: Vec<Mount>,
    ) -> Result<ContainerConfig, String> {
        let profiles = self.kubelet.seccomp_profiles();
        let parts = Parts {
            attempt: self.attempt,
            environment,
            mounts,
            image_ref: image.id.clone(),
            image_user: ImageUser {
                uid: image.uid.as_ref().map(|u| u.value),
                name: image.username.clone(),
            },
            target: self.target.clone(),
            seccomp: Seccomp {
                profiles: &profiles,
                default: self.kubelet.settings.seccomp_default,
            },
            memory_capacity: self.kubelet.memory_capacity(),
            least_oom_score: self.kubelet.least_oom_score,
        };
        container::build_container_config(&self.pod, spec, parts)
    }

    /// Returns whether the runtime supports recursive read-only mounts; reads the handler only if a
    /// mount needs it.
    async fn supports_recursive_read_only(&self, spec: &Container) -> Result<bool, String> {
        if !needs_recursive_read_only(spec) {
            return Ok(false);
        }
        let handler = read_runtime_handler(&self.kubelet, &self.pod).await?;
        Ok(self
            .kubelet
            .features
            .read()
            .recursive_read_only
            .contains(&handler))
    }

    fn create_log_dir(&self) -> Result<(), String> {
        let logs = sandbox::log_dir(&self.kubelet.settings, &self.pod).join(&self.name);
        std::fs::create_dir_all(&logs).map_err(|e| format!("can't create {}: {e}", logs.display()))
    }

    fn sandbox_config(&self) -> Result<PodSandboxConfig, String> {
        let resolv =
            std::fs::read_to_string(&self.kubelet.settings.resolv_conf).unwrap_or_default();
        let cgroup = self.kubelet.cgroups.pod_path(&self.pod);
        sandbox::build_sandbox_config(
            &self.pod,
            &self.kubelet.settings,
            cgroup,
            self.sandbox_attempt,
            &resolv,
        )
    }

    async fn start_created(&self, id: &str) -> Result<(), StartError> {
        let _turn = self.kubelet.starts.acquire().await;
        let started = self.kubelet.runtime.start_container(id).await;
        started.map_err(|e| StartError {
            step: FailedStep::Created,
            ..start_error("RunContainerError", e.to_string())
        })
    }

    async fn read_started(&self, id: &str) -> Result<CriContainer, StartError> {
        let made = |why: String| StartError {
            step: FailedStep::Created,
            ..start_error("RunContainerError", why)
        };
        let found = read_container(&self.kubelet, &self.pod, id)
            .await
            .map_err(|e| made(e.to_string()))?;
        found.ok_or_else(|| made("the container vanished".into()))
    }

    async fn run_post_start(
        &self,
        spec: &Container,
        about: &ObjectReference,
        running: &CriContainer,
    ) -> Result<(), StartError> {
        let Some(hook) = spec.lifecycle.as_ref().and_then(|l| l.post_start.as_ref()) else {
            return Ok(());
        };
        // Fails only if the worker has stopped.
        let _ = self.inbox.send(Message::Started(running.clone()));
        let ip = self
            .addresses
            .pod_ips
            .first()
            .map(String::as_str)
            .unwrap_or_default();
        let handler = resolve_hook_handler(hook, spec, ip);
        let commands = ContainerCommands {
            kubelet: self.kubelet.clone(),
            id: running.id.clone(),
        };
        let outcome = tokio::select! {
            // The container runs and is stopped like the others; a hook of a pod that ends is not a
            // failure.
            () = self.abort.cancelled() => return Ok(()),
            outcome = node_probes::run_check(&handler, hook_timeout(&handler), &commands) => outcome,
        };
        let why = match outcome {
            CheckResult::Completed(node_probes::Health::Healthy, _) => return Ok(()),
            CheckResult::Completed(node_probes::Health::Unhealthy, why)
            | CheckResult::Unknown(why) => why,
        };
        self.kubelet.recorder.warning(
            about,
            "FailedPostStartHook",
            format!("PostStartHook failed: {why}"),
        );
        self.kubelet
            .recorder
            .normal(about, "Killing", "FailedPostStartHook");
        // Upstream kills a container whose hook failed and lets the restart policy decide.
        let grace =
            Duration::from_secs(u64::try_from(spec::grace_seconds(&self.pod)).unwrap_or_default());
        if let Err(e) = self
            .kubelet
            .runtime
            .stop_container(&running.id, grace)
            .await
        {
            tracing::warn!(container = self.name, error = %e, "container with a failed postStart hook can't be stopped");
        }
        Err(StartError {
            step: FailedStep::Created,
            ..start_error("PostStartHookError", why)
        })
    }
}
