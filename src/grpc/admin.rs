//! `tidegate.admin.v1.AdminService`: the methods for operators.

use std::sync::Arc;

use prost::Message;
use tonic::{Request as Call, Response, Status};

use super::rpc::limit_status;
use super::status_of;
use crate::proto::tidegate::admin::v1::admin_service_server::AdminService;
use crate::proto::tidegate::admin::v1::{ResetQuotaRequest, ResetQuotaResponse};
use crate::request::{Bounds, Request};
use crate::service::{DecideError, Service};

/// The service for operators, over the same rules and store as the one for callers.
pub struct Admin {
    /// Performs the resets.
    pub service: Arc<Service>,
    /// Bounds of a request.
    pub bounds: Bounds,
}

#[tonic::async_trait]
impl AdminService for Admin {
    async fn reset_quota(
        &self,
        call: Call<ResetQuotaRequest>,
    ) -> Result<Response<ResetQuotaResponse>, Status> {
        // Uses the parser of callers' requests, so that the same bounds apply.
        let message = call.into_inner().encode_to_vec();
        let request = Request::from_reset(&message, &self.bounds)
            .map_err(|error| status_of(DecideError::Request(error)))?;
        let snapshot = self.service.snapshot();
        let answer = self.service.reset(&snapshot, &request).await.map_err(status_of)?;
        if answer.limits.is_empty() {
            return Err(Status::not_found("these descriptors meet no limit; nothing was reset"));
        }
        let rules: Vec<_> = answer.limits.iter().map(|limit| limit.rule).collect();
        tracing::info!(domain = request.domain(), ?rules, "counters were reset");
        let statuses = answer.limits.iter().map(limit_status).collect();
        Ok(Response::new(ResetQuotaResponse { statuses }))
    }
}
