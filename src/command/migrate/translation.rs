//! The flags that the variables become, and remarks on them. `flags` and `store` fill it in,
//! `report` prints it.

/// The flags and remarks for all variables.
#[derive(Default)]
pub struct Translation {
    /// Flags of `serve`, each with its value if it takes one.
    pub(super) flags: Vec<(&'static str, Option<String>)>,
    /// Steps that are necessary before the flags have the effect of the variables: the variable and
    /// the step.
    pub(super) before: Vec<(&'static str, String)>,
    /// Further remarks: the variable and the text.
    pub(super) remarks: Vec<(&'static str, String)>,
}

impl Translation {
    pub(super) fn flag(&mut self, flag: &'static str) {
        self.flags.push((flag, None));
    }

    pub(super) fn set(&mut self, flag: &'static str, value: impl Into<String>) {
        self.flags.push((flag, Some(value.into())));
    }

    pub(super) fn before(&mut self, variable: &'static str, what: impl Into<String>) {
        self.before.push((variable, what.into()));
    }

    pub(super) fn remark(&mut self, variable: &'static str, what: &str) {
        self.remarks.push((variable, what.to_owned()));
    }

    /// Whether the translation contains this flag.
    pub(super) fn has(&self, flag: &str) -> bool {
        self.flags.iter().any(|(own, _)| *own == flag)
    }
}
