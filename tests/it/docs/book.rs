//! The book that `make docs` builds: its contents name every page, and its links and anchors resolve.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::{env, fs};

use crate::support::pages::{CONTENTS, pages};
use crate::support::tools::{root, text};

const BOOK: &str = "target/book/html";

/// Pages of the book that are not in docs/.
const FROM_ELSEWHERE: [&str; 6] = [
    "introduction.md",
    "contents.md",
    "security.md",
    "contributing.md",
    "architecture.md",
    "changelog.md",
];

#[test]
fn the_contents_of_the_book_name_every_page_and_its_links_resolve() {
    let contents = text(CONTENTS);
    let named: Vec<_> =
        contents.split("](").skip(1).filter_map(|rest| rest.split(')').next()).collect();
    let unique: BTreeSet<_> = named.iter().copied().collect();
    assert_eq!(unique.len(), named.len(), "a page is named twice");
    let pages = pages();
    let own = pages.iter().filter_map(|page| page.strip_prefix("docs/"));
    let own = own.filter(|page| *page != "README.md");
    assert_eq!(unique, own.chain(FROM_ELSEWHERE).collect());
    // `make docs` sets this after it has built the book.
    if env::var_os("TIDEGATE_CHECK_BOOK").is_some() {
        check_links();
    }
}

/// The values of an attribute in a page of HTML.
fn attributes<'p>(page: &'p str, name: &str) -> impl Iterator<Item = &'p str> {
    let start = format!(" {name}=\"");
    page.split(&start)
        .skip(1)
        .filter_map(|rest| rest.split('"').next())
        .collect::<Vec<_>>()
        .into_iter()
}

fn html() -> BTreeMap<String, String> {
    let folder = root().join(BOOK);
    let entries =
        fs::read_dir(&folder).unwrap_or_else(|error| panic!("{BOOK}: {error}: run make docs"));
    let paths = entries.map(|entry| entry.unwrap().path());
    let pages = paths.filter(|path| path.extension().is_some_and(|ending| ending == "html"));
    pages
        .map(|path| {
            (
                path.file_name().unwrap().to_str().unwrap().to_owned(),
                fs::read_to_string(&path).unwrap(),
            )
        })
        .collect()
}

/// Checks every link of the book that `docs/build-book` built.
fn check_links() {
    let pages = html();
    assert!(pages.len() > 20, "{} pages", pages.len());
    let mut checked = 0;
    // These two repeat other pages under other paths.
    let own = pages
        .iter()
        .filter(|(name, _)| !["print.html", "404.html", "toc.html"].contains(&name.as_str()));
    for (name, page) in own {
        for link in attributes(page, "href").chain(attributes(page, "src")) {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { name } else { file };
            assert!(
                Path::new(&root().join(BOOK).join(target)).exists(),
                "{name}: {link} leads nowhere"
            );
            if !heading.is_empty() && target.ends_with(".html") {
                let there = attributes(&pages[target], "id").any(|id| id == heading);
                assert!(there, "{name}: no heading {link}");
            }
            checked += 1;
        }
    }
    assert!(checked > 200, "{checked} links");
}
