//! `tidegate migrate`: translates the settings of envoyproxy/ratelimit into flags of `serve`.
//!
//! The environment variables are read (`vars`), checked against one table of all known variables
//! (`table`, `values`), turned into flags (`flags`, `store`, `translation`) and printed, with a
//! remark on each variable that has no flag (`report`). All mistakes are reported at once.
//!
//! The output contains no passwords, and other values only if they become flags.

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

/// Prints the flags, and below them further remarks as shell comments.
///
/// # Errors
/// The variables cannot be read, or some values are wrong; all of them are named.
pub fn run(settings: &Migrate) -> Result<(), String> {
    let Origin::EnvoyproxyEnv = settings.from;
    let vars = match &settings.file {
        None => Vars::of_this_process(),
        Some(path) => Vars::read(path)?,
    };
    super::print(&translated(&vars)?)
}

/// The text to print for these variables.
///
/// # Errors
/// Every value that is wrong, and the allowed ones.
pub fn translated(vars: &Vars) -> Result<String, String> {
    let mut mistakes = Mistakes::default();
    let values = Values::of(vars, &mut mistakes);
    let translation = Translation::of(&values, &mut mistakes);
    mistakes.or_else(|| report::text(&translation, vars, &values))
}
