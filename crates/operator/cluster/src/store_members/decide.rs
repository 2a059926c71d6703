//! Decisions about the members of the store.

use std::collections::BTreeSet;

/// A member of the store, as a member lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Member {
    pub id: u64,
    /// Empty for a member that was added and never started.
    pub name: String,
    pub peer_urls: Vec<String>,
    pub client_urls: Vec<String>,
    pub is_learner: bool,
}

/// The member of this machine, as its settings describe it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LocalMember<'a> {
    pub name: &'a str,
    pub peer_url: &'a str,
    /// The store on this machine has data.
    pub has_data: bool,
}

/// The next step of a machine that joins the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JoinStep {
    /// Add the machine as a learner.
    Add,
    /// Start the store; it promotes this member afterwards.
    StartAndPromote(u64),
    /// The member votes.
    Done,
}

/// The reason why a machine can't join the store.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum JoinDefect {
    /// Another machine has its name.
    #[error(
        "the store has a member {name} at {url}; give this machine another name with --node-name, or remove that member with \
         `ironclad reset` on its machine"
    )]
    Name { name: String, url: String },
    /// Another machine has its address.
    #[error(
        "the store has a member {name} at {url}, the address of this machine; remove that member first (`etcdctl member remove {id:x}` \
         on another machine of the control plane)"
    )]
    Address { name: String, url: String, id: u64 },
    /// The data are those of a removed member.
    #[error(
        "the store on this machine has data, and its cluster does not list it as a member: it was removed; run `ironclad reset`, \
         and then the command of `ironclad token create --control-plane` again"
    )]
    Removed,
    /// The first member listens on the loopback address.
    #[error(
        "the member {name} of the store listens at {url}, which other machines do not reach; run `ironclad init` on its machine"
    )]
    Loopback { name: String, url: String },
}

/// Returns the next step of a machine that joins, from the members that the cluster lists.
///
/// # Errors
/// Its name or address belongs to another member, or its data to a removed one.
pub(crate) fn next_join_step(
    members: &[Member],
    own: LocalMember<'_>,
) -> Result<JoinStep, JoinDefect> {
    let at_address = |member: &&Member| member.peer_urls.iter().any(|url| url == own.peer_url);
    if let Some(member) = members.iter().find(at_address) {
        if !member.name.is_empty() && member.name != own.name {
            return Err(JoinDefect::Address {
                name: member.name.clone(),
                url: own.peer_url.to_owned(),
                id: member.id,
            });
        }
        return Ok(match member.is_learner {
            true => JoinStep::StartAndPromote(member.id),
            false => JoinStep::Done,
        });
    }
    let url_of = |member: &Member| member.peer_urls.first().cloned().unwrap_or_default();
    if let Some(member) = members.iter().find(|member| member.name == own.name) {
        return Err(JoinDefect::Name {
            name: member.name.clone(),
            url: url_of(member),
        });
    }
    if own.has_data {
        return Err(JoinDefect::Removed);
    }
    let is_loopback = |url: &String| url.contains("//127.") || url.contains("//[::1]");
    if let Some(member) = members
        .iter()
        .find(|member| member.peer_urls.iter().any(is_loopback))
    {
        return Err(JoinDefect::Loopback {
            name: member.name.clone(),
            url: url_of(member),
        });
    }
    Ok(JoinStep::Add)
}

/// Returns the value of `--initial-cluster` for a member that joins: all members, this machine's with its
/// name, which the cluster does not know yet.
pub(crate) fn format_members(members: &[Member], own: LocalMember<'_>) -> String {
    let mut all = BTreeSet::new();
    for member in members {
        for url in &member.peer_urls {
            let name = if url == own.peer_url {
                own.name.to_owned()
            } else if member.name.is_empty() {
                // Another machine joins at the same time. Only the URL counts.
                format!("{:x}", member.id)
            } else {
                member.name.clone()
            };
            all.insert(format!("{name}={url}"));
        }
    }
    all.into_iter().collect::<Vec<_>>().join(",")
}

/// Returns the member of this machine if the cluster knows it at another address.
pub(crate) fn find_update(members: &[Member], own: LocalMember<'_>) -> Option<u64> {
    let member = members.iter().find(|member| member.name == own.name)?;
    (member.peer_urls != [own.peer_url]).then_some(member.id)
}

/// A decision about the removal of a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RemovalDecision {
    /// The cluster does not list it.
    Absent,
    /// It can be removed.
    Remove(u64),
    /// It is the only member that votes: with it the data of the cluster would be lost.
    Last,
    /// The remaining members would have no quorum: the names of those that do not respond.
    NoQuorum(Vec<String>),
}

