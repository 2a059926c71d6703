//! Whole members, started as the program starts them, and what clients see of them.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::disallowed_methods
)]

mod flags;
mod golden;
mod hostile;
mod leader;
mod member;
mod membership;
mod pages;
mod peers;
mod rights;
mod tls;
mod tokens;
