//! The commands of the program.

pub mod check;
pub mod query;
pub mod serve;
pub mod simulate;
