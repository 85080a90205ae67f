//! Which of several limits a descriptor's status reports, and how long to wait for it.

use crate::decision::Enforcement;
use crate::service::LimitStatus;

pub(super) const fn rejects(status: &LimitStatus<'_>) -> bool {
    !status.status.within_limit && !matches!(status.enforcement, Enforcement::Shadow)
}

/// Of several limits the one that rejects, the longest to wait for first; else the one with
/// least remaining.
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

/// Seconds until the request could pass where it is over the limit, at least one; one that never
/// could is told when the limit is full again. Else until the limit is full again.
pub(super) fn seconds(status: &LimitStatus<'_>) -> u64 {
    let reset_after_ms = status.status.reset_after_ms;
    if rejects(status) {
        status.status.retry_after_ms.unwrap_or(reset_after_ms).div_ceil(1_000).max(1)
    } else {
        reset_after_ms.div_ceil(1_000)
    }
}
