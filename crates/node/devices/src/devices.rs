//! Preparation and release of the claims of pods.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;

use api_semantics::devices::{ClaimName, claim_name, claims_of_pod, is_reserved_for};
use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::api::resource::v1::ResourceClaim;
use parking_lot::Mutex;
use proto_plugins::dra::v1::Claim;

use crate::checkpoint::{Checkpoint, ClaimState, Claims};
use crate::error::DeviceError;
use crate::plugin::Plugin;
use crate::plugins::Plugins;

/// The devices of the pods of a node.
#[derive(Debug)]
pub struct Devices {
    plugins: Plugins,
    checkpoint: Checkpoint,
    claims: Mutex<Claims>,
    /// Held during the calls of a driver: a claim that several pods share is prepared once, and is
    /// not released while another pod begins to use it.
    drivers: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

impl Devices {
    /// Reads what a predecessor prepared from a file.
    ///
    /// # Errors
    /// The file can't be read.
    pub fn open(file: &Path) -> Result<Self, DeviceError> {
        let checkpoint = Checkpoint(file.to_owned());
        let claims = Mutex::new(checkpoint.read()?);
        Ok(Self {
            plugins: Plugins::default(),
            checkpoint,
            claims,
            drivers: Mutex::default(),
        })
    }

    /// Returns the plugins.
    pub fn plugins(&self) -> &Plugins {
        &self.plugins
    }

    /// Returns whether the devices of all claims of a pod are prepared.
    pub fn is_prepared(&self, pod: &Pod) -> bool {
        let mut entries = claims_of_pod(pod).iter();
        entries.all(|entry| self.list_devices(pod, &entry.name, None).is_ok())
    }

    /// Prepares the devices of a pod's claims, which the caller has read from the API server.
    ///
    /// # Errors
    /// A claim is not allocated to the pod, or a plugin failed. The call may be repeated.
    pub async fn prepare_pod(
        &self,
        pod: &Pod,
        claims: &[ResourceClaim],
    ) -> Result<(), DeviceError> {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let mut drivers = BTreeSet::new();
        let mut states = Vec::new();
        for claim in claims {
            let (id, state) = describe_claim(claim, uid)?;
            drivers.extend(state.drivers.keys().cloned());
            states.push((id, state));
        }
        self.check_allocations(&states)?;
        // A pod whose driver was never here must not wait for its release.
        for driver in &drivers {
            self.list_plugins(driver)?;
        }
        // Before the first call: a kubelet that ends during the call must know whom to release.
        self.change(|known| {
            for (id, state) in states.iter().cloned() {
                let known = known.0.entry(id).or_default();
                known.pods.insert(uid.to_owned());
                known.leaving.remove(uid);
                (known.namespace, known.name) = (state.namespace, state.name);
                known.allocation = state.allocation;
                for (driver, state) in state.drivers {
                    known.drivers.entry(driver).or_insert(state);
                }
            }
        })?;
        let ids: Vec<String> = states.into_iter().map(|(id, _)| id).collect();
        for driver in drivers {
            self.prepare_driver(&driver, &ids).await?;
        }
        Ok(())
    }

    /// Rejects claims that got other devices while a pod that was deleted by force still has the
    /// former ones.
    fn check_allocations(&self, states: &[(String, ClaimState)]) -> Result<(), DeviceError> {
        let known = self.claims.lock();
        let differs = |(id, state): &&(String, ClaimState)| {
            let known = known.0.get(id);
            known.is_some_and(|known| known.allocation != state.allocation)
        };
        match states.iter().find(differs) {
            None => Ok(()),
            Some((_, state)) => Err(DeviceError::Claim {
                claim: format!("ResourceClaim {}/{}", state.namespace, state.name),
                why: "its former devices are not released yet".to_owned(),
            }),
        }
    }

    async fn prepare_driver(&self, driver: &str, ids: &[String]) -> Result<(), DeviceError> {
        let lock = self.lock_of(driver);
        let _held = lock.lock().await;
        let wanted = self.list_claims(driver, ids, false);
        if wanted.is_empty() {
            return Ok(());
        }
        let plugin = self.find_plugin(driver).await?;
        let prepared = plugin.prepare(wanted).await;
        let prepared = prepared.map_err(|why| plugin_error(driver, why))?;
        self.change(|known| {
            for (id, devices) in prepared {
                let claim = known.0.get_mut(&id);
                if let Some(state) = claim.and_then(|claim| claim.drivers.get_mut(driver)) {
                    (state.prepared, state.devices) = (true, devices);
                }
            }
        })
    }

