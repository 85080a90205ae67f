//! `tidegate reset`: resets counters of a running service.

use super::dial::{Port, Target};
use super::query;
use crate::proto::tidegate::admin::v1::ResetQuotaRequest;
use crate::proto::tidegate::admin::v1::admin_service_client::AdminServiceClient;
use crate::settings::Reset;

/// Resets, and prints the limits afterwards.
///
/// # Errors
/// The reset failed. The message is for people.
pub fn run(reset: &Reset) -> Result<(), String> {
    let runtime = super::runtime()?;
    let statuses = runtime.block_on(async {
        let target = Target::new(&reset.addr, &reset.client, Port::Admin)?;
        let channel = query::connect(&target).await?;
        let descriptors = reset.descriptors.iter().map(query::descriptor).collect();
        let request = ResetQuotaRequest { domain: reset.domain.clone(), descriptors };
        let answer = AdminServiceClient::new(channel).reset_quota(request).await;
        match answer {
            Ok(answer) => Ok(answer.into_inner().statuses),
            Err(status) => Err(query::refusal(&target, &status).await),
        }
    })?;
    super::print(&query::columns(&reset.descriptors, &statuses))
}
