//! A receiver of traces: the collector's side of OTLP over gRPC, on a thread of its own until the
//! value is dropped.

use std::convert::Infallible;
use std::fs;
use std::future::pending;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1 as otlp;
use tokio::runtime;
use tokio::sync::oneshot;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::{Identity, Server, ServerTlsConfig};
use tonic::{Request, Response, Status};

use super::process::wait_until;
use super::tls::Certificates;

/// The deadline for spans to arrive.
const DEADLINE: Duration = Duration::from_secs(20);

/// A running collector.
pub struct Collector {
    /// The value of `--otlp-endpoint`.
    pub url: String,
    received: Arc<Mutex<Vec<Span>>>,
    /// Dropped with the value, which ends the thread.
    _running: oneshot::Sender<Infallible>,
}

/// A span as it was received.
#[derive(Clone, Debug)]
pub struct Span {
    pub span: otlp::Span,
    /// The attributes of the sending process.
    pub process: Vec<KeyValue>,
}

impl Span {
    /// An attribute as text: a list's elements separated by commas.
    ///
    /// # Panics
    /// When it has none of this name.
    pub fn attribute(&self, name: &str) -> String {
        attribute(&self.span.attributes, name).unwrap_or_else(|| panic!("{name} in {self:?}"))
    }

    /// An attribute of the process.
    pub fn process_attribute(&self, name: &str) -> Option<String> {
        attribute(&self.process, name)
    }

    /// Its trace id, as in `traceparent`.
    pub fn trace_id(&self) -> String {
        hex(&self.span.trace_id)
    }

    /// The id of its parent; empty for a root.
    pub fn parent_id(&self) -> String {
        hex(&self.span.parent_span_id)
    }

    pub fn id(&self) -> String {
        hex(&self.span.span_id)
    }

    pub fn is_error(&self) -> bool {
        let status = self.span.status.as_ref();
        status.is_some_and(|status| status.code() == otlp::status::StatusCode::Error)
    }
}

impl Collector {
    /// A collector that accepts everything.
    pub fn start() -> Self {
        Self::start_with(Server::builder(), "http", true)
    }

    /// The same with TLS, with the server certificate of `made`.
    pub fn start_tls(made: &Certificates) -> Self {
        let [certificate, key] =
            ["server.pem", "server.key"].map(|name| fs::read(made.file(name)).expect("a file"));
        let tls = ServerTlsConfig::new().identity(Identity::from_pem(certificate, key));
        Self::start_with(Server::builder().tls_config(tls).expect("they fit"), "https", true)
    }

    /// A collector that accepts messages and never answers.
    pub fn that_hangs() -> Self {
        Self::start_with(Server::builder(), "http", false)
    }

    fn start_with(mut server: Server, scheme: &str, answers: bool) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        listener.set_nonblocking(true).expect("a listener need not block");
        let url = format!("{scheme}://{}", listener.local_addr().expect("an address"));
        let received = Arc::<Mutex<Vec<Span>>>::default();
        let (running, dropped) = oneshot::channel();
        let service = Service { received: Arc::clone(&received), answers };
        thread::spawn(move || {
            let runtime = runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
                let server = server
                    .add_service(TraceServiceServer::new(service))
                    .serve_with_incoming(TcpListenerStream::new(listener));
                tokio::select! {
                    _ = server => {}
                    _ = dropped => {}
                }
            });
        });
        Self { url, received, _running: running }
    }

    /// The spans received so far.
    pub fn spans(&self) -> Vec<Span> {
        self.received.lock().unwrap().clone()
    }

    /// The same, once there are so many.
    ///
    /// # Panics
    /// When they do not arrive in time.
    pub fn wait_for(&self, count: usize) -> Vec<Span> {
        let all = || Some(self.spans()).filter(|spans| spans.len() >= count);
        wait_until(DEADLINE, all).unwrap_or_else(|| panic!("{count} spans: {:?}", self.spans()))
    }
}

struct Service {
    received: Arc<Mutex<Vec<Span>>>,
    answers: bool,
}

#[tonic::async_trait]
impl TraceService for Service {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        if !self.answers {
            return pending().await;
        }
        for of_process in request.into_inner().resource_spans {
            let process = of_process.resource.map(|resource| resource.attributes);
            let spans = of_process.scope_spans.into_iter().flat_map(|scope| scope.spans);
            let process = process.unwrap_or_default();
            let spans = spans.map(|span| Span { span, process: process.clone() });
            self.received.lock().unwrap().extend(spans);
        }
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

fn attribute(all: &[KeyValue], name: &str) -> Option<String> {
    let found = all.iter().find(|attribute| attribute.key == name)?;
    Some(text(found.value.as_ref()?))
}

fn text(value: &AnyValue) -> String {
    match &value.value {
        Some(Value::StringValue(text)) => text.clone(),
        Some(Value::IntValue(number)) => number.to_string(),
        Some(Value::ArrayValue(list)) => list.values.iter().map(text).collect::<Vec<_>>().join(","),
        other => format!("{other:?}"),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