    /// Returns the claims of a driver that it has prepared, or has not.
    fn list_claims(&self, driver: &str, ids: &[String], prepared: bool) -> Vec<Claim> {
        let known = self.claims.lock();
        let claims = ids.iter().filter_map(|id| {
            let claim = known.0.get(id)?;
            let state = claim.drivers.get(driver)?;
            (state.prepared == prepared).then(|| to_message(id, claim))
        });
        claims.collect()
    }

    /// Releases the claims of a pod that no other pod uses here.
    ///
    /// # Errors
    /// A plugin failed. The call may be repeated.
    pub async fn release_pod(&self, uid: &str) -> Result<(), DeviceError> {
        for (id, drivers) in self.claims_of(uid) {
            // One step: of several pods that leave at the same time one sees that it is the last.
            let mut last = false;
            self.change(|known| {
                if let Some(claim) = known.0.get_mut(&id) {
                    last = leave(claim, uid);
                }
            })?;
            if !last {
                continue;
            }
            for driver in drivers {
                self.release_driver(&id, &driver).await?;
            }
            self.change(|known| {
                if let Some(claim) = known.0.get_mut(&id) {
                    claim.pods.remove(uid);
                    claim.leaving.remove(uid);
                }
                // A pod that began to use the claim in the meantime prepares it again.
                known.0.retain(|_, claim| !claim.pods.is_empty());
            })?;
            tracing::debug!(claim = id, "claim released by its last pod");
        }
        Ok(())
    }

    /// Calls a driver for a claim that all pods leave, unless another pod has begun to use it.
    async fn release_driver(&self, id: &str, driver: &str) -> Result<(), DeviceError> {
        let lock = self.lock_of(driver);
        let _held = lock.lock().await;
        let claim = self.claims.lock().0.get(id).cloned();
        let Some(claim) = claim.filter(has_no_users) else {
            return Ok(());
        };
        let plugin = self.find_plugin(driver).await?;
        // Also what was not prepared: the response of a preparation may have been lost.
        let released = plugin.unprepare(to_message(id, &claim)).await;
        released.map_err(|why| plugin_error(driver, why))?;
        self.change(|known| {
            let claim = known.0.get_mut(id);
            if let Some(state) = claim.and_then(|claim| claim.drivers.get_mut(driver)) {
                (state.prepared, state.devices) = (false, Vec::new());
            }
        })
    }

    /// Returns the newest plugin of a driver that accepts connections.
    async fn find_plugin(&self, driver: &str) -> Result<Plugin, DeviceError> {
        let plugins = self.list_plugins(driver)?;
        if plugins.len() > 1 {
            for plugin in &plugins {
                if plugin.is_reachable().await {
                    return Ok(plugin.clone());
                }
            }
        }
        let newest = plugins.into_iter().next();
        newest.ok_or_else(|| DeviceError::NotRegistered(driver.to_owned()))
    }

    fn list_plugins(&self, driver: &str) -> Result<Vec<Plugin>, DeviceError> {
        let plugins = self.plugins.list(driver);
        if plugins.is_empty() {
            return Err(DeviceError::NotRegistered(driver.to_owned()));
        }
        Ok(plugins)
    }

    fn claims_of(&self, uid: &str) -> Vec<(String, Vec<String>)> {
        let known = self.claims.lock();
        let claims = known.0.iter().filter(|(_, claim)| claim.pods.contains(uid));
        claims
            .map(|(id, claim)| (id.clone(), claim.drivers.keys().cloned().collect()))
            .collect()
    }

    /// Returns whether a pod has claims that are not released yet.
    pub fn holds_claims(&self, uid: &str) -> bool {
        !self.claims_of(uid).is_empty()
    }

    /// Returns the UIDs of the pods whose claims are not released yet.
    pub fn list_pods(&self) -> BTreeSet<String> {
        let known = self.claims.lock();
        known
            .0
            .values()
            .flat_map(|claim| claim.pods.iter().cloned())
            .collect()
    }

    /// Returns the CDI devices of a container.
    ///
    /// # Errors
    /// A claim of the container is not prepared.
    pub fn list_cdi_devices(
        &self,
        pod: &Pod,
        container: &Container,
    ) -> Result<Vec<String>, DeviceError> {
        let wanted = container
            .resources
            .as_ref()
            .and_then(|all| all.claims.as_deref());
        let mut ids: Vec<String> = Vec::new();
        for wanted in wanted.unwrap_or_default() {
            let devices = self.list_devices(pod, &wanted.name, wanted.request.as_deref())?;
            for id in devices {
                // Several claims may have one device, which is injected once.
                if !ids.contains(&id) {
                    ids.push(id);
                }
            }
        }
        Ok(ids)
    }

