//! The gRPC services: one handler for all RPCs.
//!
//! The handler reads the message, hands the request to the service and encodes its answer. `rpc` has
//! what differs between RPCs. Malformed calls are refused before, in `routes` and `message`. `refusal`
//! has every error.

pub mod admin;
pub mod calls;
mod message;
pub(crate) mod refusal;
pub mod routes;
pub(crate) mod rpc;

use std::pin::Pin;
use std::sync::Arc;

use http::{Request as Call, Response};
use hyper::body::Incoming;
use prost::Message;
use tonic::{Code, Status};

use crate::body::BoundedBody;
use crate::envoy::Style;
use crate::memory_budget::MemoryBudget;
use crate::metrics::Shed;
use crate::request::{Bounds, Request, RequestError};
use crate::service::{Answer, Service};
use crate::store::DecideContext;
use crate::trace::Operation;
use calls::Calls;
use message::{Encoding, ResponseBody};
use refusal::refuse_undecided;
use rpc::Rpc;
pub use rpc::check_response;

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

/// Parses a call's message into a request.
type Read = fn(&[u8], &Bounds) -> Result<Request, RequestError>;

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

    /// Handles a call of one RPC, in a span if it is traced.
    pub(crate) fn handle<R: Rpc>(self: Arc<Self>, call: Call<Incoming>) -> Answering {
        let style = self.style;
        let write = move |request: &Request, answer: &Answer<'_>| R::write(request, answer, style);
        let tracing = self.service.tracing();
        let operation = Operation::Rpc(R::PATH);
        let Some(span) = tracing.and_then(|tracing| tracing.call(operation, call.headers())) else {
            return Box::pin(self.exchange(call, R::read, write, DecideContext::now()));
        };
        Box::pin(async move {
            let write = |request: &Request, answer: &Answer<'_>| {
                answer.annotate(&span);
                write(request, answer)
            };
            let context = DecideContext::traced(span.parent());
            let answer = Box::pin(self.exchange(call, R::read, write, context)).await;
            let status = Status::from_header_map(answer.headers());
            span.end_rpc(status.map_or(Code::Ok, |status| status.code()));
            answer
        })
    }

    /// Receives the request's message and responds with the one that `write` makes of the answer.
    async fn exchange<T: Message + 'static>(
        self: Arc<Self>,
        call: Call<Incoming>,
        read: Read,
        write: impl FnOnce(&Request, &Answer<'_>) -> T + Send,
        context: DecideContext,
    ) -> Response<ResponseBody> {
        let encoding = Encoding::of(call.headers());
        let arriving = BoundedBody::new(call.into_body(), self.budgets.slow_messages.clone());
        let message = match message::receive(arriving, encoding).await {
            Ok(message) => message,
            Err(status) => return status.into_http(),
        };
        let request = read(&message, &self.bounds);
        // The request has copied the bytes it needs.
        drop(message);
        match self.service.process(request, context, write).await {
            Ok(answer) => message::respond(&answer),
            Err(error) => refuse_undecided(&error).into_http(),
        }
    }
}
