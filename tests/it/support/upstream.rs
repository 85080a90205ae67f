//! Upstreams of an Envoy: a server that echoes over HTTP, and one that answers gRPC.
//!
//! Both run on a thread of their own until the value is dropped.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::thread;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::runtime;
use tokio::sync::oneshot;
use tokio_stream::wrappers::TcpListenerStream;

/// A request's header `answer-NAME: VALUE` becomes the answer's header `NAME: VALUE`.
const ANSWER: &str = "answer-";

/// Running servers.
pub struct Upstream {
    /// Answers 200, with the request's line and headers as text, one per line.
    pub http: SocketAddr,
    /// Serves `grpc.health.v1.Health`.
    pub grpc: SocketAddr,
    /// Dropped with the value, which ends the thread.
    _running: oneshot::Sender<Infallible>,
}

impl Upstream {
    /// Starts both.
    ///
    /// # Panics
    /// When no port is free.
    pub fn start() -> Self {
        let (http, grpc) = (listener(), listener());
        let addr = |listener: &TcpListener| listener.local_addr().expect("an address");
        let (running, dropped) = oneshot::channel();
        let upstream = Self { http: addr(&http), grpc: addr(&grpc), _running: running };
        thread::spawn(move || {
            let runtime = runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async {
                tokio::spawn(serve_echo(of_tokio(http)));
                tokio::spawn(serve_grpc(of_tokio(grpc)));
                let _ = dropped.await;
            });
        });
        upstream
    }
}

fn listener() -> TcpListener {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    listener.set_nonblocking(true).expect("a listener need not block");
    listener
}

fn of_tokio(listener: TcpListener) -> tokio::net::TcpListener {
    tokio::net::TcpListener::from_std(listener).expect("a listener")
}

async fn serve_echo(listener: tokio::net::TcpListener) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(async {
            let server = auto::Builder::new(TokioExecutor::new());
            // Envoy may close connections.
            let _ = server.serve_connection(TokioIo::new(stream), service_fn(echo)).await;
        });
    }
}

async fn echo(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let mut text = format!("{} {}\n", request.method(), request.uri());
    let mut headers = HeaderMap::new();
    for (name, value) in request.headers() {
        text += &format!("{name}: {}\n", String::from_utf8_lossy(value.as_bytes()));
        if let Some(name) = name.as_str().strip_prefix(ANSWER) {
            let name = HeaderName::from_bytes(name.as_bytes()).expect("the rest of a name");
            headers.append(name, value.clone());
        }
    }
    let mut response = Response::new(Full::from(text));
    *response.headers_mut() = headers;
    Ok(response)
}

async fn serve_grpc(listener: tokio::net::TcpListener) {
    let (reporter, health) = tonic_health::server::health_reporter();
    reporter.set_service_status("", tonic_health::ServingStatus::Serving).await;
    let server = tonic::transport::Server::builder().add_service(health);
    let served = server.serve_with_incoming(TcpListenerStream::new(listener)).await;
    served.expect("it serves until it is dropped");
}
