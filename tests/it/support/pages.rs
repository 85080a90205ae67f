//! The contents of pages: blocks of code, and the words of a command.

use std::fs;

use super::tools::{root, text};

/// The contents of the book, with the names that its pages have there.
pub const CONTENTS: &str = "docs/SUMMARY.md";

/// A block of code, or a command in a comment `<!-- $ … -->`, which readers do not see.
#[derive(Clone)]
pub struct Block {
    /// The page, from the root.
    pub page: String,
    /// The line at which it begins.
    pub line: usize,
    /// The indent of its lines, if it belongs to a list item.
    pub indent: String,
    /// Its language.
    pub language: String,
    /// Its lines, without the indent.
    pub text: String,
}

impl Block {
    /// Page and line, for messages.
    pub fn place(&self) -> String {
        format!("{}:{}", self.page, self.line)
    }
}

/// README and the pages of the book, in order.
///
/// # Panics
/// When there is no book.
pub fn pages() -> Vec<String> {
    let entries = fs::read_dir(root().join("docs")).expect("a folder docs");
    let names = entries.map(|entry| entry.expect("a file").file_name());
    let names = names.map(|name| format!("docs/{}", name.to_str().expect("a plain name")));
    let is_page = |name: &String| name.ends_with(".md") && name != CONTENTS;
    let mut pages: Vec<_> = names.filter(is_page).collect();
    pages.push("README.md".to_owned());
    pages.sort();
    pages
}

/// All pages of the checkout, including those of examples.
///
/// # Panics
/// When a folder cannot be read.
pub fn every_markdown() -> Vec<String> {
    let (mut found, mut folders) = (Vec::new(), vec![root().to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder of the checkout") {
            let path = entry.expect("a file").path();
            let name = path.strip_prefix(root()).expect("below the root").to_str().expect("UTF-8");
            // Skips hidden files, and the output of Cargo.
            let is_left_out = name.starts_with('.') || ["target", CONTENTS].contains(&name);
            if path.is_dir() && !path.is_symlink() && !is_left_out {
                folders.push(path);
            } else if name.ends_with(".md") && !is_left_out {
                found.push(name.to_owned());
            }
        }
    }
    found
}

/// The blocks of a page, in order.
///
/// # Panics
/// When a block does not end.
pub fn blocks(page: &str) -> Vec<Block> {
    let (mut blocks, mut open) = (Vec::new(), None);
    for (line, text) in (1..).zip(text(page).lines()) {
        let bare = text.trim_start();
        let indent = || text[..text.len() - bare.len()].to_owned();
        let block = |language: &str, text: String| {
            let (page, language) = (page.to_owned(), language.to_owned());
            Block { page, line, indent: indent(), language, text }
        };
        let unseen = bare.strip_prefix("<!-- $ ").and_then(|text| text.strip_suffix(" -->"));
        match (&mut open, bare.strip_prefix("```")) {
            (None, Some(language)) => open = Some(block(language, String::new())),
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (Some(Block { text: lines, indent, .. }), None) => {
                *lines += &format!("{}\n", text.strip_prefix(indent.as_str()).unwrap_or(text));
            }
            (None, None) => blocks.extend(unseen.map(|text| block("sh", format!("{text}\n")))),
        }
    }
    assert!(open.is_none(), "{page}: a block does not end");
    blocks
}

/// The words of the first command in a text, split like a shell does.
pub fn words(text: &str) -> Vec<String> {
    let (mut words, mut word, mut is_quoted) = (vec![], None::<String>, false);
    let text = text.replace("\\\n", " ");
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\'' => is_quoted = !is_quoted,
            '\\' if !is_quoted => word.get_or_insert_default().extend(chars.next()),
            '\n' if !is_quoted => break,
            ' ' if !is_quoted => {
                words.extend(word.take());
                continue;
            }
            _ => word.get_or_insert_default().push(c),
        }
        // Empty quotes are a word too.
        word.get_or_insert_default();
    }
    words.extend(word);
    words
}
