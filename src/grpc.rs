//! The gRPC services: messages in, messages out. The only file that names [`Status`]: one place
//! maps every cause to its code.

mod envoy;

use std::sync::Arc;

use prost_types::Duration;
use tokio::sync::{Semaphore, SemaphorePermit};
use tonic::{Request as Call, Response, Status};

use crate::limit::Algorithm;
use crate::proto::envoy::service::ratelimit::v3 as rls;
use crate::proto::tidegate::v1 as api;
use crate::request::{Bounds, Request, RequestError};
use crate::service::{Answer, DecideError, LimitStatus, Service};
use crate::store::StoreError;

/// Both rate limit services over one [`Service`].
#[derive(Clone)]
pub struct Grpc {
    service: Arc<Service>,
    bounds: Bounds,
    in_flight: Arc<Semaphore>,
}

impl Grpc {
    /// Serves at most `in_flight_max` calls at once, each within `bounds`.
    pub fn new(service: Arc<Service>, bounds: Bounds, in_flight_max: usize) -> Self {
        Self { service, bounds, in_flight: Arc::new(Semaphore::new(in_flight_max)) }
    }

    fn admit(&self) -> Result<SemaphorePermit<'_>, Status> {
        self.in_flight.try_acquire().map_err(|_full| {
            Status::resource_exhausted("more calls than --max-in-flight; call again later")
        })
    }

    async fn decide(&self, request: Result<Request, RequestError>) -> Result<Answer, Status> {
        let request = request.map_err(|error| status_of(DecideError::Request(error)))?;
        let _place = self.admit()?;
        self.service.decide(&request, None).await.map_err(status_of)
    }
}

/// The code and text that a caller sees for each cause.
fn status_of(error: DecideError) -> Status {
    match error {
        DecideError::Request(error) => Status::invalid_argument(error.to_string()),
        DecideError::Store(error) => {
            tracing::debug!(%error, "no decision");
            match error {
                StoreError::Timeout => Status::unavailable("the store did not answer in time"),
                // What the store said may name hosts and keys: that is for the log.
                StoreError::Unavailable(_) | StoreError::Refused(_) | StoreError::Garbled(_) => {
                    Status::unavailable("the store cannot decide; the server's log says why")
                }
            }
        }
    }
}

#[tonic::async_trait]
impl api::rate_limit_service_server::RateLimitService for Grpc {
    async fn check_rate_limit(
        &self,
        call: Call<api::CheckRateLimitRequest>,
    ) -> Result<Response<api::CheckRateLimitResponse>, Status> {
        let request = Request::from_check(call.into_inner(), &self.bounds);
        let answer = self.decide(request).await?;
        Ok(Response::new(check_response(answer)))
    }

    async fn get_quota(
        &self,
        call: Call<api::GetQuotaRequest>,
    ) -> Result<Response<api::GetQuotaResponse>, Status> {
        let request = Request::from_quota(call.into_inner(), &self.bounds);
        let answer = self.decide(request).await?;
        let statuses = answer.statuses.into_iter().map(limit_status).collect();
        let source = api::DecisionSource::Store.into();
        Ok(Response::new(api::GetQuotaResponse { statuses, source }))
    }
}

#[tonic::async_trait]
impl rls::rate_limit_service_server::RateLimitService for Grpc {
    async fn should_rate_limit(
        &self,
        call: Call<rls::RateLimitRequest>,
    ) -> Result<Response<rls::RateLimitResponse>, Status> {
        let message = call.into_inner();
        let descriptors = message.descriptors.len();
        let answer = self.decide(Request::from_envoy(message, &self.bounds)).await?;
        Ok(Response::new(envoy::response(&answer, descriptors)))
    }
}

fn check_response(answer: Answer) -> api::CheckRateLimitResponse {
    let decision = if answer.allowed { api::Decision::Allowed } else { api::Decision::Rejected };
    api::CheckRateLimitResponse {
        decision: decision.into(),
        delay: Some(answer.delay_ms).filter(|ms| *ms > 0).map(duration),
        retry_after: answer.retry_after_ms.map(duration),
        source: api::DecisionSource::Store.into(),
        statuses: answer.statuses.into_iter().map(limit_status).collect(),
    }
}

fn limit_status(status: LimitStatus) -> api::LimitStatus {
    let limit = status.limit;
    api::LimitStatus {
        descriptor: u32::try_from(status.descriptor).unwrap_or(u32::MAX),
        rule: status.rule,
        within_limit: status.status.within_limit,
        limit: limit.map_or(0, |limit| limit.hits()),
        remaining: status.status.remaining,
        reset_after: limit.map(|_| duration(status.status.reset_after_ms)),
        retry_after: status.status.retry_after_ms.map(duration),
        period: limit.map(|limit| duration(limit.period_ms())),
        algorithm: limit.map_or(api::Algorithm::Unspecified, |limit| algorithm(&limit)).into(),
        shadow: status.shadow,
        unlimited: limit.is_none(),
    }
}

const fn algorithm(limit: &crate::limit::Limit) -> api::Algorithm {
    match limit.algorithm() {
        Algorithm::FixedWindow => api::Algorithm::FixedWindow,
        Algorithm::SlidingWindowLog => api::Algorithm::SlidingWindowLog,
        Algorithm::SlidingWindowCounter => api::Algorithm::SlidingWindowCounter,
        Algorithm::TokenBucket => api::Algorithm::TokenBucket,
        Algorithm::LeakyBucket => api::Algorithm::LeakyBucket,
        Algorithm::Gcra => api::Algorithm::Gcra,
    }
}

/// `ms` is at most 2^53, so that both parts fit.
#[allow(clippy::cast_possible_wrap)]
fn duration(ms: u64) -> Duration {
    let nanos = i32::try_from(ms % 1_000 * 1_000_000).unwrap_or(0);
    Duration { seconds: (ms / 1_000) as i64, nanos }
}
