//! The gRPC services: one handler per method, and the only place that maps the cause of a failure
//! to a gRPC [`Status`].
//!
//! A handler reads the message, hands the request to the service and encodes its answer. Malformed
//! calls are refused before, in `routes` and `message`.

pub mod admin;
pub mod calls;
mod message;
pub mod routes;

use std::pin::Pin;
use std::sync::Arc;

use http::{Request as Call, Response};
use hyper::body::Incoming;
use prost::Message;
use tonic::{Code, Status};

use crate::body::BoundedBody;
use crate::decision::{Enforcement, Source};
use crate::envoy::{Reply, Style};
use crate::memory_budget::MemoryBudget;
use crate::metrics::Shed;
use crate::proto::duration;
use crate::proto::tidegate::v1 as api;
use crate::request::{Bounds, Request, RequestError};
use crate::service::{Answer, DecideError, LimitAnswer, Service};
use crate::store::DecideContext;
use crate::store_error::StoreError;
use crate::trace::Method;
use calls::Calls;
use message::{Encoding, ResponseBody};

/// Both rate limit services over one [`Service`].
pub struct Grpc {
    service: Service,
    bounds: Bounds,
    style: Style,
    budgets: CallBudgets,
}

/// Memory budgets shared by the calls of all threads.
#[derive(Clone)]
pub struct CallBudgets {
    /// For messages that arrive slowly.
    pub slow_messages: MemoryBudget,
    /// For open calls.
    pub open_calls: MemoryBudget,
}

/// A method that decides requests.
#[derive(Clone, Copy)]
struct Rpc {
    /// Its name in spans.
    method: Method,
    /// Parses its message.
    parse: fn(&[u8], &Bounds) -> Result<Request, RequestError>,
}

/// The future of a response. It is boxed where it is made because it is large and moved several
/// times.
pub type Answering = Pin<Box<dyn Future<Output = Response<ResponseBody>> + Send>>;

impl Grpc {
    /// Handles calls within `bounds`, with memory from `budgets`. `style` applies to answers to
    /// Envoy.
    pub const fn new(service: Service, bounds: Bounds, style: Style, budgets: CallBudgets) -> Self {
        Self { service, bounds, style, budgets }
    }

    /// A tracker for the calls of one connection.
    pub fn calls(&self) -> Calls {
        Calls::new(self.budgets.open_calls.clone())
    }

    /// Counts work that was refused.
    pub fn count(&self, shed: Shed) {
        self.service.metrics().shed(shed).increment(1);
    }

    /// `envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit`.
    pub fn should_rate_limit(self: Arc<Self>, call: Call<Incoming>) -> Answering {
        let rpc = Rpc { method: Method::ShouldRateLimit, parse: Request::from_envoy };
        let style = self.style;
        self.handle(call, rpc, move |request, answer| Reply::of(request, answer, style))
    }

    /// `tidegate.v1.RateLimitService/CheckRateLimit`.
    pub fn check_rate_limit(self: Arc<Self>, call: Call<Incoming>) -> Answering {
        let rpc = Rpc { method: Method::CheckRateLimit, parse: Request::from_check };
        self.handle(call, rpc, |_, answer| check_response(answer))
    }

    /// `tidegate.v1.RateLimitService/GetQuota`.
    pub fn get_quota(self: Arc<Self>, call: Call<Incoming>) -> Answering {
        let rpc = Rpc { method: Method::GetQuota, parse: Request::from_quota };
        self.handle(call, rpc, |_, answer| api::GetQuotaResponse {
            decision: decision(answer).into(),
            statuses: answer.limits.iter().map(limit_status).collect(),
            source: source(answer).into(),
        })
    }

