//! Series that come and go with reloads. The exporter keeps every series for ever, so these are
//! kept here and rendered by their own modules.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// Series by name.
pub(super) struct Configured<N, S>(Mutex<BTreeMap<N, Arc<S>>>);

impl<N, S> Default for Configured<N, S> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<N: Ord, S: Default> Configured<N, S> {
    /// Sets the names, and returns their series in the same order. Existing series continue, and
    /// those no longer named end.
    pub(super) fn replace(&self, names: impl IntoIterator<Item = N>) -> Vec<Arc<S>> {
        let mut configured = self.0.lock();
        let mut next = BTreeMap::<N, Arc<S>>::new();
        let series = |name: N| {
            let earlier = configured.remove(&name);
            Arc::clone(next.entry(name).or_insert_with(|| earlier.unwrap_or_default()))
        };
        let series = names.into_iter().map(series).collect();
        *configured = next;
        series
    }

    /// Visits all series, ordered by name.
    pub(super) fn for_each(&self, mut show: impl FnMut(&N, &S)) {
        self.0.lock().iter().for_each(|(name, series)| show(name, series));
    }
}

/// Escapes a label's value for Prometheus's text format.
pub(super) fn escaped(value: &str) -> String {
    value.replace('\\', r"\\").replace('"', r#"\""#).replace('\n', r"\n")
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn series_go_on_while_they_are_configured_and_end_with_it() {
        let configured = Configured::<&str, AtomicU64>::default();
        let count = |name| configured.replace([name])[0].fetch_add(1, Ordering::Relaxed) + 1;
        assert_eq!([count("a"), count("a"), count("b"), count("a")], [1, 2, 1, 1]);
        let series = configured.replace(["a", "b", "a"]);
        assert!(Arc::ptr_eq(&series[0], &series[2]), "one name is one series");
        let mut names = vec![];
        configured.for_each(|name, series| names.push((*name, series.load(Ordering::Relaxed))));
        assert_eq!(names, [("a", 1), ("b", 0)]);
    }
}
