//! The warning about a store that survives the loss of no member although it has several.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::decide::Member;
use super::requests::list_local_members;
use crate::layout::Layout;
use crate::settings::Settings;

/// Time for the list of the member on this machine. Commands that only report do not wait longer
/// for a warning.
const LIST_TIMEOUT: Duration = Duration::from_secs(2);

/// A property of the cluster that an operator should change before a machine is lost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Warning {
    /// The problem.
    pub problem: String,
    /// A command that helps.
    pub remedy: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} (`{}`)", self.problem, self.remedy)
    }
}

/// Returns the warning about the members of the cluster, as the member of this machine knows them.
/// None if there is nothing to say, and also if the member does not respond.
pub(crate) async fn find_quorum_warning(settings: &Settings, layout: &Layout) -> Option<Warning> {
    // Without a shared control plane there is one member, and no other machine to lose.
    if settings.control_plane.is_none() || settings.awaits_promotion() {
        return None;
    }
    match list_local_members(settings, layout, LIST_TIMEOUT).await {
        Ok(members) => warn_of_quorum(&members),
        Err(error) => {
            tracing::debug!("the members of the store can't be listed: {error}");
            None
        }
    }
}

/// Two voters need both for a quorum. An even number above it is no problem: four survive the loss
/// of one, as three do.
fn warn_of_quorum(members: &[Member]) -> Option<Warning> {
    // A learner is the third one, which still loads the data.
    let is_lossless = members.len() == 2 && members.iter().all(|member| !member.is_learner);
    is_lossless.then(|| Warning {
        problem: "two machines have the control plane, and the cluster survives the loss of neither: add a third one".to_owned(),
        remedy: "ironclad token create --control-plane --print-join-command".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn store_that_survives_no_loss_is_warned_of() {
        for (learners, expected) in [
            (&[false][..], false),
            (&[false, true], false),
            (&[false, false], true),
            // The third one is still loading the data.
            (&[false, false, true], false),
            (&[false, false, false], false),
            (&[false, false, false, false], false),
        ] {
            let members: Vec<Member> = learners
                .iter()
                .zip(1..)
                .map(|(&is_learner, id)| Member {
                    id,
                    name: format!("cp{id}"),
                    peer_urls: Vec::new(),
                    client_urls: Vec::new(),
                    is_learner,
                })
                .collect();
            let found = warn_of_quorum(&members);
            assert_eq!(found.is_some(), expected, "{learners:?}: {found:?}");
        }
    }
}
