//! The floor: the cost of a service that decodes a request, decides nothing and answers.
//!
//! A handwritten tonic service with the known optimizations: one current_thread runtime per core,
//! connections assigned round robin, TCP_NODELAY, mimalloc. Its answers are as large as Tidegate's.

use std::net::TcpListener;
use std::thread;

use prost_types::Duration;
use tidegate::proto::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit;
use tidegate::proto::envoy::service::ratelimit::v3::rate_limit_response::{
    Code, DescriptorStatus, RateLimit,
};
use tidegate::proto::envoy::service::ratelimit::v3::rate_limit_service_server::{
    RateLimitService, RateLimitServiceServer,
};
use tidegate::proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use tokio::net::TcpStream;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

struct Floor;

#[tonic::async_trait]
impl RateLimitService for Floor {
    async fn should_rate_limit(
        &self,
        call: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        let statuses = call.into_inner().descriptors.iter().map(|_| status()).collect();
        let overall_code = Code::Ok.into();
        Ok(Response::new(RateLimitResponse { overall_code, statuses, ..Default::default() }))
    }
}

fn status() -> DescriptorStatus {
    let current_limit =
        RateLimit { requests_per_unit: 1_000_000, unit: Unit::Day.into(), ..RateLimit::default() };
    DescriptorStatus {
        code: Code::Ok.into(),
        current_limit: Some(current_limit),
        limit_remaining: 999_999,
        duration_until_reset: Some(Duration { seconds: 43_200, nanos: 500_000_000 }),
    }
}

/// Serves until the process is killed, and prints its address to stderr.
pub fn serve(addr: &str) {
    let listener = TcpListener::bind(addr).unwrap();
    eprintln!("grpc on {}", listener.local_addr().unwrap());
    let cores = thread::available_parallelism().unwrap();
    let runtimes: Vec<_> = (0..cores.get()).map(|_| runtime()).collect();
    for (stream, runtime) in listener.incoming().zip(runtimes.iter().cycle()) {
        let stream = stream.unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_nonblocking(true).unwrap();
        runtime.send(stream).unwrap();
    }
}

/// A thread that serves the connections it is sent.
fn runtime() -> UnboundedSender<std::net::TcpStream> {
    let (sender, connections) = unbounded_channel();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(serve_connections(connections));
    });
    sender
}

async fn serve_connections(connections: UnboundedReceiver<std::net::TcpStream>) {
    let incoming = UnboundedReceiverStream::new(connections).map(TcpStream::from_std);
    let service = RateLimitServiceServer::new(Floor);
    Server::builder().add_service(service).serve_with_incoming(incoming).await.unwrap();
}
