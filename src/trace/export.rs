//! Exports ended spans: a bounded queue, a thread that sends, and a count of exported, failed and
//! dropped spans. The request path never waits for it: spans that do not fit the queue are dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use opentelemetry::{Context, Key};
use opentelemetry_otlp::tonic_types::transport::ClientTlsConfig;
use opentelemetry_otlp::{SpanExporter, WithExportConfig, WithTonicConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, Sampler, SdkTracerProvider, Span, SpanData,
    SpanExporter as Export, SpanProcessor,
};

use crate::metrics::SpanCounts;

/// Where spans are sent, and which.
#[derive(Clone, Debug)]
pub struct Options {
    /// The collector's gRPC endpoint, `http://host:port` or `https://…`.
    pub endpoint: String,
    /// Share of the calls without `traceparent` that are sampled, from 0 to 1.
    pub sample: f64,
}

/// Ended spans in the queue or being sent.
const WAITING_MAX: usize = 4_096;

/// Spans per message.
const BATCH_MAX: usize = 512;

/// How long an ended span waits for a batch to fill.
const DELAY: Duration = Duration::from_secs(1);

/// Timeout of one message with all its retries.
const EXPORT_MAX: Duration = Duration::from_secs(3);

/// Samples, batches and sends spans.
pub(super) fn provider(options: &Options, counts: SpanCounts) -> Result<SdkTracerProvider, String> {
    let mut exporter = SpanExporter::builder()
        .with_tonic()
        .with_endpoint(&options.endpoint)
        .with_timeout(EXPORT_MAX);
    if options.endpoint.starts_with("https:") {
        exporter = exporter.with_tls_config(ClientTlsConfig::new().with_native_roots());
    }
    let exporter = exporter.build().map_err(|error| format!("--otlp-endpoint: {error}"))?;
    let waiting = Arc::new(AtomicUsize::new(0));
    let sender = Sender {
        exporter,
        waiting: Arc::clone(&waiting),
        counts: counts.clone(),
        fails: AtomicBool::new(false),
    };
    let config = BatchConfigBuilder::default()
        .with_max_queue_size(WAITING_MAX)
        .with_max_export_batch_size(BATCH_MAX)
        .with_scheduled_delay(DELAY);
    let batches = BatchSpanProcessor::builder(sender).with_batch_config(config.build()).build();
    let sampler = Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(options.sample)));
    Ok(SdkTracerProvider::builder()
        .with_sampler(sampler)
        .with_resource(resource())
        .with_span_processor(Queue { batches, waiting, counts })
        .build())
}

/// The service's resource, from `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES`.
fn resource() -> Resource {
    let told = Resource::builder().build();
    let name = told.get(&Key::new("service.name")).map(|name| name.to_string());
    let mut resource = Resource::builder();
    if name.is_none_or(|name| name.starts_with("unknown_service")) {
        resource = resource.with_service_name("tidegate");
    }
    let version = opentelemetry::KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
    resource.with_attribute(version).build()
}

/// Counts spans that exceed the queue. The processor behind it has room for all that pass.
#[derive(Debug)]
struct Queue {
    batches: BatchSpanProcessor,
    waiting: Arc<AtomicUsize>,
    counts: SpanCounts,
}

impl SpanProcessor for Queue {
    fn on_start(&self, span: &mut Span, context: &Context) {
        self.batches.on_start(span, context);
    }

    fn on_end(&self, span: SpanData) {
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= WAITING_MAX {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            self.counts.dropped.increment(1);
            return;
        }
        self.batches.on_end(span);
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.batches.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.batches.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.batches.set_resource(resource);
    }
}

/// Sends and counts batches. Logs once when exporting fails and once when it works again.
#[derive(Debug)]
struct Sender {
    exporter: SpanExporter,
    waiting: Arc<AtomicUsize>,
    counts: SpanCounts,
    fails: AtomicBool,
}

impl Export for Sender {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let count = batch.len();
        let result = self.exporter.export(batch).await;
        self.waiting.fetch_sub(count, Ordering::Relaxed);
        let counted = if result.is_ok() { &self.counts.exported } else { &self.counts.failed };
        counted.increment(count as u64);
        let failed = self.fails.swap(result.is_err(), Ordering::Relaxed);
        match &result {
            Ok(()) if failed => tracing::info!("spans are exported again"),
            Err(error) if !failed => tracing::warn!(%error, "spans are not exported, and dropped"),
            Ok(()) | Err(_) => {}
        }
        result
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}
