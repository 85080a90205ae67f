//! Compiles `proto/` without a system protoc, and joins the files of `lua/` into the one script
//! that Redis runs.

use std::collections::HashMap;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::{env, fs};

use protox::prost::Message;

const PROTOS: [&str; 3] = [
    "tidegate/v1/tidegate.proto",
    "tidegate/admin/v1/admin.proto",
    "envoy/service/ratelimit/v3/rls.proto",
];

/// The files of the script: first the ones made of named sections, then the ones that are included
/// whole, in this order.
const LUA_PARTS: [&str; 10] = [
    "fixed_window.lua",
    "bucket.lua",
    "quota.lua",
    "write.lua",
    "contract.lua",
    "codec.lua",
    "read.lua",
    "sliding_window_log.lua",
    "sliding_window_counter.lua",
    "decide.lua",
];

/// Marks sections: `--@ read` begins the section `read`, and `--@ bucket.read` includes that
/// section of `bucket`.
const SECTION: &str = "--@ ";

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

/// Redis creates all functions, tables and variables of a script again in each run. So the script
/// has no functions for code that runs for every row, and constants are inlined.
fn join_script(out: &Path) -> Result<(), Box<dyn Error>> {
    let mut script = Script::default();
    for file in LUA_PARTS {
        let text = fs::read_to_string(Path::new("lua").join(file))?;
        script.add(file.trim_end_matches(".lua"), &text);
    }
    let mut text = String::new();
    script.write(&script.lines, &mut text)?;
    fs::write(out.join("decide.lua"), text)?;
    Ok(())
}

#[derive(Default)]
struct Script {
    lines: Vec<String>,
    sections: HashMap<String, Vec<String>>,
    constants: HashMap<String, String>,
}

impl Script {
    /// Adds a file, without comments and blank lines.
    fn add(&mut self, part: &str, text: &str) {
        let mut section = None;
        for line in text.lines().map(str::trim) {
            let named = line.strip_prefix(SECTION);
            if let Some(name) = named.filter(|name| !name.contains('.')) {
                section = Some(format!("{part}.{name}"));
            } else if named.is_some() || !(line.is_empty() || line.starts_with("--")) {
                self.add_line(section.as_ref(), line);
            }
        }
    }

    fn add_line(&mut self, section: Option<&String>, line: &str) {
        if let Some(constants) = constants(line) {
            self.constants.extend(constants);
            return;
        }
        let lines = match section {
            Some(name) => self.sections.entry(name.clone()).or_default(),
            None => &mut self.lines,
        };
        lines.push(line.to_owned());
    }

    fn write(&self, lines: &[String], text: &mut String) -> Result<(), Box<dyn Error>> {
        for line in lines {
            if let Some(name) = line.strip_prefix(SECTION) {
                let section = self.sections.get(name);
                self.write(section.ok_or_else(|| format!("lua/: no section {name}"))?, text)?;
            } else {
                text.push_str(&self.with_constants(line));
                text.push('\n');
            }
        }
        Ok(())
    }

    fn with_constants(&self, line: &str) -> String {
        let is_word = |byte: char| byte.is_ascii_alphanumeric() || byte == '_';
        let mut spelled = String::new();
        let mut rest = line;
        while let Some(start) = rest.find(is_word) {
            let (before, from) = rest.split_at(start);
            let (word, after) = from.split_at(from.find(|c| !is_word(c)).unwrap_or(from.len()));
            spelled.push_str(before);
            spelled.push_str(self.constants.get(word).map_or(word, String::as_str));
            rest = after;
        }
        spelled + rest
    }
}

/// The names and values of `local NAME, OTHER = 1, 'two'`.
fn constants(line: &str) -> Option<Vec<(String, String)>> {
    let (names, values) = line.strip_prefix("local ")?.split_once(" = ")?;
    let is_name = |name: &str| name.bytes().all(|b| b.is_ascii_uppercase() || b == b'_');
    let constants: Vec<_> = names.split(", ").zip(values.split(", ")).collect();
    constants.iter().all(|(name, _)| is_name(name)).then(|| {
        constants.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    })
}
