//! Delay of deletions of Gateways' Services.
//!
//! A deleted Service loses its address. A Gateway may be missing in a list for a moment only, as
//! after the start from an old cache of the API server.

use std::collections::HashMap;
use std::time::Duration;

use client::ObjectExt;
use tokio::time::Instant;

use crate::gateway_services::ServiceChange;

/// Time for which a Service must be unused without a pause.
const DELAY: Duration = Duration::from_secs(30);

/// Services that are unused.
#[derive(Debug, Default)]
pub(crate) struct DeletionDelay {
    /// First times at which they were, by their keys and UIDs.
    since: HashMap<(String, Option<String>), Instant>,
}

impl DeletionDelay {
    /// Removes the deletions that are not due. Returns the time at which the next one is.
    pub(crate) fn remove_early(
        &mut self,
        changes: &mut Vec<ServiceChange>,
        now: Instant,
    ) -> Option<Instant> {
        let before = std::mem::take(&mut self.since);
        let mut next: Option<Instant> = None;
        changes.retain(|change| {
            let ServiceChange::Delete { service, .. } = change else {
                return true;
            };
            let id = (service.key(), service.metadata.uid.clone());
            let since = before.get(&id).copied().unwrap_or(now);
            self.since.insert(id, since);
            let end = since + DELAY;
            if end > now {
                next = Some(next.map_or(end, |next| next.min(end)));
            }
            end <= now
        });
        next
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use k8s_openapi::api::core::v1::Service;
    use std::sync::Arc;

    #[test]
    fn service_is_deleted_once_it_was_unused_without_a_pause() {
        let mut service = Service::default();
        service.metadata.name = Some("lb-0".to_owned());
        service.metadata.uid = Some("a".to_owned());
        let delete = |uid: &str| {
            let mut service = service.clone();
            service.metadata.uid = Some(uid.to_owned());
            ServiceChange::Delete {
                service: Arc::new(service),
                has_gateway: false,
            }
        };
        let update = || ServiceChange::Update(Box::new(service.clone()));
        let (start, mut delay) = (Instant::now(), DeletionDelay::default());
        // Seconds, changes, the number of remaining ones, and the time of the next deletion.
        for (at, mut changes, remaining, next) in [
            (0, vec![delete("a"), update()], 1, Some(30)),
            (29, vec![delete("a")], 0, Some(30)),
            (30, vec![delete("a")], 1, None),
            (31, vec![delete("a"), delete("b")], 1, Some(61)),
            (50, vec![], 0, None),
            (62, vec![delete("b")], 0, Some(92)),
        ] {
            let now = start + Duration::from_secs(at);
            let found = delay.remove_early(&mut changes, now);
            let found = found.map(|end| (end - start).as_secs());
            assert_eq!((changes.len(), found), (remaining, next), "{at}");
        }
    }
}