/// Decides whether the member of this machine can be removed. `healthy` are the members that respond and
/// know a leader.
pub(crate) fn decide_removal(
    members: &[Member],
    own: LocalMember<'_>,
    healthy: &BTreeSet<u64>,
) -> RemovalDecision {
    let at_address = |member: &&Member| member.peer_urls.iter().any(|url| url == own.peer_url);
    let Some(member) = members.iter().find(at_address) else {
        return RemovalDecision::Absent;
    };
    if member.is_learner {
        return RemovalDecision::Remove(member.id);
    }
    let rest: Vec<_> = members
        .iter()
        .filter(|other| !other.is_learner && other.id != member.id)
        .collect();
    if rest.is_empty() {
        return RemovalDecision::Last;
    }
    let responding = rest
        .iter()
        .filter(|other| healthy.contains(&other.id))
        .count();
    let quorum = rest.len() / 2 + 1;
    // The present members decide about the removal, the remaining ones about everything after it.
    if responding >= quorum {
        return RemovalDecision::Remove(member.id);
    }
    let silent = rest.iter().filter(|other| !healthy.contains(&other.id));
    RemovalDecision::NoQuorum(silent.map(|other| other.name.clone()).collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn member(id: u64, name: &str, host: &str, is_learner: bool) -> Member {
        Member {
            id,
            name: name.into(),
            peer_urls: vec![format!("https://{host}:2380")],
            client_urls: vec![format!("https://{host}:2379")],
            is_learner,
        }
    }

    fn own(has_data: bool) -> LocalMember<'static> {
        LocalMember {
            name: "cp2",
            peer_url: "https://192.0.2.2:2380",
            has_data,
        }
    }

    #[test]
    fn join_continues_where_it_was_interrupted() {
        let first = member(1, "cp1", "192.0.2.1", false);
        for (rest, has_data, expected) in [
            (vec![], false, JoinStep::Add),
            // Added, not started.
            (
                vec![member(2, "", "192.0.2.2", true)],
                false,
                JoinStep::StartAndPromote(2),
            ),
            (
                vec![member(2, "cp2", "192.0.2.2", true)],
                true,
                JoinStep::StartAndPromote(2),
            ),
            (
                vec![member(2, "cp2", "192.0.2.2", false)],
                true,
                JoinStep::Done,
            ),
            // Another machine joins at the same time.
            (vec![member(3, "", "192.0.2.3", true)], false, JoinStep::Add),
        ] {
            let members = [vec![first.clone()], rest].concat();
            assert_eq!(
                next_join_step(&members, own(has_data)),
                Ok(expected),
                "{members:?}"
            );
        }
    }

    #[test]
    fn machine_with_the_name_address_or_data_of_another_member_does_not_join() {
        for (members, has_data, expected) in [
            (
                vec![member(1, "cp2", "192.0.2.9", false)],
                false,
                "--node-name",
            ),
            (
                vec![member(1, "cp9", "192.0.2.2", false)],
                false,
                "member remove 1",
            ),
            (
                vec![member(1, "cp1", "192.0.2.1", false)],
                true,
                "it was removed",
            ),
            (
                vec![member(1, "cp1", "127.0.0.1", false)],
                false,
                "ironclad init",
            ),
        ] {
            let defect = next_join_step(&members, own(has_data))
                .unwrap_err()
                .to_string();
            assert!(defect.contains(expected), "{defect}");
        }
    }

    #[test]
    fn initial_cluster_has_the_name_that_the_cluster_does_not_know_yet() {
        let members = [
            member(1, "cp1", "192.0.2.1", false),
            member(2, "", "192.0.2.2", true),
        ];
        assert_eq!(
            format_members(&members, own(false)),
            "cp1=https://192.0.2.1:2380,cp2=https://192.0.2.2:2380"
        );
        let other = member(0xa3, "", "192.0.2.3", true);
        assert!(format_members(&[other], own(false)).starts_with("a3=https"));
    }

    #[test]
    fn peer_url_is_updated_once() {
        let at = |host| [member(7, "cp2", host, false)];
        assert_eq!(find_update(&at("127.0.0.1"), own(true)), Some(7));
        assert_eq!(find_update(&at("192.0.2.2"), own(true)), None);
        assert_eq!(find_update(&[], own(true)), None);
    }

    #[test]
    fn removal_keeps_a_quorum() {
        let all = |learner| {
            [
                member(1, "cp1", "192.0.2.1", false),
                member(2, "cp2", "192.0.2.2", learner),
                member(3, "cp3", "192.0.2.3", false),
            ]
        };
        let decide = |members: &[Member], healthy: &[u64]| {
            decide_removal(members, own(true), &healthy.iter().copied().collect())
        };
        let no_quorum = |names: &[&str]| {
            RemovalDecision::NoQuorum(names.iter().map(|name| (*name).to_owned()).collect())
        };
        for (members, healthy, expected) in [
            (
                all(false).to_vec(),
                &[1, 2, 3][..],
                RemovalDecision::Remove(2),
            ),
            // Its own member does not count.
            (all(false).to_vec(), &[1, 2], no_quorum(&["cp3"])),
            (
                all(false)[..2].to_vec(),
                &[1, 2],
                RemovalDecision::Remove(2),
            ),
            (all(false)[..2].to_vec(), &[2], no_quorum(&["cp1"])),
            (all(false)[1..2].to_vec(), &[2], RemovalDecision::Last),
            (all(true).to_vec(), &[1], RemovalDecision::Remove(2)),
            (all(false)[..1].to_vec(), &[1], RemovalDecision::Absent),
        ] {
            assert_eq!(
                decide(&members, healthy),
                expected,
                "{members:?} {healthy:?}"
            );
        }
    }
}
