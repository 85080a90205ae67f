//! The answer to a query, whichever call gave it.

use crate::proto::tidegate::v1::{
    CheckRateLimitResponse, Decision, Explanation, GetQuotaResponse, RefundHitsResponse,
};

/// What the service says about a request.
pub(super) struct Answer {
    pub(super) check: CheckRateLimitResponse,
    /// One for each descriptor, or none: services of before 0.2 do not explain.
    pub(super) explanations: Vec<Explanation>,
}

impl Answer {
    pub(super) fn is_allowed(&self) -> bool {
        self.check.decision() == Decision::Allowed
    }

    pub(super) const fn of_check(check: CheckRateLimitResponse) -> Self {
        Self { check, explanations: vec![] }
    }

    /// A quota as an answer of a check, which has more fields.
    pub(super) fn of_quota(quota: GetQuotaResponse) -> Self {
        let GetQuotaResponse { decision, statuses, source, explanations } = quota;
        let check = CheckRateLimitResponse { decision, statuses, source, ..Default::default() };
        Self { check, explanations }
    }

    /// A refund is always allowed.
    pub(super) fn of_refund(refund: RefundHitsResponse) -> Self {
        let RefundHitsResponse { statuses, source } = refund;
        let decision = Decision::Allowed.into();
        let check = CheckRateLimitResponse { decision, statuses, source, ..Default::default() };
        Self::of_check(check)
    }
}
