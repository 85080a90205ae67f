//! The Lua script that decides requests in Redis.
//!
//! `build.rs` joins the files of `lua/` into one script, without comments; `lua/contract.lua`
//! describes its arguments and its reply.

/// The text of the script.
pub const SCRIPT: &str = include_str!(concat!(env!("OUT_DIR"), "/decide.lua"));
