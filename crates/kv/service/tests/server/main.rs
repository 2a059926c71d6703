//! Runs whole members, started like the program, and tests them as a client.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

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
