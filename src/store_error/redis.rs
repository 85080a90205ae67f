//! Parses the error replies of Redis into codes.
//!
//! An error reply begins with its code (`OOM command not allowed …`), except for errors inside a
//! script. Redis 6.2 wraps those (`ERR Error running script … @user_script:12: -OOM …`), and a
//! command that the script's user may not run is reported without a code. For them the code is
//! searched for in the text, in this module only. Redis publishes no list of its codes; all that
//! are not listed here are [`Code::Other`].

/// An error that Redis answered with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisError {
    /// The parsed code.
    pub code: Code,
    /// The reply for the log, cut and escaped.
    pub message: String,
}

/// The codes of errors that are handled in different ways.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Code {
    /// Memory is full, and the script wanted to write.
    Oom,
    /// The server is a replica, and the script wanted to write.
    ReadOnly,
    /// The user lacks a permission.
    NoPerm(Denied),
    /// No password, or a wrong one.
    NoAuth,
    /// The server is loading its data from disk.
    Loading,
    /// Another script runs for too long.
    Busy,
    /// The server cannot save to disk and therefore refuses writes.
    Misconf,
    /// Too few replicas are connected, so the server refuses writes.
    NoReplicas,
    /// The server is a replica without its primary.
    MasterDown,
    /// The cluster as a whole refuses commands.
    ClusterDown,
    /// The slot is served by another node.
    Moved(Address),
    /// The slot is migrating to another node: this request goes there, after ASKING.
    Ask(Address),
    /// The slot is migrating, and only some of the keys are on this node.
    TryAgain,
    /// The keys are in several slots.
    CrossSlot,
    /// A key does not hold a counter's state.
    WrongType,
    /// The server does not have the script.
    NoScript,
    /// Any other error.
    Other,
}

/// When Redis noticed that a permission is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// Before the run, for one of its keys.
    Key,
    /// Before the run, for the command.
    Command,
    /// At a command of the script, whose earlier commands may have written.
    InScript,
}

/// The node that a redirect names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Empty if it is the host of the redirecting node.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl RedisError {
    /// Parses an error reply.
    pub fn parse(message: &str) -> Self {
        let code = Code::at_start(message).unwrap_or_else(|| Code::in_script(message));
        Self { code, message: readable(message) }
    }
}

/// The most characters of a text from Redis in logs and pages.
const READABLE_MAX: usize = 500;

/// A text from Redis as logs and pages show it: cut to `READABLE_MAX` characters, on one line, with
/// everything but printable ASCII escaped.
pub fn readable(text: &str) -> String {
    let is_plain = |c: &char| matches!(c, ' '..='~');
    let mut shown = String::new();
    for c in text.chars() {
        let length = if is_plain(&c) { 1 } else { c.escape_default().len() };
        if shown.len() + length > READABLE_MAX {
            return format!("{shown}… ({} bytes)", text.len());
        }
        if is_plain(&c) { shown.push(c) } else { shown.extend(c.escape_default()) }
    }
    shown
}

/// The codes that are one word. In errors inside a script they are searched for in this order.
const WORDS: [(&str, Code); 15] = [
    ("OOM", Code::Oom),
    ("READONLY", Code::ReadOnly),
    ("NOAUTH", Code::NoAuth),
    ("WRONGPASS", Code::NoAuth),
    ("LOADING", Code::Loading),
    ("MASTERDOWN", Code::MasterDown),
    ("CLUSTERDOWN", Code::ClusterDown),
    ("TRYAGAIN", Code::TryAgain),
    ("MISCONF", Code::Misconf),
    ("NOREPLICAS", Code::NoReplicas),
    ("BUSY", Code::Busy),
    ("CROSSSLOT", Code::CrossSlot),
    ("WRONGTYPE", Code::WrongType),
    ("NOSCRIPT", Code::NoScript),
    ("NOPERM", Code::NoPerm(Denied::InScript)),
];

/// The error texts for a command in a script that its user may not run: of Redis 6.2 and 7.0 (the
/// first two), and of later versions and Valkey (the third).
const DENIED_IN_SCRIPT: [&str; 3] =
    ["can't run this command", "can't access at least one of the keys", "ACL failure in script"];

impl Code {
    /// The code that a reply begins with.
    fn at_start(message: &str) -> Option<Self> {
        let (word, rest) = message.split_once(' ').unwrap_or((message, ""));
        match word {
            "MOVED" => Address::of_redirect(rest).map(Self::Moved),
            "ASK" => Address::of_redirect(rest).map(Self::Ask),
            // There are three texts: "access one of the keys", "access a key", "access the … key".
            "NOPERM" if message.contains(" access ") => Some(Self::NoPerm(Denied::Key)),
            "NOPERM" => Some(Self::NoPerm(Denied::Command)),
            _ => WORDS.iter().find(|(name, _)| *name == word).map(|(_, code)| code.clone()),
        }
    }

