//! Parsing any limits file ends with rules or a list of mistakes.
#![no_main]

use std::path::PathBuf;

use libfuzzer_sys::fuzz_target;
use tidegate::rules::{Switches, parse};

fuzz_target!(|text: &str| {
    let _ = parse::parse(&[(PathBuf::from("fuzz.yaml"), text.to_owned())], Switches::default());
});
