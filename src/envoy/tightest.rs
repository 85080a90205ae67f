//! Which of several limits a descriptor's status reports, and how long to wait for it.

use crate::decision::Enforcement;
use crate::service::LimitAnswer;

pub(super) const fn rejects(limit: &LimitAnswer<'_>) -> bool {
    !limit.status.within_limit && !matches!(limit.enforcement, Enforcement::Shadow)
}

/// The limit to report: the rejecting one with the longest wait, or else the one with the least
/// remaining.
pub(super) fn tightest<'a, 's>(
    limits: impl Iterator<Item = &'a LimitAnswer<'s>> + Clone,
) -> Option<&'a LimitAnswer<'s>>
where
    's: 'a,
{
    let wait = |limit: &&LimitAnswer<'_>| limit.status.retry_after_ms.unwrap_or(u64::MAX);
    let rejecting = limits.clone().filter(|limit| rejects(limit)).max_by_key(wait);
    let limited = limits.filter(|limit| limit.definition.is_some());
    rejecting.or_else(|| limited.min_by_key(|limit| limit.status.remaining))
}

/// Over the limit: seconds until the request could pass, at least one. If it never could, and
/// within the limit: seconds until the limit is full again.
pub(super) fn seconds(limit: &LimitAnswer<'_>) -> u64 {
    let reset_after_ms = limit.status.reset_after_ms;
    if rejects(limit) {
        limit.status.retry_after_ms.unwrap_or(reset_after_ms).div_ceil(1_000).max(1)
    } else {
        reset_after_ms.div_ceil(1_000)
    }
}
