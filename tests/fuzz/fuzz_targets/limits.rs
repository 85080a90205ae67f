//! Whatever stands in a limits file, parsing it ends, in rules or in a list of mistakes.
#![no_main]

use std::path::PathBuf;

use libfuzzer_sys::fuzz_target;
use tidegate::rules::{Switches, parse};

fuzz_target!(|text: &str| {
    let _ = parse::parse(&[(PathBuf::from("fuzz.yaml"), text.to_owned())], Switches::default());
});
