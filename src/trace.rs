//! Traces: one span per sampled call and one per script run that the call waited for, exported to
//! an OpenTelemetry collector over OTLP.
//!
//! A caller that sends `traceparent` decides whether its call is sampled, as W3C Trace Context
//! specifies. Of the other calls, a configured share is sampled. The span starts when the call
//! arrives, so that failed calls have one too. A script run that several requests share makes one
//! span for each of them, so that every trace is complete by itself.

mod export;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, StatusCode};
use opentelemetry::propagation::{Extractor, TextMapPropagator};
use opentelemetry::trace::{
    Span as _, SpanBuilder, SpanContext, SpanKind, Status, TraceContextExt, Tracer as _,
    TracerProvider as _,
};
use opentelemetry::{Context, KeyValue, Value};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider, Span};
use parking_lot::Mutex;

use crate::clock::wall_time;
use crate::metrics::SpanCounts;
pub use export::Options;

/// Makes and exports spans.
pub struct Tracing {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
    traceparent: TraceContextPropagator,
}

/// What a call does, as its span names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// An RPC, by its path: `/service/method`.
    Rpc(&'static str),
    /// A POST over HTTP, by its route.
    Post(&'static str),
}

/// The span of a sampled call. If it is dropped before its end, the call was cancelled.
pub struct CallSpan {
    span: Mutex<Span>,
    parent: Arc<Parent>,
    ended: bool,
}

/// A span that other spans can be children of.
#[derive(Clone, Debug)]
pub struct Parent {
    tracer: SdkTracer,
    context: SpanContext,
}

/// A script run that requests waited for.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// Time from sending the run to its reply, which is now.
    pub took: Duration,
    /// Requests that the run decided.
    pub requests: usize,
    /// The kind of the store's error, if the run failed.
    pub error: Option<&'static str>,
}

impl Tracing {
    /// Starts the exporter on the current runtime.
    ///
    /// # Errors
    /// The endpoint is not a URL. The message is for people.
    pub fn start(options: &Options, counts: SpanCounts) -> Result<Self, String> {
        let provider = export::provider(options, counts)?;
        let tracer = provider.tracer("tidegate");
        Ok(Self { provider, tracer, traceparent: TraceContextPropagator::new() })
    }

    /// Starts the span of a call with these headers, if it is sampled.
    pub fn call(&self, operation: Operation, headers: &HeaderMap) -> Option<Box<CallSpan>> {
        let above = self.traceparent.extract_with_context(&Context::new(), &Headers(headers));
        let builder = SpanBuilder::from_name(operation.name()).with_kind(SpanKind::Server);
        let mut span = self.tracer.build_with_context(builder, &above);
        if !span.is_recording() {
            return None;
        }
        span.set_attributes(operation.attributes());
        Some(Box::new(CallSpan::of(span, self.tracer.clone())))
    }

    /// Flushes the queue within this time. Spans that end later are lost.
    pub async fn end(self: Arc<Self>, within: Duration) {
        // The shutdown blocks, and the runtime of this thread sends the spans.
        let ended =
            tokio::task::spawn_blocking(move || self.provider.shutdown_with_timeout(within));
        if let Ok(Err(error)) = ended.await {
            tracing::warn!(%error, "not all spans were sent");
        }
    }
}

impl Operation {
    fn name(self) -> Cow<'static, str> {
        match self {
            Self::Rpc(path) => path.trim_start_matches('/').into(),
            Self::Post(route) => format!("POST {route}").into(),
        }
    }

    /// Attributes by OpenTelemetry's semantic conventions.
    fn attributes(self) -> Vec<KeyValue> {
        match self {
            Self::Rpc(path) => {
                let path = path.trim_start_matches('/');
                let (service, method) = path.split_once('/').unwrap_or((path, ""));
                vec![
                    KeyValue::new("rpc.system", "grpc"),
                    KeyValue::new("rpc.service", service),
                    KeyValue::new("rpc.method", method),
                ]
            }
            Self::Post(route) => vec![
                KeyValue::new("http.request.method", "POST"),
                KeyValue::new("http.route", route),
            ],
        }
    }
}

impl CallSpan {
    fn of(span: Span, tracer: SdkTracer) -> Self {
        let parent = Arc::new(Parent { tracer, context: span.span_context().clone() });
        Self { span: Mutex::new(span), parent, ended: false }
    }

    /// A handle for child spans.
    pub fn parent(&self) -> Arc<Parent> {
        Arc::clone(&self.parent)
    }

    /// Sets an attribute.
    pub fn set(&self, key: &'static str, value: impl Into<Value>) {
        self.span.lock().set_attribute(KeyValue::new(key, value));
    }

    /// Ends the span of an RPC with its status code.
    pub fn end_rpc(mut self: Box<Self>, code: tonic::Code) {
        self.set("rpc.grpc.status_code", i64::from(code as i32));
        self.ended = true;
        if is_servers_fault(code) {
            self.span.lock().set_status(Status::error(code.description()));
        }
    }

    /// Ends the span of an HTTP request with its status.
    pub fn end_http(mut self: Box<Self>, status: StatusCode) {
        self.set("http.response.status_code", i64::from(status.as_u16()));
        self.ended = true;
        if status.is_server_error() {
            self.span.lock().set_status(Status::error(""));
        }
    }
}

impl Drop for CallSpan {
    fn drop(&mut self) {
        if !self.ended {
            self.span.lock().set_status(Status::error("the caller went, or its time was over"));
        }
    }
}

/// The codes that OpenTelemetry's conventions count as server errors.
const fn is_servers_fault(code: tonic::Code) -> bool {
    use tonic::Code;
    matches!(
        code,
        Code::Unknown
            | Code::DeadlineExceeded
            | Code::Unimplemented
            | Code::Internal
            | Code::Unavailable
            | Code::DataLoss
    )
}

impl Parent {
    /// The trace id, as in `traceparent`.
    pub fn trace_id(&self) -> String {
        self.context.trace_id().to_string()
    }

    /// Records the span of a script run that ends now.
    pub fn run(&self, run: &Run) {
        let end = wall_time();
        let mut attributes = vec![
            KeyValue::new("db.system.name", "redis"),
            KeyValue::new("db.operation.name", "EVALSHA"),
            KeyValue::new("db.operation.batch.size", i64::try_from(run.requests).unwrap_or(0)),
        ];
        attributes.extend(run.error.map(|kind| KeyValue::new("error.type", kind)));
        let builder = SpanBuilder::from_name("EVALSHA")
            .with_kind(SpanKind::Client)
            .with_start_time(end.checked_sub(run.took).unwrap_or(end))
            .with_attributes(attributes);
        let above = Context::new().with_remote_span_context(self.context.clone());
        let mut span = self.tracer.build_with_context(builder, &above);
        if let Some(kind) = run.error {
            span.set_status(Status::error(kind));
        }
        span.end_with_timestamp(end);
    }
}

/// HTTP headers, which include gRPC metadata.
struct Headers<'a>(&'a HeaderMap);

impl Extractor for Headers<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.to_str().ok()
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(http::HeaderName::as_str).collect()
    }
}
