//! All domains: one immutable snapshot.

use hashbrown::HashMap;
use rapidhash::fast::RandomState;

use super::domain::Domain;
use super::load_error::LoadError;

/// All domains and their rules: one snapshot.
#[derive(Debug, Default)]
pub struct RuleSet {
    domains: Vec<Domain>,
    by_name: HashMap<Box<str>, usize, RandomState>,
    limits_count: usize,
    warnings: Vec<LoadError>,
}

impl RuleSet {
    /// The domain with this name.
    pub fn domain(&self, name: &str) -> Option<&Domain> {
        self.by_name.get(name).and_then(|&index| self.domains.get(index))
    }

    /// All domains, sorted by name.
    pub fn domains(&self) -> impl Iterator<Item = &Domain> {
        self.domains.iter()
    }

    /// The number of limits and unlimited rules; their ids are 0 up to this number.
    pub fn limits_count(&self) -> usize {
        self.limits_count
    }

    /// Configuration that is valid but probably a mistake.
    pub fn warnings(&self) -> impl Iterator<Item = &LoadError> {
        self.warnings.iter()
    }

    /// Sorts the domains, whose names differ, and numbers their limits.
    pub(super) fn new(mut domains: Vec<Domain>, warnings: Vec<LoadError>) -> Self {
        domains.sort_by(|a, b| a.name.cmp(&b.name));
        domains.iter_mut().zip(0..).for_each(|(domain, id)| domain.id = id);
        let mut ids = 0..;
        for rule in domains.iter_mut().flat_map(|domain| &mut domain.rules) {
            rule.take_ids(&mut ids);
        }
        let names = domains.iter().map(|domain| Box::from(domain.name()));
        let by_name = names.zip(0..).collect();
        Self { by_name, limits_count: ids.start, domains, warnings }
    }
}
