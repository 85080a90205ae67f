//! Fails on files that import each other in a cycle.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// A file `F.rs` with its folder `F`.
const WITHOUT_CIRCLES: [&str; 2] = ["src/rules/parse", "src/command/migrate"];

/// The imports of each module.
type Imports = BTreeMap<String, BTreeSet<String>>;

#[test]
fn no_files_import_each_other_in_a_cycle() {
    for top in WITHOUT_CIRCLES {
        let imports = imports(&modules(top));
        assert!(imports.values().map(BTreeSet::len).sum::<usize>() > 5, "{top}: no imports found");
        for module in imports.keys() {
            let circle = way(&imports, module, module, &mut BTreeSet::new());
            assert!(circle.is_none(), "{top}: {module} -> {}", circle.unwrap().join(" -> "));
        }
    }
}

#[test]
fn imports_are_found_in_every_syntax() {
    let sources = [
        ("a", "mod b;\nuse b::One;\nuse std::fmt;\n"),
        ("a::b", "use super::c::{self, d::Two};\n    use super::a::Inner;\n"),
        ("a::c", "use crate::a::{\n    b::One,\n};\n"),
        ("a::c::d", "use super::super::b;\n"),
    ];
    let sources = sources.map(|(module, text)| (module.to_owned(), text.to_owned()));
    let found = imports(&sources.into_iter().collect());
    let of = |module: &str| found[module].iter().map(String::as_str).collect::<Vec<_>>();
    assert_eq!(of("a"), ["a::b"]);
    assert_eq!(of("a::b"), ["a::c", "a::c::d"]);
    assert_eq!(of("a::c"), ["a::b"]);
    assert_eq!(of("a::c::d"), ["a::b"]);
    assert!(way(&found, "a::b", "a::b", &mut BTreeSet::new()).is_some());
    assert!(way(&found, "a", "a", &mut BTreeSet::new()).is_none());
}

/// The text of a module and of all modules below it, by path from the crate.
fn modules(top: &str) -> BTreeMap<String, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut left = vec![root.join(top).with_extension("rs"), root.join(top)];
    let mut found = BTreeMap::new();
    while let Some(path) = left.pop() {
        if path.is_dir() {
            left.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if !path.ends_with("tests.rs") {
            let module = path.strip_prefix(root.join("src")).unwrap().with_extension("");
            let module = module.to_str().unwrap().replace('/', "::");
            found.insert(module, fs::read_to_string(&path).unwrap());
        }
    }
    found
}

/// Imports at the top of a file; those of its unit tests are indented.
fn imports(modules: &BTreeMap<String, String>) -> Imports {
    let of = |(module, text): (&String, &String)| {
        let text = format!("\n{text}").replace("\npub use ", "\nuse ");
        let uses = text.split("\nuse ").skip(1).filter_map(|rest| rest.split_once(';'));
        let paths =
            uses.flat_map(|(path, _)| spelled_out(&path.split_whitespace().collect::<String>()));
        let found = paths.filter_map(|path| resolved(module, &path, modules));
        (module.clone(), found.filter(|found| found != module).collect())
    };
    modules.iter().map(of).collect()
}

/// `a::{b, c::{d, e}}` as `a::b`, `a::c::d` and `a::c::e`.
fn spelled_out(path: &str) -> Vec<String> {
    let Some((before, rest)) = path.split_once('{') else { return vec![path.to_owned()] };
    let inside = rest.strip_suffix('}').unwrap_or(rest);
    let (mut depth, mut parts) = (0, vec![String::new()]);
    for character in inside.chars() {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(String::new());
                continue;
            }
            _ => {}
        }
        parts.last_mut().unwrap().push(character);
    }
    let parts = parts.iter().filter(|part| !part.is_empty());
    parts.flat_map(|part| spelled_out(part)).map(|part| format!("{before}{part}")).collect()
}

/// The module that a path names, or that contains the named item.
fn resolved(module: &str, path: &str, modules: &BTreeMap<String, String>) -> Option<String> {
    let mut base: Vec<&str> = module.split("::").collect();
    let mut words: Vec<&str> = path.split("::").collect();
    if words[0] == "crate" {
        base.clear();
    }
    while matches!(words.first(), Some(&("crate" | "self" | "super"))) {
        if words.remove(0) == "super" {
            base.pop();
        }
    }
    let full: Vec<&str> = base.iter().chain(&words).copied().collect();
    let mut found = (base.len().max(1)..=full.len()).rev().map(|len| full[..len].join("::"));
    found.find(|found| modules.contains_key(found))
}

/// The modules on a path along imports.
fn way<'a>(
    imports: &'a Imports,
    from: &str,
    to: &str,
    seen: &mut BTreeSet<&'a str>,
) -> Option<Vec<&'a str>> {
    for next in imports.get(from)? {
        if next == to {
            return Some(vec![next]);
        }
        if seen.insert(next)
            && let Some(mut rest) = way(imports, next, to, seen)
        {
            rest.insert(0, next);
            return Some(rest);
        }
    }
    None
}
