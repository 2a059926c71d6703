//! Depends on every external crate and has no code: `cargo check -p CRATE -p features` compiles
//! each dependency with one set of features, whatever the crate, so that nothing is compiled twice.
