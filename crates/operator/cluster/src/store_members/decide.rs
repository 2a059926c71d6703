//! Decisions about the members of the store.

use std::collections::BTreeSet;
use std::net::IpAddr;

use operator_discovery::Endpoint;

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
        "the store has a member {name} at {url}; run `ironclad reset` here, and join with another --node-name, or remove that \
         member with `ironclad reset` on its machine"
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
    /// The cluster lists a member that has started, and this machine has no data of it.
    #[error(
        "the store lists the member of this machine, and its data are not here: mount their disk, or remove that member first \
         (`etcdctl member remove {id:x}` on another machine of the control plane)"
    )]
    DataMissing { id: u64 },
    /// The first member listens on the loopback address.
    #[error(
        "the member {name} of the store listens at {url}, which other machines do not reach; run `ironclad init` on its machine"
    )]
    Loopback { name: String, url: String },
}

/// Returns the next step of a machine that joins, from the members that the cluster lists.
///
/// # Errors
/// Its name or address belongs to another member, its data to a removed one, or its member's data
/// are missing.
pub(crate) fn next_join_step(
    members: &[Member],
    own: LocalMember<'_>,
) -> Result<JoinStep, JoinDefect> {
    if let Some(member) = find_local(members, own) {
        return next_listed_step(members, member, own);
    }
    if let Some(member) = members.iter().find(|member| member.name == own.name) {
        return Err(describe_namesake(member));
    }
    if own.has_data {
        return Err(JoinDefect::Removed);
    }
    let is_loopback = |url: &String| {
        let host = Endpoint::from_url(url).ok();
        let address = host.and_then(|endpoint| endpoint.host().parse::<IpAddr>().ok());
        address.is_some_and(|address| address.is_loopback())
    };
    if let Some(member) = members
        .iter()
        .find(|member| member.peer_urls.iter().any(is_loopback))
    {
        return Err(JoinDefect::Loopback {
            name: member.name.clone(),
            url: first_url(member),
        });
    }
    Ok(JoinStep::Add)
}

/// Returns the next step of a machine whose member is listed.
fn next_listed_step(
    members: &[Member],
    member: &Member,
    own: LocalMember<'_>,
) -> Result<JoinStep, JoinDefect> {
    if !member.name.is_empty() && member.name != own.name {
        return Err(JoinDefect::Address {
            name: member.name.clone(),
            url: own.peer_url.to_owned(),
            id: member.id,
        });
    }
    // Two machines of one image join at once. The store would not start with two addresses for one
    // name.
    let is_namesake = |other: &&Member| other.id != member.id && other.name == own.name;
    if let Some(other) = members.iter().find(is_namesake) {
        return Err(describe_namesake(other));
    }
    // A member gets its name when it starts. Without its log it would vote twice in a term.
    let has_started = !member.is_learner || !member.name.is_empty();
    if has_started && !own.has_data {
        return Err(JoinDefect::DataMissing { id: member.id });
    }
    Ok(match member.is_learner {
        true => JoinStep::StartAndPromote(member.id),
        false => JoinStep::Done,
    })
}

fn describe_namesake(member: &Member) -> JoinDefect {
    JoinDefect::Name {
        name: member.name.clone(),
        url: first_url(member),
    }
}

fn first_url(member: &Member) -> String {
    member.peer_urls.first().cloned().unwrap_or_default()
}

/// Returns the member at the address of this machine.
pub(crate) fn find_local<'a>(members: &'a [Member], own: LocalMember<'_>) -> Option<&'a Member> {
    let at_address = |member: &&Member| member.peer_urls.iter().any(|url| url == own.peer_url);
    members.iter().find(at_address)
}

/// Returns the value of `--initial-cluster` for a member that joins: all members, this machine's
/// with its name, which the cluster does not know yet.
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

/// The member of a machine that leaves, as the settings of the machine describe it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LeavingMember<'a> {
    pub name: &'a str,
    pub peer_url: &'a str,
    /// Its ID in the cluster of the list; None if it is not known.
    pub id: Option<u64>,
    pub origin: MemberOrigin,
}

/// The origin of the member of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MemberOrigin {
    /// The member that began the cluster, or with whose machine the cluster was restored.
    First,
    /// A member whose addition is not complete.
    Joining,
    /// A member that was added to the cluster of other machines.
    Added,
}

