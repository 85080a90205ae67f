//! The state behind the pages of the HTTP port.

use std::sync::Arc;

use super::shared_page::SharedPage;
use crate::envoy::Style;
use crate::metrics::InUse;
use crate::request::Bounds;
use crate::service::{Refusal, Service};

/// Whether the service is shutting down.
pub type IsLeaving = Box<dyn Fn() -> bool + Send + Sync>;

/// Counts calls in flight and connections on the gRPC port.
pub type CountInUse = Box<dyn Fn() -> InUse + Send + Sync>;

/// What the page of the rules in force shows.
#[derive(Clone, Debug)]
pub struct InForceVersion {
    /// The load of the rules.
    pub number: u64,
    /// Why later files were refused.
    pub refusal: Option<Arc<Refusal>>,
}

impl PartialEq for InForceVersion {
    fn eq(&self, other: &Self) -> bool {
        let pointer = |version: &Self| version.refusal.as_ref().map(Arc::as_ptr);
        self.number == other.number && pointer(self) == pointer(other)
    }
}

/// The state behind the pages.
pub struct Pages {
    /// Makes the decisions.
    pub service: Arc<Service>,
    /// Bounds of a request.
    pub bounds: Bounds,
    /// Headers and metadata of decisions.
    pub style: Style,
    /// The service is not ready while it shuts down.
    pub is_leaving: IsLeaving,
    /// For metrics.
    pub in_use: CountInUse,
    /// The rules in force.
    pub limits: SharedPage<InForceVersion>,
}
