//! Resources that changed on a running pod.

use super::messages::Done;
use super::run::Worker;
use crate::make::resources;
use crate::pod::spec;

impl Worker {
    /// Gives running containers the settings that the spec has now.
    pub(super) fn resize(&mut self) {
        self.memory.infeasible = self.infeasible();
        if self.memory.infeasible.is_some() {
            return;
        }
        for (_, name) in spec::names(&self.pod) {
            let Some((_, container)) = spec::find(&self.pod, &name) else { continue };
            let Some(running) = self.observed.latest(&name).filter(|i| i.running()) else { continue };
            let wanted = container.resources.clone().unwrap_or_default();
            if self.applied.insert(name.clone(), wanted.clone()).is_none_or(|before| before == wanted) {
                continue;
            }
            let settings =
                resources::of_container(&self.pod, &container, self.node.memory_capacity(), self.node.least_oom_score);
            let (node, pod, id) = (self.node.clone(), self.pod.clone(), running.id.clone());
            self.jobs.spawn(async move {
                if let Err(e) = node.cgroups.ensure(&pod) {
                    tracing::warn!(pod = spec::full_name(&pod), error = %e, "the pod's cgroup can't be changed");
                }
                if let Err(e) = node.runtime.update_resources(&id, settings).await {
                    tracing::warn!(container = name, error = %e, "container can't be resized");
                }
                Done::Aside
            });
        }
    }

    /// What the node could never give, even if it were empty.
    fn infeasible(&self) -> Option<String> {
        super::admit::requests(&self.pod).into_iter().find_map(|(name, asked)| {
            let has = self.node.allocatable.get(&name)?;
            let has = if name == "cpu" { has.milli_value() } else { has.value() };
            (asked > has)
                .then(|| format!("Node didn't have enough capacity: {name}, requested: {asked}, capacity: {has}"))
        })
    }
}
