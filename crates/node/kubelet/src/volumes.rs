//! A pod's volumes: their content and their place on the node.

mod claims;
mod objects;
mod payload;
mod prepare;
mod prepared;
mod token;

pub(crate) use crate::volumes::prepared::Volumes;
pub(crate) use objects::Objects;
pub(crate) use prepare::{pod_dir, prepare_volumes};
pub(crate) use token::Tokens;
