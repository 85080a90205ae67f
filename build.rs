//! Compiles `proto/` without a system protoc, and joins `lua/` into the one script that Redis runs.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::{env, fs};

use protox::prost::Message;

const PROTOS: [&str; 2] = ["tidegate/v1/tidegate.proto", "envoy/service/ratelimit/v3/rls.proto"];

/// The script's parts in the order in which they stand in it.
const LUA_PARTS: [&str; 7] = [
    "contract.lua",
    "codec.lua",
    "fixed_window.lua",
    "sliding_window_log.lua",
    "sliding_window_counter.lua",
    "bucket.lua",
    "decide.lua",
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    println!("cargo::rerun-if-changed=lua");
    let out = PathBuf::from(env::var("OUT_DIR")?);
    compile_protos(&out)?;
    join_script(&out)
}

fn compile_protos(out: &Path) -> Result<(), Box<dyn Error>> {
    let descriptors = protox::compile(PROTOS, ["proto"])?;
    fs::write(out.join("descriptors.bin"), descriptors.encode_to_vec())?;
    tonic_prost_build::configure().build_client(true).bytes(".").compile_fds(descriptors)?;
    Ok(())
}

fn join_script(out: &Path) -> Result<(), Box<dyn Error>> {
    let mut script = String::new();
    for part in LUA_PARTS {
        let text = fs::read_to_string(Path::new("lua").join(part))?;
        script.push_str(&without_comments(&text));
    }
    fs::write(out.join("decide.lua"), script)?;
    Ok(())
}

/// Comment lines and blank lines are for readers of `lua/`, not for every Redis that loads it.
fn without_comments(text: &str) -> String {
    let is_code = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with("--");
    text.lines().filter(is_code).map(|line| format!("{}\n", line.trim_start())).collect()
}
