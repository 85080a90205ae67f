//! `tidegate migrate`: from the settings of another service to the flags of `serve`.
//!
//! The environment variables of envoyproxy/ratelimit are read (`vars`), checked against one table of
//! all that it knows (`table`, `values`), put together into flags (`flags`, `store`, `translation`) and
//! printed with a word on each variable that has no flag (`report`). All that is wrong is said at once.
//!
//! What is printed holds no password, and of other values only those that become flags.

mod flags;
mod report;
mod store;
mod table;
mod translation;
mod values;
mod vars;

use crate::settings::{Migrate, Origin};

pub use self::table::{Becomes, Kind, VARIABLES, Variable};
pub use self::translation::Translation;
pub use self::values::{Mistakes, Value, Values};
pub use self::vars::{Source, Var, Vars};

/// Prints the flags, and below them, as comments of a shell, what else there is to know.
///
/// # Errors
/// What cannot be read, and every value that is wrong.
pub fn run(settings: &Migrate) -> Result<(), String> {
    let Origin::EnvoyproxyEnv = settings.from;
    let vars = match &settings.file {
        None => Vars::of_this_process(),
        Some(path) => Vars::read(path)?,
    };
    super::print(&translated(&vars)?)
}

/// What is printed for these variables.
///
/// # Errors
/// Every value that is wrong, with what is allowed.
pub fn translated(vars: &Vars) -> Result<String, String> {
    let mut mistakes = Mistakes::default();
    let values = Values::of(vars, &mut mistakes);
    let translation = Translation::of(&values, &mut mistakes);
    mistakes.or_else(|| report::text(&translation, vars, &values))
}
