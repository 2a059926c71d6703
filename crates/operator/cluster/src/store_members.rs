//! The members of the store: decisions about joining and leaving, as pure functions, and the requests
//! that execute them.

mod decide;
mod requests;

pub(crate) use decide::{
    JoinStep, LeavingMember, ListSource, LocalMember, Member, MemberOrigin, RemovalDecision,
    decide_removal, find_leaving, find_local, format_members, is_name_of_another, next_join_step,
};
pub(crate) use requests::{
    MemberList, add_learner, find_responding, list_members, promote_member, publish_peer_url,
    remove_member,
};