/// The source of a list of members.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListSource {
    /// The member on this machine.
    ThisMachine,
    /// A member on another machine.
    OtherMachine,
}

/// A decision about the removal of a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RemovalDecision {
    /// The cluster has other members and does not list it.
    Absent,
    /// A member that can be removed, by its ID.
    Remove(u64),
    /// The only member that votes: with it the data of the cluster would be lost.
    Last,
    /// No member of the list, although the data on this machine may be those of the cluster.
    Unlisted,
    /// The remaining members would have no quorum: those that do not respond.
    NoQuorum(Vec<Member>),
}

/// Returns the member of a machine that leaves.
pub(crate) fn find_leaving<'a>(
    members: &'a [Member],
    own: LeavingMember<'_>,
) -> Option<&'a Member> {
    let has_id = |member: &&Member| own.id == Some(member.id);
    // A machine whose join was refused may have the address or the name of another one.
    let at_address = |member: &&Member| {
        let is_own = member.name.is_empty() || member.name == own.name;
        is_own && member.peer_urls.iter().any(|url| url == own.peer_url)
    };
    // The cluster may not know its new address yet.
    let is_named = own.id.is_none() && own.origin != MemberOrigin::Joining;
    let has_name = |member: &&Member| is_named && member.name == own.name;
    let find = |matches: &dyn Fn(&&Member) -> bool| members.iter().find(|member| matches(member));
    find(&has_id)
        .or_else(|| find(&at_address))
        .or_else(|| find(&has_name))
}

/// Returns whether another machine has the name of one that leaves: the objects with that name are
/// those of the other machine.
pub(crate) fn is_name_of_another(members: &[Member], own: LeavingMember<'_>) -> bool {
    let found = find_leaving(members, own).map(|member| member.id);
    let mut others = members.iter().filter(|member| Some(member.id) != found);
    others.any(|member| member.name == own.name)
}

/// Decides whether the member of this machine can be removed. `healthy` are the members that
/// respond and know a leader.
pub(crate) fn decide_removal(
    members: &[Member],
    own: LeavingMember<'_>,
    source: ListSource,
    healthy: &BTreeSet<u64>,
) -> RemovalDecision {
    let Some(member) = find_leaving(members, own) else {
        return decide_unlisted(members, own, source);
    };
    // A learner counts for no quorum.
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
    let unresponsive = rest
        .into_iter()
        .filter(|other| !healthy.contains(&other.id));
    RemovalDecision::NoQuorum(unresponsive.cloned().collect())
}

