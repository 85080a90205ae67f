//! Tidegate decides whether requests may pass.
#![allow(missing_docs)] // replaced by the owner of lib.rs

pub mod limit;
pub mod rules;
