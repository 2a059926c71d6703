//! Attacks on the public interfaces of the components, one test each, named for the attack that is
//! blocked.
//!
//! `tests/` has one file per area. `docs/audit.md` lists the test that closed each finding of a
//! review.
