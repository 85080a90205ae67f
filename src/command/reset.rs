//! `tidegate reset`: resets counters of a running service.

use super::query;
use crate::proto::tidegate::admin::v1::ResetQuotaRequest;
use crate::proto::tidegate::admin::v1::admin_service_client::AdminServiceClient;
use crate::settings::{Client, Reset};

/// Resets, and prints the limits afterwards.
///
/// # Errors
/// The reset failed. The message is for people.
pub fn run(reset: &Reset) -> Result<(), String> {
    let runtime = super::runtime()?;
    let statuses = runtime.block_on(async {
        let channel =
            query::connect(&reset.addr, &Client::default(), "serve with --admin-addr").await?;
        let descriptors = reset.descriptors.iter().map(query::descriptor).collect();
        let request = ResetQuotaRequest { domain: reset.domain.clone(), descriptors };
        let answer = AdminServiceClient::new(channel).reset_quota(request).await;
        answer.map(|answer| answer.into_inner().statuses).map_err(|status| query::refusal(&status))
    })?;
    super::print(&query::columns(&reset.descriptors, &statuses))
}