    /// The code of an error inside a script, whose reply begins with `ERR`.
    fn in_script(message: &str) -> Self {
        if !message.contains("script") {
            return Self::Other;
        }
        if DENIED_IN_SCRIPT.iter().any(|words| message.contains(words)) {
            return Self::NoPerm(Denied::InScript);
        }
        let found = WORDS.iter().find(|(name, _)| message.contains(name));
        match found {
            Some((_, code)) => code.clone(),
            // The script fails by itself only on bytes that are not a state.
            None if message.contains("user_script") => Self::WrongType,
            None => Self::Other,
        }
    }

    /// The value of the metric label `kind`.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Oom => "oom",
            Self::ReadOnly => "readonly",
            Self::NoPerm(_) => "noperm",
            Self::NoAuth => "noauth",
            Self::Loading => "loading",
            Self::Busy => "busy",
            Self::Misconf => "misconf",
            Self::NoReplicas => "noreplicas",
            Self::MasterDown => "masterdown",
            Self::ClusterDown => "clusterdown",
            Self::Moved(_) => "moved",
            Self::TryAgain => "tryagain",
            Self::WrongType => "wrong_type",
            Self::Ask(_) | Self::CrossSlot | Self::NoScript | Self::Other => "refused",
        }
    }

    /// Whether the request is to be sent to another node, or again later. No hits were taken.
    pub(crate) const fn is_redirect(&self) -> bool {
        matches!(self, Self::Moved(_) | Self::Ask(_) | Self::TryAgain)
    }

    /// Whether the hits may have been taken. The client closes a connection that answered
    /// CLUSTERDOWN, and every run in flight on it gets that error.
    pub(super) const fn may_have_taken(&self) -> bool {
        matches!(self, Self::ClusterDown | Self::NoPerm(Denied::InScript))
    }

    /// Whether a single request of a run may be the cause, and the run wrote nothing.
    pub(super) const fn may_concern_one_request(&self) -> bool {
        match self {
            // These are returned for the first write, which a rejected request does not make. What
            // the server lacks does not change during a run.
            Self::Oom | Self::Misconf | Self::NoReplicas => true,
            Self::WrongType | Self::NoPerm(Denied::Key) => true,
            // The keys of one request are on one node, but those of several requests may not be.
            // Redis 6.2 answers ASK to a run if any of its keys is on the other node.
            Self::Ask(_) | Self::TryAgain => true,
            Self::NoPerm(Denied::Command | Denied::InScript)
            | Self::ReadOnly
            | Self::NoAuth
            | Self::Loading
            | Self::Busy
            | Self::MasterDown
            | Self::ClusterDown
            | Self::Moved(_)
            | Self::CrossSlot
            | Self::NoScript
            | Self::Other => false,
        }
    }

    /// Whether the server as a whole cannot decide for a while.
    pub(super) const fn is_of_the_server(&self) -> bool {
        matches!(
            self,
            Self::ReadOnly
                | Self::Loading
                | Self::MasterDown
                | Self::ClusterDown
                | Self::Busy
                | Self::NoAuth
        )
    }
}

impl Address {
    /// Parses the address in `3999 10.0.0.1:6381`.
    fn of_redirect(rest: &str) -> Option<Self> {
        let (_slot, address) = rest.split_once(' ')?;
        let (host, port) = address.split(' ').next()?.rsplit_once(':')?;
        Some(Self { host: host.to_owned(), port: port.parse().ok()? })
    }
}

#[cfg(test)]
impl Code {
    /// One example of each code.
    pub(super) const EXAMPLES: [Self; 17] = [
        Self::Oom,
        Self::ReadOnly,
        Self::NoPerm(Denied::Key),
        Self::NoAuth,
        Self::Loading,
        Self::Busy,
        Self::Misconf,
        Self::NoReplicas,
        Self::MasterDown,
        Self::ClusterDown,
        Self::Moved(Address { host: String::new(), port: 1 }),
        Self::Ask(Address { host: String::new(), port: 1 }),
        Self::TryAgain,
        Self::CrossSlot,
        Self::WrongType,
        Self::NoScript,
        Self::Other,
    ];
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(message: &str) -> Code {
        RedisError::parse(message).code
    }

