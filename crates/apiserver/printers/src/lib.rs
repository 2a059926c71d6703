//! Table columns and cells of every kind, as `kubectl get` shows them.
//!
//! One printer per kind: a list of columns and a pure function from the object (in any served
//! version) to its cells. Kinds without a printer show name and creation time.

mod access;
mod config;
mod custom;
mod devices;
mod network;
mod nodes;
mod pods;
mod printer;
mod storage;
mod table;
mod versions;
mod view;
mod workloads;

pub use printer::Column;
pub use table::{define_columns, row_cells, table_columns};
