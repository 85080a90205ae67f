//! What every page of the HTTP port reads from.

use std::sync::Arc;

use crate::envoy::Style;
use crate::metrics::InUse;
use crate::request::Bounds;
use crate::service::Service;

/// Whether the service is on its way to its end.
pub type IsLeaving = Box<dyn Fn() -> bool + Send + Sync>;

/// How many calls are being decided, and how many connections there are on the gRPC port.
pub type CountInUse = Box<dyn Fn() -> InUse + Send + Sync>;

/// What the pages show, and how they decide.
pub struct Pages {
    /// Decides.
    pub service: Arc<Service>,
    /// How much a request may bring.
    pub bounds: Bounds,
    /// What decisions carry.
    pub style: Style,
    /// The service is not ready while it is.
    pub is_leaving: IsLeaving,
    /// For metrics.
    pub in_use: CountInUse,
}
