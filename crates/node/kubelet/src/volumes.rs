//! A pod's volumes: what they contain and where they are on the node.

mod claims;
mod objects;
mod payload;
mod prepare;
mod token;

pub(crate) use objects::{Found, Objects};
pub(crate) use prepare::{Volumes, pod_dir, prepare};
pub(crate) use token::Tokens;
