//! The structure of `src/`: imports run down, and no files import each other in a circle.
//!
//! The test reads the sources as text. It follows `use` declarations and paths that begin with `crate`,
//! `super` or a child module, and leaves out the unit tests at the end of a file.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The modules below `src/`, from the ground up. A module may import those before it, and no others.
const LAYERS: &[&str] = &[
    // Words and tools that know nothing of rate limits.
    "clock",
    "entries",
    "file",
    "follow",
    "secret_file",
    "printable",
    "suggest",
    "memory_budget",
    "peer",
    "body",
    "proto",
    "period",
    "tls",
    // The arithmetic.
    "decision",
    "limit_spec",
    "algorithm",
    "limit",
    "key",
    "decide",
    // Leaves: they are handed plain values.
    "store_error",
    "metrics",
    "trace",
    // Rules and requests.
    "on_store_failure",
    "rules",
    "request",
    "plan",
    // Decisions.
    "store",
    "service",
    // The edges.
    "envoy",
    "grpc",
    "http",
    // The program.
    "settings",
    "server",
    "command",
    "main",
];

/// A module's path below the crate: `["store", "redis"]`.
type Module = Vec<String>;

#[test]
fn imports_run_down() {
    let layer = |module: &Module| {
        let name = module.first().map_or("main", String::as_str);
        let position = LAYERS.iter().position(|layer| *layer == name);
        position.unwrap_or_else(|| panic!("{name} is in no layer: add it to LAYERS"))
    };
    let mut up = vec![];
    for (from, targets) in imports() {
        for to in targets.iter().filter(|to| layer(to) > layer(&from)) {
            up.push(format!("{} imports {}", from.join("/"), to.join("/")));
        }
    }
    assert!(up.is_empty(), "imports that run up:\n{}", up.join("\n"));
}

#[test]
fn no_files_import_each_other_in_a_circle() {
    let imports = imports();
    let mut circles = vec![];
    for from in imports.keys() {
        for to in &imports[from] {
            // Every circle has an import from a smaller name to a larger one.
            if from < to && reaches(&imports, to, from) {
                circles.push(format!("{} and {}", from.join("/"), to.join("/")));
            }
        }
    }
    assert!(circles.is_empty(), "files that import each other:\n{}", circles.join("\n"));
}

#[test]
fn a_circle_and_an_import_that_runs_up_are_found() {
    let module = |name: &str| vec![name.to_owned()];
    let of = |pairs: &[(&str, &str)]| {
        let mut imports = BTreeMap::<Module, BTreeSet<Module>>::new();
        for (from, to) in pairs {
            imports.entry(module(from)).or_default().insert(module(to));
        }
        imports
    };
    let circle = of(&[("a", "b"), ("b", "c"), ("c", "a")]);
    assert!(reaches(&circle, &module("b"), &module("a")));
    let line = of(&[("a", "b"), ("b", "c")]);
    assert!(!reaches(&line, &module("b"), &module("a")));
    let modules = BTreeSet::from([module("store"), vec!["store".to_owned(), "redis".to_owned()]]);
    let memory = vec!["store".to_owned(), "memory".to_owned()];
    let found = |source: &str| {
        let paths = paths(source, &memory);
        let files = paths.filter_map(|path| file_of(&path, &modules));
        files.map(|file| file.join("/")).collect::<BTreeSet<_>>()
    };
    let all = BTreeSet::from(["store".to_owned(), "store/redis".to_owned()]);
    assert_eq!(found("use super::{\n    Store,\n    redis::{Client, url},\n};\n"), all);
    let redis = BTreeSet::from(["store/redis".to_owned()]);
    assert_eq!(found("pub(super) use crate::store::redis::A as B;"), redis);
    assert_eq!(found("let x = super::redis::probe(0) + crate::store::MAX; // super::x"), all);
    for nothing in [
        "use std::fmt;",
        "pub(in crate::store) struct A;",
        "let text = \"use super {\";",
        "#[cfg(test)]\nmod tests {\n    use crate::store::Store;\n}\n",
    ] {
        assert_eq!(found(nothing), BTreeSet::new(), "{nothing}");
    }
}

/// The files that each file imports, by their modules.
fn imports() -> BTreeMap<Module, BTreeSet<Module>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = BTreeMap::new();
    collect(&root, &root, &mut files);
    let modules: BTreeSet<Module> = files.keys().cloned().collect();
    let imports = files.iter().map(|(module, file)| {
        let source = std::fs::read_to_string(file).expect("a source file can be read");
        let targets = paths(&source, module).filter_map(|path| file_of(&path, &modules));
        (module.clone(), targets.filter(|target| target != module).collect())
    });
    imports.collect()
}

