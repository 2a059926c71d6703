//! Services by nftables: rules in a table of this program's own in each family.

mod encode;
mod render;
mod write;

pub(crate) use encode::encode_changes;
pub use render::render_nftables;
pub use write::{write_difference, write_installation};
