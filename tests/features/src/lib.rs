//! Depends on everything outside the workspace, and does nothing: `cargo check -p CRATE -p features` compiles each
//! dependency with one set of features, whichever crate is asked for, so that nothing is compiled twice.