/// All source files by their modules, but for the root and for unit tests with a file of their own.
fn collect(root: &Path, folder: &Path, files: &mut BTreeMap<Module, PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("src can be listed") {
        let path = entry.expect("src can be listed").path();
        if path.is_dir() {
            // A package of its own has its own layers.
            if !path.join("Cargo.toml").exists() {
                collect(root, &path, files);
            }
            continue;
        }
        let below = path.strip_prefix(root).expect("it is below src").with_extension("");
        let module: Module = below.iter().map(|name| name.to_string_lossy().into_owned()).collect();
        if !matches!(module.last().map(String::as_str), Some("lib" | "main" | "tests")) {
            files.insert(module, path);
        }
    }
}

/// The file that a path leads to: the longest beginning of the path that is a module.
fn file_of(path: &[String], modules: &BTreeSet<Module>) -> Option<Module> {
    (1..=path.len()).rev().map(|len| path[..len].to_vec()).find(|path| modules.contains(path))
}

/// Whether imports lead from one module to another.
fn reaches(imports: &BTreeMap<Module, BTreeSet<Module>>, from: &Module, to: &Module) -> bool {
    let mut seen = BTreeSet::new();
    let mut left = vec![from];
    while let Some(module) = left.pop() {
        if module == to {
            return true;
        }
        if seen.insert(module) {
            left.extend(imports.get(module).into_iter().flatten());
        }
    }
    false
}

/// The paths that a source file names, from the crate's root.
fn paths(source: &str, module: &Module) -> impl Iterator<Item = Module> {
    let source = source.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let lines = source.lines().map(|line| line.split("//").next().unwrap_or_default());
    let code = without_visibility(&lines.collect::<Vec<_>>().join("\n"));
    let children = children(&code);
    let mut all = vec![];
    for declaration in uses(&code) {
        expand(&declaration, &[], &mut all);
    }
    let words = code.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'));
    let inline = words.filter(|word| word.contains("::") && !word.starts_with("::"));
    // `super::` before a brace is the beginning of a tree, which is expanded above.
    let inline = inline.filter(|word| !word.ends_with("::"));
    all.extend(inline.map(segments));
    let module = module.clone();
    all.into_iter().filter_map(move |path| absolute(&path, &module, &children))
}

/// Without the paths of `pub(in crate::rules)`, which import nothing.
fn without_visibility(code: &str) -> String {
    let mut parts = code.split("(in ");
    let first = parts.next().unwrap_or_default().to_owned();
    let rest = parts.map(|part| part.split_once(')').map_or(part, |(_path, rest)| rest));
    first + &rest.collect::<String>()
}

/// The modules that a file declares.
fn children(code: &str) -> BTreeSet<String> {
    let names = code.lines().filter_map(|line| {
        let name = line.trim().strip_suffix(';')?.rsplit_once("mod ")?;
        let is_declaration = name.0.is_empty() || name.0.starts_with("pub");
        is_declaration.then(|| name.1.to_owned())
    });
    names.collect()
}

/// The trees of all `use` declarations: what is between `use` and the semicolon. A declaration begins a
/// line, so that the word in a text is none.
fn uses(code: &str) -> Vec<String> {
    let mut found = vec![];
    let mut rest = code;
    while !rest.is_empty() {
        let (line, after) = rest.split_once('\n').unwrap_or((rest, ""));
        let (before, tree) = line.trim_start().split_once("use ").unwrap_or((line, ""));
        let is_declaration =
            before.is_empty() || (before.starts_with("pub") && before.ends_with(' '));
        if is_declaration && !tree.is_empty() {
            let from_tree = &rest[line.len() - tree.len()..];
            found.extend(from_tree.split_once(';').map(|(tree, _)| tree.to_owned()));
        }
        rest = after;
    }
    found
}

/// All paths of a `use` declaration, with its braces resolved.
fn expand(tree: &str, prefix: &[String], all: &mut Vec<Module>) {
    let mut depth = 0;
    let parts = tree.split(|c| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        c == ',' && depth == 0
    });
    for part in parts.map(str::trim).filter(|part| !part.is_empty()) {
        let (own, below) = part.split_once('{').unwrap_or((part, ""));
        let path: Module = prefix.iter().cloned().chain(segments(own)).collect();
        match below.rsplit_once('}') {
            Some((below, _)) => expand(below, &path, all),
            None => all.push(path),
        }
    }
}

fn segments(path: &str) -> Module {
    let path = path.split(" as ").next().unwrap_or_default();
    let names = path.split("::").map(str::trim);
    names.filter(|name| !name.is_empty() && *name != "self").map(str::to_owned).collect()
}

/// A path from the crate's root, where it begins with `crate`, `super` or a child.
fn absolute(path: &[String], module: &Module, children: &BTreeSet<String>) -> Option<Module> {
    let first = path.first()?;
    if first == "crate" {
        return Some(path[1..].to_vec());
    }
    let ups = path.iter().take_while(|name| *name == "super").count();
    if ups == 0 && !children.contains(first) {
        return None;
    }
    let base = &module[..module.len().checked_sub(ups)?];
    Some(base.iter().chain(&path[ups..]).cloned().collect())
}
