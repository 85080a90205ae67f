//! Prints the result: a shell command followed by comments.

use super::table::{self, Becomes, PREFIXES, VARIABLES};
use super::translation::Translation;
use super::values::Values;
use super::vars::Vars;

/// A difference in behaviour unless a flag is given: the flag, the behaviour without it, and with
/// it.
const BY_DEFAULT: [(&str, &str); 3] = [
    (
        "--count-rejected",
        "a rejected request takes nothing; with this it counts in fixed windows, as there: whoever \
            asks with hits_addend 0 and pays afterwards needs it, or overdraft: true in the rule",
    ),
    (
        "--on-store-failure error",
        "while Redis does not answer, a replica decides by itself; with this the proxy gets an \
            error and decides, as there",
    ),
    (
        "--dynamic-metadata off",
        "answers tell the proxy which rules they met; with this they do not, as there",
    ),
];

/// The names of one or several variables, and the remark on them.
type Lines = Vec<(String, String)>;

/// The complete output.
pub(super) fn text(translation: &Translation, vars: &Vars, values: &Values<'_>) -> String {
    let sections: [(&str, Lines); 6] = [
        ("Before you run it", owned(&translation.before)),
        ("Without a counterpart", said(vars, values, missing)),
        ("Replaced, or not needed", said(vars, values, needless)),
        ("To know", owned(&translation.remarks)),
        ("Unknown; perhaps for another program", unknown(vars)),
        (
            "Different by default, and the flag that restores the old behaviour",
            by_default(translation, values),
        ),
    ];
    let mut text = command(translation);
    for (title, lines) in sections.iter().filter(|(_, lines)| !lines.is_empty()) {
        text += &format!("\n# {title}:\n");
        for (names, what) in lines {
            let colon = if what.is_empty() { "" } else { ": " };
            text += &format!("#   {names}{colon}{what}\n");
        }
    }
    text + "\n# docs/from-envoyproxy-ratelimit.md has the next steps and all differences.\n"
}

fn command(translation: &Translation) -> String {
    let mut text = "tidegate serve".to_owned();
    for (flag, value) in &translation.flags {
        text += " \\\n  ";
        text += flag;
        if let Some(value) = value {
            text.push(' ');
            text += &quoted(value);
        }
    }
    text + "\n"
}

/// Quotes `text` with single quotes if it contains characters that are special to a shell.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/_-.,:=@%+".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

fn owned(lines: &[(&'static str, String)]) -> Lines {
    lines.iter().map(|(name, what)| ((*name).to_owned(), what.clone())).collect()
}

/// The remark under "Without a counterpart".
const fn missing(becomes: Becomes, is_off: bool) -> Option<&'static str> {
    match becomes {
        Becomes::Missing(what) if !is_off => Some(what),
        Becomes::Flag(_) | Becomes::Missing(_) | Becomes::Needless(_) => None,
    }
}

/// The remark under "Replaced, or not needed".
const fn needless(becomes: Becomes, is_off: bool) -> Option<&'static str> {
    match becomes {
        Becomes::Missing(_) | Becomes::Needless(_) if is_off => Some("off, so nothing to do"),
        Becomes::Needless(what) => Some(what),
        Becomes::Flag(_) | Becomes::Missing(_) => None,
    }
}

/// The variables that are set, in the order of the table; variables with the same remark are
/// grouped.
fn said(
    vars: &Vars,
    values: &Values<'_>,
    section: impl Fn(Becomes, bool) -> Option<&'static str>,
) -> Lines {
    let mut lines: Lines = vec![];
    for variable in VARIABLES.iter().filter(|variable| values.has(variable.name)) {
        let what = section(variable.becomes, values.is_off(variable.name));
        let Some(what) = what else { continue };
        let names = names(vars, variable.name);
        match lines.iter_mut().find(|(_, same)| same == what) {
            Some((others, _)) => *others += &format!(", {names}"),
            None => lines.push((names, what.to_owned())),
        }
    }
    lines
}

/// The variables that one row of the table describes.
fn names(vars: &Vars, row: &str) -> String {
    let set = vars.iter().map(|(name, _)| name);
    let own = set.filter(|name| table::find(name).is_some_and(|variable| variable.name == row));
    own.map(printable).collect::<Vec<_>>().join(", ")
}

fn unknown(vars: &Vars) -> Lines {
    let unknown = vars.iter().filter(|(name, var)| {
        let is_ours = PREFIXES.iter().any(|prefix| name.starts_with(prefix));
        is_ours && table::find(name).is_none() && !is_link(name, &var.value)
    });
    unknown.map(|(name, _)| (printable(name), String::new())).collect()
}

/// Kubernetes sets such variables in every container for each service: `REDIS_SERVICE_HOST`,
/// `REDIS_PORT_6379_TCP`.
fn is_link(name: &str, value: &str) -> bool {
    let parts = ["_SERVICE_HOST", "_SERVICE_PORT", "_PORT_"];
    parts.iter().any(|part| name.contains(part))
        || ["tcp://", "udp://"].iter().any(|scheme| value.starts_with(scheme))
}

/// Escapes a name so that it cannot end the comment that it is printed in.
fn printable(name: &str) -> String {
    name.chars().flat_map(char::escape_debug).collect()
}

fn by_default(translation: &Translation, values: &Values<'_>) -> Lines {
    let differs = |(flag, _): &&(&str, &str)| {
        let name = flag.split(' ').next().unwrap_or(flag);
        let wanted = match name {
            "--count-rejected" => values.is_on("STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT"),
            "--dynamic-metadata" => values.is_on("RESPONSE_DYNAMIC_METADATA"),
            _ => false,
        };
        !wanted && !translation.has(name)
    };
    let lines = BY_DEFAULT.iter().filter(differs);
    lines.map(|(flag, what)| ((*flag).to_owned(), (*what).to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_special_to_a_shell_are_quoted() {
        for (text, wanted) in [
            ("redis://a:1/2", "redis://a:1/2"),
            ("redis-sentinel://a:1?service=m", "'redis-sentinel://a:1?service=m'"),
            ("", "''"),
            ("a b", "'a b'"),
            ("it's $(x)", r"'it'\''s $(x)'"),
        ] {
            assert_eq!(quoted(text), wanted);
        }
    }
}
