//! Compares upstream's flags and configuration fields with the tables of the binaries, and writes
//! `docs/flags.md`.

mod component;
mod page;

pub use component::{COMPONENTS, Component, Settings, Standing, field_standing, flag_standing};
pub use page::render_page;
