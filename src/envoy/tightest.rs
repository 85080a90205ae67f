//! Which of several limits a descriptor's status reports, and how long to wait for it.

use crate::decision::Enforcement;
use crate::service::LimitStatus;

pub(super) const fn rejects(status: &LimitStatus<'_>) -> bool {
    !status.status.within_limit && !matches!(status.enforcement, Enforcement::Shadow)
}

/// The limit to report: the rejecting one with the longest wait, or else the one with the least
/// remaining.
pub(super) fn tightest<'a, 's>(
    statuses: impl Iterator<Item = &'a LimitStatus<'s>> + Clone,
) -> Option<&'a LimitStatus<'s>>
where
    's: 'a,
{
    let wait = |status: &&LimitStatus<'_>| status.status.retry_after_ms.unwrap_or(u64::MAX);
    let rejecting = statuses.clone().filter(|status| rejects(status)).max_by_key(wait);
    let limited = statuses.filter(|status| status.limit.is_some());
    rejecting.or_else(|| limited.min_by_key(|status| status.status.remaining))
}

/// Over the limit: seconds until the request could pass, at least one. If it never could, and
/// within the limit: seconds until the limit is full again.
pub(super) fn seconds(status: &LimitStatus<'_>) -> u64 {
    let reset_after_ms = status.status.reset_after_ms;
    if rejects(status) {
        status.status.retry_after_ms.unwrap_or(reset_after_ms).div_ceil(1_000).max(1)
    } else {
        reset_after_ms.div_ceil(1_000)
    }
}
