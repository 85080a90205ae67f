//! Formats of the bytes in Redis and of script calls: this build reads what every earlier one wrote,
//! and decides together with it on one Redis.
//!
//! `tests/golden/format/N` holds for format N the script as it was when the format was recorded
//! (`decide.lua`), states that it wrote with the decisions that follow from them (`states.jsonl`), and
//! calls of it with their replies (`calls.jsonl`).
//!
//! A build that writes other bytes or sends other calls has a new format: raise
//! `tidegate::algorithm::FORMAT`, and run these tests with `GOLDEN=write` in the environment. That adds
//! the files of the new format. Files that exist are never written again.

mod calls;
mod differences;
mod recorded;
mod states;
mod turns;

use tidegate::algorithm::FORMAT;

/// All formats, oldest first.
fn formats() -> impl Iterator<Item = u32> {
    1..=FORMAT
}

#[test]
fn every_format_up_to_todays_is_recorded_and_none_after_it() {
    for format in formats() {
        assert!(!recorded::script(format).is_empty());
    }
    assert!(!recorded::folder(FORMAT + 1).exists(), "FORMAT is lower than the newest recorded one");
}
