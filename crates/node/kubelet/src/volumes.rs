//! A pod's volumes: their content and their place on the node.

mod claims;
mod objects;
mod payload;
mod prepare;
mod token;

pub(crate) use objects::Objects;
pub(crate) use prepare::{Volumes, pod_dir, prepare_volumes};
pub(crate) use token::Tokens;
