//! The state behind the pages of the HTTP port.

use std::sync::Arc;

use crate::envoy::Style;
use crate::metrics::InUse;
use crate::request::Bounds;
use crate::service::Service;

/// Whether the service is shutting down.
pub type IsLeaving = Box<dyn Fn() -> bool + Send + Sync>;

/// Counts calls in flight and connections on the gRPC port.
pub type CountInUse = Box<dyn Fn() -> InUse + Send + Sync>;

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
}