    fn list_devices(
        &self,
        pod: &Pod,
        entry: &str,
        request: Option<&str>,
    ) -> Result<Vec<String>, DeviceError> {
        let missing = || DeviceError::Claim {
            claim: format!("spec.resourceClaims {entry:?}"),
            why: "the devices are not prepared".to_owned(),
        };
        let mut entries = claims_of_pod(pod).iter();
        let found = entries
            .find(|known| known.name == entry)
            .ok_or_else(missing)?;
        let name = match claim_name(pod, found) {
            ClaimName::NotNeeded => return Ok(Vec::new()),
            ClaimName::Named(name) | ClaimName::Generated(name) => name,
            ClaimName::NotGenerated | ClaimName::Unknown => return Err(missing()),
        };
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let known = self.claims.lock();
        let mut claims = known.0.values();
        let claim = claims.find(|claim| {
            (claim.namespace.as_str(), claim.name.as_str()) == (namespace, name)
                && claim.pods.contains(uid)
        });
        let claim = claim.ok_or_else(missing)?;
        if claim.drivers.values().any(|driver| !driver.prepared) {
            return Err(missing());
        }
        let devices = claim.drivers.values().flat_map(|driver| &driver.devices);
        let selected = devices.filter(|device| {
            let of_request = |name: &String| Some(base_request(name)) == request;
            request.is_none()
                || device.requests.is_empty()
                || device.requests.iter().any(of_request)
        });
        Ok(selected.flat_map(|device| device.cdi_ids.clone()).collect())
    }

    fn lock_of(&self, driver: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut drivers = self.drivers.lock();
        drivers.entry(driver.to_owned()).or_default().clone()
    }

    /// Changes the claims and writes the file.
    fn change(&self, change: impl FnOnce(&mut Claims)) -> Result<(), DeviceError> {
        base_task::blocking(|| {
            let mut known = self.claims.lock();
            let before = known.clone();
            change(&mut known);
            if *known == before {
                return Ok(());
            }
            // The memory shows nothing that is not on disk.
            let written = self.checkpoint.write(&known);
            if written.is_err() {
                *known = before;
            }
            written
        })
    }
}

/// Takes a pod from a claim. Returns true if no pod uses it any more: then the pod stays listed
/// until the drivers have released the claim.
fn leave(claim: &mut ClaimState, uid: &str) -> bool {
    claim.leaving.insert(uid.to_owned());
    if has_no_users(claim) {
        return true;
    }
    claim.pods.remove(uid);
    claim.leaving.remove(uid);
    false
}

/// Returns whether all pods of a claim leave it.
fn has_no_users(claim: &ClaimState) -> bool {
    claim.pods.is_subset(&claim.leaving)
}

/// Returns the name of a request without its subrequest.
fn base_request(name: &str) -> &str {
    name.split_once('/').map_or(name, |(base, _)| base)
}

fn plugin_error(driver: &str, why: String) -> DeviceError {
    DeviceError::Plugin {
        driver: driver.to_owned(),
        why,
    }
}

fn to_message(uid: &str, claim: &ClaimState) -> Claim {
    Claim {
        namespace: claim.namespace.clone(),
        uid: uid.to_owned(),
        name: claim.name.clone(),
    }
}

/// Returns UID and state of a claim that is allocated to the pod.
fn describe_claim(claim: &ResourceClaim, pod: &str) -> Result<(String, ClaimState), DeviceError> {
    let meta = &claim.metadata;
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    let (namespace, name) = (text(&meta.namespace), text(&meta.name));
    let fail = |why: &str| DeviceError::Claim {
        claim: format!("ResourceClaim {namespace}/{name}"),
        why: why.to_owned(),
    };
    let status = claim.status.as_ref();
    let allocation = status.and_then(|status| status.allocation.as_ref());
    let allocation = allocation.ok_or_else(|| fail("no devices are allocated"))?;
    // Without a reservation the scheduler may give the devices to another pod at any time.
    if !is_reserved_for(claim, pod) {
        return Err(fail("the claim is not reserved for the pod"));
    }
    let devices = allocation.devices.as_ref();
    let results = devices
        .and_then(|devices| devices.results.as_deref())
        .unwrap_or_default();
    let drivers = results
        .iter()
        .map(|result| (result.driver.clone(), Default::default()));
    let allocation = results.iter().map(|result| {
        let share = result.share_id.as_deref().unwrap_or_default();
        format!(
            "{}/{}/{} {share}",
            result.driver, result.pool, result.device
        )
    });
    let state = ClaimState {
        allocation: allocation.collect(),
        drivers: drivers.collect::<BTreeMap<_, _>>(),
        namespace,
        name,
        ..ClaimState::default()
    };
    Ok((text(&meta.uid), state))
}

#[cfg(test)]
mod tests;