    /// Handles a call, in a span if it is traced.
    fn handle<T: Message + 'static>(
        self: Arc<Self>,
        call: Call<Incoming>,
        rpc: Rpc,
        write: impl FnOnce(&Request, &Answer<'_>) -> T + Send + 'static,
    ) -> Answering {
        let tracing = self.service.tracing();
        let Some(span) = tracing.and_then(|tracing| tracing.call(rpc.method, call.headers()))
        else {
            return Box::pin(self.exchange(call, rpc, write, DecideContext::now()));
        };
        Box::pin(async move {
            let write = |request: &Request, answer: &Answer<'_>| {
                answer.annotate(&span);
                write(request, answer)
            };
            let context = DecideContext::traced(span.parent());
            let answer = Box::pin(self.exchange(call, rpc, write, context)).await;
            let status = Status::from_header_map(answer.headers());
            span.end_rpc(status.map_or(Code::Ok, |status| status.code()));
            answer
        })
    }

    /// Receives the request's message and responds with the one that `write` makes of the answer.
    async fn exchange<T: Message + 'static>(
        self: Arc<Self>,
        call: Call<Incoming>,
        rpc: Rpc,
        write: impl FnOnce(&Request, &Answer<'_>) -> T + Send,
        context: DecideContext,
    ) -> Response<ResponseBody> {
        let encoding = Encoding::of(call.headers());
        let arriving = BoundedBody::new(call.into_body(), self.budgets.slow_messages.clone());
        let message = match message::receive(arriving, encoding).await {
            Ok(message) => message,
            Err(status) => return status.into_http(),
        };
        let request = (rpc.parse)(&message, &self.bounds);
        // The request has copied the bytes it needs.
        drop(message);
        match self.service.process(request, context, write).await {
            Ok(answer) => message::respond(&answer),
            Err(error) => status_of(error).into_http(),
        }
    }
}

/// The gRPC code and message for each cause of a failure.
fn status_of(error: DecideError) -> Status {
    match error {
        DecideError::Request(_) => Status::invalid_argument(error.to_string()),
        DecideError::Overloaded => Status::resource_exhausted(error.to_string()),
        DecideError::Store(StoreError::Timeout) => {
            Status::unavailable("the store did not answer in time")
        }
        // The store's own words may contain host names and keys. They go to the log only.
        DecideError::Store(
            StoreError::Unavailable(_)
            | StoreError::Lost(_)
            | StoreError::BadReply(_)
            | StoreError::Answered(_)
            | StoreError::Clustered,
        ) => Status::unavailable("the store cannot decide; the server's log says why"),
    }
}

/// The message that answers a check.
pub fn check_response(answer: &Answer<'_>) -> api::CheckRateLimitResponse {
    api::CheckRateLimitResponse {
        decision: decision(answer).into(),
        delay: Some(answer.delay_ms).filter(|ms| *ms > 0).map(duration),
        retry_after: answer.retry_after_ms.map(duration),
        source: source(answer).into(),
        statuses: answer.limits.iter().map(limit_status).collect(),
    }
}

const fn decision(answer: &Answer<'_>) -> api::Decision {
    if answer.allowed { api::Decision::Allowed } else { api::Decision::Rejected }
}

const fn source(answer: &Answer<'_>) -> api::DecisionSource {
    match answer.source {
        Source::Store => api::DecisionSource::Store,
        Source::DenyCache => api::DecisionSource::DenyCache,
        Source::Fallback => api::DecisionSource::Fallback,
    }
}

fn limit_status(limit: &LimitAnswer<'_>) -> api::LimitStatus {
    let definition = limit.definition;
    api::LimitStatus {
        descriptor: u32::try_from(limit.descriptor).unwrap_or(u32::MAX),
        rule: limit.rule.to_owned(),
        within_limit: limit.status.within_limit,
        limit: definition.map_or(0, |definition| definition.hits()),
        remaining: limit.status.remaining,
        reset_after: definition.map(|_| duration(limit.status.reset_after_ms)),
        retry_after: limit.status.retry_after_ms.map(duration),
        period: definition.map(|definition| duration(definition.period_ms())),
        algorithm: definition.map_or(0, |definition| definition.algorithm() as i32),
        shadow: limit.enforcement == Enforcement::Shadow,
        unlimited: definition.is_none(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::Algorithm;

    #[test]
    fn an_algorithm_has_its_number_in_the_protobuf_enum() {
        for algorithm in Algorithm::ALL {
            let sent = api::Algorithm::try_from(algorithm as i32).unwrap();
            let name = format!("ALGORITHM_{}", algorithm.name().to_uppercase());
            assert_eq!(sent.as_str_name(), name);
        }
    }
}
