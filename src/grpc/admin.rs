//! `tidegate.admin.v1.AdminService`: the methods for operators.

use std::sync::Arc;

use prost::Message;
use tonic::{Request as Call, Response, Status};

use super::refusal::{Reason, refuse, refuse_request, refuse_undecided};
use super::rpc::limit_status;
use crate::proto::tidegate::admin::v1::admin_service_server::AdminService;
use crate::proto::tidegate::admin::v1::{ResetQuotaRequest, ResetQuotaResponse};
use crate::request::{Bounds, Request};
use crate::service::Service;

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
        let request =
            Request::from_reset(&message, &self.bounds).map_err(|error| refuse_request(&error))?;
        let snapshot = self.service.snapshot();
        let answer = self.service.reset(&snapshot, &request).await;
        let answer = answer.map_err(|error| refuse_undecided(&error))?;
        if answer.limits.is_empty() {
            let message = "these descriptors match no limit; nothing was reset";
            return Err(refuse(Reason::NoLimit, message));
        }
        let rules: Vec<_> = answer.limits.iter().map(|limit| limit.rule).collect();
        tracing::info!(domain = request.domain(), ?rules, "counters were reset");
        let statuses = answer.limits.iter().map(limit_status).collect();
        Ok(Response::new(ResetQuotaResponse { statuses }))
    }
}
