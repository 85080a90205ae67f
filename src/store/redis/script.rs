//! The Lua script that decides.

/// The files of `lua/`, joined by the build.
pub const SCRIPT: &str = include_str!(concat!(env!("OUT_DIR"), "/decide.lua"));