/// Decides about a machine whose member is not in the list.
fn decide_unlisted(
    members: &[Member],
    own: LeavingMember<'_>,
    source: ListSource,
) -> RemovalDecision {
    // Only another machine can know that the cluster exists without this one. The first member must
    // be one that was in this very cluster: else its data may be the only ones.
    let was_member = own.id.is_some() || own.origin != MemberOrigin::First;
    let voters = members.iter().filter(|member| !member.is_learner).count();
    match (was_member, source) {
        (true, ListSource::OtherMachine) => RemovalDecision::Absent,
        _ if voters <= 1 => RemovalDecision::Last,
        _ => RemovalDecision::Unlisted,
    }
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
            // A clone of this machine joined at the same time.
            (
                vec![
                    member(1, "cp2", "192.0.2.9", false),
                    member(2, "", "192.0.2.2", true),
                ],
                false,
                "--node-name",
            ),
            // The machine was installed again.
            (
                vec![member(0xa2, "cp2", "192.0.2.2", false)],
                false,
                "member remove a2",
            ),
            (
                vec![member(0xa2, "cp2", "192.0.2.2", true)],
                false,
                "its data are not here",
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

    fn leaving() -> LeavingMember<'static> {
        LeavingMember {
            name: "cp2",
            peer_url: "https://192.0.2.2:2380",
            id: None,
            origin: MemberOrigin::Added,
        }
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
            let healthy = healthy.iter().copied().collect();
            decide_removal(members, leaving(), ListSource::OtherMachine, &healthy)
        };
        let no_quorum = |index: usize| RemovalDecision::NoQuorum(vec![all(false)[index].clone()]);
        for (members, healthy, expected) in [
            (
                all(false).to_vec(),
                &[1, 2, 3][..],
                RemovalDecision::Remove(2),
            ),
            // Its own member does not count.
            (all(false).to_vec(), &[1, 2], no_quorum(2)),
            (
                all(false)[..2].to_vec(),
                &[1, 2],
                RemovalDecision::Remove(2),
            ),
            (all(false)[..2].to_vec(), &[2], no_quorum(0)),
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

    /// `init` stores the address before the store publishes it. The data of the cluster are on this
    /// machine only.
    #[test]
    fn member_whose_new_address_is_not_published_is_not_absent() {
        use ListSource::{OtherMachine, ThisMachine};
        let first = LeavingMember {
            origin: MemberOrigin::First,
            ..leaving()
        };
        let alone = [member(2, "cp2", "127.0.0.1", false)];
        let other_name = [member(2, "x", "127.0.0.1", false)];
        let two = [
            member(1, "cp1", "192.0.2.1", false),
            member(2, "cp2", "192.0.2.9", false),
        ];
        let others = [
            member(1, "cp1", "192.0.2.1", false),
            member(3, "cp3", "192.0.2.3", false),
        ];
        for (members, own, source, expected) in [
            (&alone[..], first, ThisMachine, RemovalDecision::Last),
            (&other_name, first, ThisMachine, RemovalDecision::Last),
            (&other_name, first, OtherMachine, RemovalDecision::Last),
            (&two, first, ThisMachine, RemovalDecision::Remove(2)),
            (&two, leaving(), OtherMachine, RemovalDecision::Remove(2)),
            (&others, first, OtherMachine, RemovalDecision::Unlisted),
            (&others, leaving(), ThisMachine, RemovalDecision::Unlisted),
            (&others, leaving(), OtherMachine, RemovalDecision::Absent),
        ] {
            let healthy = [1, 2, 3].into();
            let found = decide_removal(members, own, source, &healthy);
            assert_eq!(found, expected, "{members:?} {own:?} {source:?}");
        }
    }

    /// `reset` was interrupted after the removal, on the machine of `init` or on one with a
    /// restored store.
    #[test]
    fn first_member_that_was_removed_is_absent_from_its_own_cluster() {
        use ListSource::{OtherMachine, ThisMachine};
        let first = LeavingMember {
            id: Some(2),
            origin: MemberOrigin::First,
            ..leaving()
        };
        let others = [
            member(1, "cp1", "192.0.2.1", false),
            member(3, "cp3", "192.0.2.3", false),
        ];
        // Another machine took its name since.
        let renamed = [others[0].clone(), member(4, "cp2", "192.0.2.4", false)];
        for (members, source, expected) in [
            (&others[..], OtherMachine, RemovalDecision::Absent),
            (&others[..1], OtherMachine, RemovalDecision::Absent),
            (&renamed, OtherMachine, RemovalDecision::Absent),
            (&others, ThisMachine, RemovalDecision::Unlisted),
            (&others[..1], ThisMachine, RemovalDecision::Last),
        ] {
            let found = decide_removal(members, first, source, &[1, 3].into());
            assert_eq!(found, expected, "{members:?} {source:?}");
        }
        assert!(is_name_of_another(&renamed, first));
        // It was not removed yet, and has another address and name in the list.
        let listed = [others[0].clone(), member(2, "x", "127.0.0.1", false)];
        let found = decide_removal(&listed, first, OtherMachine, &[1].into());
        assert_eq!(found, RemovalDecision::Remove(2));
    }

    #[test]
    fn machine_whose_join_was_refused_removes_no_other_member() {
        let refused = LeavingMember {
            origin: MemberOrigin::Joining,
            ..leaving()
        };
        let named = [member(1, "cp2", "192.0.2.9", false)];
        let placed = [member(1, "cp9", "192.0.2.2", false)];
        let added = [
            member(1, "cp1", "192.0.2.1", false),
            member(2, "", "192.0.2.2", true),
        ];
        for (members, found, is_of_another) in [
            (&named[..], None, true),
            (&placed, None, false),
            (&added, Some(2), false),
        ] {
            let member = find_leaving(members, refused).map(|member| member.id);
            assert_eq!(member, found, "{members:?}");
            assert_eq!(is_name_of_another(members, refused), is_of_another);
        }
        assert!(!is_name_of_another(&named, leaving()), "its own member");
    }
}
