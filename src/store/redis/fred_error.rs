//! Converts errors of the client library fred, and decides whether a command was sent.
//!
//! fred has one error type for error replies of the server and for its own errors, and does not say
//! whether a command reached the socket. For a script run that decides whether hits may be taken.
//! So the version of fred is pinned in `Cargo.toml`, and the texts and kinds below are those of
//! 10.1.0. An error text of fred that is not listed counts as sent, because counting a hit twice is
//! worse than never counting it.

use fred::error::{Error, ErrorKind};

use crate::store_error::{RedisError, StoreError, readable};

/// The error texts of commands that fred never wrote to a connection. All other errors of its own
/// may follow a write: the connection broke, or its router task ended.
const NOT_SENT: [&str; 3] =
    ["Failed to route command.", "Failed to send command to router.", "Client is not initialized."];

/// Converts the error of a script run. `IO` means that the run was sent, at least in part, and
/// `Canceled` that it was still queued.
pub(super) fn run_error(error: &Error) -> StoreError {
    let details = error.details();
    let may_be_sent = is_of_the_client(error) && !NOT_SENT.contains(&details);
    if *error.kind() == ErrorKind::IO || may_be_sent {
        return StoreError::Lost(readable(details));
    }
    if *error.kind() == ErrorKind::NotFound {
        // The reply is not a string of bytes.
        return StoreError::BadReply(readable(details));
    }
    store_error(error)
}

/// Converts the error of any other command. It took no hits.
pub(super) fn store_error(error: &Error) -> StoreError {
    let details = os_message(error.details());
    let shown = || readable(details);
    match error.kind() {
        _ if is_of_the_client(error) => StoreError::Unavailable(shown()),
        ErrorKind::Timeout => StoreError::Timeout,
        ErrorKind::IO
        | ErrorKind::Tls
        | ErrorKind::Canceled
        | ErrorKind::Backpressure
        | ErrorKind::Routing => StoreError::Unavailable(shown()),
        ErrorKind::Parse | ErrorKind::Protocol => StoreError::BadReply(shown()),
        ErrorKind::Config
        | ErrorKind::Auth
        | ErrorKind::InvalidCommand
        | ErrorKind::InvalidArgument
        | ErrorKind::Url
        | ErrorKind::Unknown
        | ErrorKind::Cluster
        | ErrorKind::Sentinel
        | ErrorKind::NotFound => RedisError::parse(details).into(),
    }
}

/// Whether the text is fred's. Error replies of Redis begin with a code in capitals, such as `ERR`.
fn is_of_the_client(error: &Error) -> bool {
    let code = error.details().split(' ').next().unwrap_or_default();
    *error.kind() == ErrorKind::Unknown && code.contains(|c: char| c.is_ascii_lowercase())
}

/// The message of an operating system error, which fred formats with `Debug`.
fn os_message(details: &str) -> &str {
    let message = ["message: \"", "error: \""].iter().find_map(|name| details.split_once(name));
    message.and_then(|(_, rest)| rest.rsplit_once('"')).map_or(details, |(message, _)| message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_whether_its_run_may_have_been_sent() {
        let of = |kind, details: &'static str| run_error(&Error::new(kind, details)).kind();
        for (kind, details, wanted) in [
            (ErrorKind::IO, "Connection closed.", "lost"),
            (ErrorKind::IO, "Unresponsive connection.", "lost"),
            (ErrorKind::Unknown, "Too many failed write attempts.", "lost"),
            (ErrorKind::Unknown, "channel closed", "lost"),
            (ErrorKind::Timeout, "Request timed out.", "timeout"),
            (ErrorKind::Protocol, "Invalid frame type prefix.", "bad_reply"),
            (ErrorKind::NotFound, "Cannot parse into bytes.", "bad_reply"),
            (ErrorKind::Unknown, "Failed to route command.", "unavailable"),
            (ErrorKind::Unknown, "Client is not initialized.", "unavailable"),
            (ErrorKind::Canceled, "Canceled.", "unavailable"),
            (ErrorKind::Backpressure, "Max command buffer length exceeded.", "unavailable"),
            (ErrorKind::Unknown, "OOM command not allowed", "oom"),
            (ErrorKind::Unknown, "ERR unknown command", "refused"),
            (ErrorKind::InvalidArgument, "WRONGTYPE Operation against a key", "wrong_type"),
        ] {
            assert_eq!(of(kind, details), wanted, "{details}");
        }
    }

    #[test]
    fn the_message_of_an_operating_system_error_is_extracted() {
        for (details, message) in [
            (
                r#"Os { code: 111, kind: ConnectionRefused, message: "Connection refused" }"#,
                "Connection refused",
            ),
            (r#"Custom { kind: Uncategorized, error: "no such name" }"#, "no such name"),
            ("NOAUTH Authentication required.", "NOAUTH Authentication required."),
        ] {
            assert_eq!(os_message(details), message);
        }
    }

    #[test]
    fn errors_of_other_commands_took_no_hits() {
        for (kind, details) in [
            (ErrorKind::IO, "Connection closed."),
            (ErrorKind::Unknown, "channel closed"),
            (ErrorKind::Canceled, "Canceled."),
        ] {
            assert_eq!(store_error(&Error::new(kind, details)).kind(), "unavailable", "{details}");
        }
    }
}
