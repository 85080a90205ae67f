//! The flags that the variables become, and remarks on them: `flags` and `store` fill it in, `report`
//! prints it.

/// What the variables become.
#[derive(Default)]
pub struct Translation {
    /// Flags of `serve`, each with its value if it takes one.
    pub(super) flags: Vec<(&'static str, Option<String>)>,
    /// What must be done before the flags do as the variables did: the variable, and what.
    pub(super) before: Vec<(&'static str, String)>,
    /// What else there is to know of a variable.
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

    /// Whether a flag is among them.
    pub(super) fn has(&self, flag: &str) -> bool {
        self.flags.iter().any(|(own, _)| *own == flag)
    }
}