    #[test]
    fn the_code_of_a_reply_is_found_in_every_version_of_redis() {
        let denied = |when| Code::NoPerm(when);
        for (message, wanted) in [
            ("OOM command not allowed when used memory > 'maxmemory'.", Code::Oom),
            (
                "ERR Error running script (call to f_5b2): @user_script:9: @user_script: 9: -OOM \
                 command not allowed when used memory > 'maxmemory'.",
                Code::Oom,
            ),
            ("READONLY You can't write against a read only replica. script: 5b2", Code::ReadOnly),
            ("MISCONF Redis is configured to save RDB snapshots, but it's unable", Code::Misconf),
            ("NOREPLICAS Not enough good replicas to write. script: 5b2", Code::NoReplicas),
            ("NOAUTH Authentication required.", Code::NoAuth),
            ("WRONGPASS invalid username-password pair or user is disabled.", Code::NoAuth),
            ("LOADING Redis is loading the dataset in memory", Code::Loading),
            ("BUSY Redis is busy running a script.", Code::Busy),
            ("NOSCRIPT No matching script. Please use EVAL.", Code::NoScript),
            ("CROSSSLOT Keys in request don't hash to the same slot", Code::CrossSlot),
            ("TRYAGAIN Multiple keys request during rehashing of slot", Code::TryAgain),
            ("NOPERM this user has no permissions to run the 'evalsha'", denied(Denied::Command)),
            ("NOPERM this user has no permissions to access one of the keys", denied(Denied::Key)),
            ("NOPERM No permissions to access a key", denied(Denied::Key)),
            ("NOPERM User lim has no permissions to access the 'x' key", denied(Denied::Key)),
            (
                "ERR The user executing the script can't run this command or subcommand script: \
                 5b2, on @user_script:501.",
                denied(Denied::InScript),
            ),
            (
                "ERR ACL failure in script: No permissions to access a key script: on @user_script:1.",
                denied(Denied::InScript),
            ),
            ("WRONGTYPE Operation against a key holding the wrong kind of value", Code::WrongType),
            ("ERR user_script:12: data string too short script: 5b2", Code::WrongType),
            ("ERR unknown command 'EVALSHA', with args beginning with: 'OOM'", Code::Other),
            ("", Code::Other),
        ] {
            assert_eq!(code(message), wanted, "{message}");
        }
    }

    #[test]
    fn a_text_is_shown_on_one_short_line_of_plain_characters() {
        for (text, shown) in [
            ("ERR no", "ERR no"),
            ("ERR it's \"a\\b\"", "ERR it's \"a\\b\""),
            ("ERR \u{1b}[31m\n\u{202e}é", "ERR \\u{1b}[31m\\n\\u{202e}\\u{e9}"),
        ] {
            assert_eq!(readable(text), shown);
        }
        let longest = "a".repeat(READABLE_MAX);
        assert_eq!(readable(&longest), longest);
        assert_eq!(readable(&format!("{longest}b")), format!("{longest}… (501 bytes)"));
        let half = "a".repeat(READABLE_MAX - 1);
        assert_eq!(readable(&format!("{half}\u{202e}")), format!("{half}… (502 bytes)"));
    }

    #[test]
    fn a_redirect_names_its_node() {
        let address = |host: &str| Address { host: host.to_owned(), port: 6_381 };
        assert_eq!(code("MOVED 3999 10.0.0.1:6381"), Code::Moved(address("10.0.0.1")));
        assert_eq!(code("ASK 3999 ::1:6381"), Code::Ask(address("::1")));
        assert_eq!(code("MOVED 3999 :6381"), Code::Moved(address("")));
        for other in ["MOVED", "MOVED 3999", "MOVED 3999 host", "ASK 3999 host:x"] {
            assert_eq!(code(other), Code::Other, "{other}");
        }
    }

    #[test]
    fn hits_may_be_taken_if_earlier_commands_of_the_script_ran() {
        for (message, may_have_taken) in [
            ("OOM command not allowed when used memory > 'maxmemory'", false),
            ("NOPERM this user has no permissions to run the 'evalsha' command", false),
            ("ERR The user executing the script can't run this command", true),
            ("ERR ACL failure in script: No permissions to access a key script: on", true),
            ("CLUSTERDOWN The cluster is down", true),
            ("WRONGTYPE Operation against a key holding the wrong kind of value", false),
            ("ERR unknown command", false),
        ] {
            assert_eq!(code(message).may_have_taken(), may_have_taken, "{message}");
        }
    }

    #[test]
    fn a_run_is_split_if_one_request_may_be_the_cause() {
        for (message, may_concern_one) in [
            ("OOM command not allowed when used memory > 'maxmemory'. script: 5b2", true),
            ("NOPERM this user has no permissions to access one of the keys used as", true),
            ("ASK 3999 ::1:6381", true),
            ("TRYAGAIN Multiple keys request", true),
            ("MOVED 3999 ::1:6381", false),
            ("NOPERM this user has no permissions to run the 'evalsha' command", false),
            ("ERR The user executing the script can't run this command or subcommand", false),
            ("ERR ACL failure in script: No permissions to access a key script: on", false),
            ("READONLY You can't write against a read only replica.", false),
            ("LOADING Redis is loading the dataset in memory", false),
        ] {
            assert_eq!(code(message).may_concern_one_request(), may_concern_one, "{message}");
        }
    }
}
