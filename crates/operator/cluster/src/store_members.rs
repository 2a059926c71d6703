//! The members of the store: decisions about joining and leaving, as pure functions, and the
//! requests that execute them.

mod decide;
mod find;
mod quorum;
mod requests;

pub(crate) use decide::{
    JoinStep, LeavingMember, ListSource, LocalMember, Member, RemovalDecision, decide_removal,
    find_leaving, find_local, format_members, is_name_of_another,
};
pub(crate) use find::{
    describe_leaving_member, find_members, find_other_urls, find_store_urls, format_host_url,
};
pub use quorum::Warning;
pub(crate) use quorum::find_quorum_warning;
pub(crate) use requests::{
    MemberList, decide_step, ensure_member, find_responding, list_members, promote_member,
    publish_peer_url, remove_member,
};
