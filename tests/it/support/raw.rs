//! gRPC calls byte by byte, for input that no client sends: frames, headers, and the end of a call.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use h2::client::{SendRequest, handshake};
use h2::{Reason, SendStream};
use http::{HeaderMap, Request};
use prost::Message;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// The deadline of one call; a service that takes longer fails the test.
const DEADLINE: Duration = Duration::from_secs(20);

const SHOULD: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// A call under construction; the defaults are those of Envoy.
#[derive(Clone, Debug)]
pub struct RawCall {
    method: &'static str,
    path: String,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
    end: End,
}

/// The end of the request, after the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Stream,
    Trailers,
    Reset,
}

/// The answer to a call; -1 if there is no gRPC code.
#[derive(Debug, PartialEq, Eq)]
pub struct RawAnswer {
    pub http: u16,
    pub code: i32,
    pub message: String,
    /// The body without its frame.
    pub body: Vec<u8>,
}

impl RawCall {
    /// A call whose body is a frame with this message.
    pub fn message(message: impl AsRef<[u8]>) -> Self {
        Self::frame(0, message)
    }

    /// A frame with another flag.
    pub fn frame(flag: u8, message: impl AsRef<[u8]>) -> Self {
        let message = message.as_ref();
        let len = u32::try_from(message.len()).expect("a message below 4 GiB");
        let mut body = vec![flag];
        body.extend(len.to_be_bytes());
        body.extend(message);
        Self::body(body)
    }

    /// A verbatim body.
    pub fn body(body: impl Into<Vec<u8>>) -> Self {
        let headers = vec![("content-type", "application/grpc".into()), ("te", "trailers".into())];
        Self { method: "POST", path: SHOULD.into(), headers, body: body.into(), end: End::Stream }
    }

    /// Another method.
    pub fn method(self, method: &'static str) -> Self {
        Self { method, ..self }
    }

    /// Another path.
    pub fn path(self, path: &str) -> Self {
        Self { path: path.to_owned(), ..self }
    }

    /// Replaces a header; an empty value removes it.
    pub fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.retain(|(other, _)| *other != name);
        if !value.is_empty() {
            self.headers.push((name, value.to_owned()));
        }
        self
    }

    /// Ends with trailers.
    pub fn with_trailers(self) -> Self {
        Self { end: End::Trailers, ..self }
    }

    /// Ends with RST_STREAM.
    pub fn then_reset(self) -> Self {
        Self { end: End::Reset, ..self }
    }

    /// Makes the call on a new connection; `None` if no answer comes.
    ///
    /// # Panics
    /// When the service does not listen, or neither answers nor closes the connection in time.
    pub async fn send(&self, addr: SocketAddr) -> Option<RawAnswer> {
        timeout(DEADLINE, self.exchange(addr)).await.expect("an answer, or an end, in time")
    }

    async fn exchange(&self, addr: SocketAddr) -> Option<RawAnswer> {
        let stream = TcpStream::connect(addr).await.expect("the service listens");
        let (client, connection) = handshake(stream).await.ok()?;
        let driver = tokio::spawn(connection);
        let answer = self.call(client).await;
        driver.abort();
        answer
    }

    async fn call(&self, client: SendRequest<Bytes>) -> Option<RawAnswer> {
        let mut client = client.ready().await.ok()?;
        let uri = format!("http://localhost{}", self.path);
        let mut request = Request::builder().method(self.method).uri(uri);
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        let ends = self.body.is_empty() && self.end == End::Stream;
        let request = request.body(()).expect("a request");
        let (response, stream) = client.send_request(request, ends).ok()?;
        if !ends {
            self.send_body(stream).await?;
        }
        if self.end == End::Reset {
            return None;
        }
        let (head, mut body) = response.await.ok()?.into_parts();
        let mut bytes = Vec::new();
        while let Some(data) = body.data().await {
            let data = data.ok()?;
            let _ = body.flow_control().release_capacity(data.len());
            bytes.extend_from_slice(&data);
        }
        let trailers = body.trailers().await.ok()?.unwrap_or_default();
        Some(RawAnswer::of(head.status.as_u16(), &[&head.headers, &trailers], &bytes))
    }

    async fn send_body(&self, mut stream: SendStream<Bytes>) -> Option<()> {
        let mut rest = Bytes::from(self.body.clone());
        while !rest.is_empty() {
            stream.reserve_capacity(rest.len());
            let room = std::future::poll_fn(|context| stream.poll_capacity(context)).await;
            // The service may have answered already, and read no more.
            let Some(Ok(room)) = room else { return Some(()) };
            let last = room >= rest.len() && self.end == End::Stream;
            stream.send_data(rest.split_to(room.min(rest.len())), last).ok()?;
        }
        match self.end {
            End::Stream => {}
            End::Trailers => stream.send_trailers(HeaderMap::new()).ok()?,
            End::Reset => stream.send_reset(Reason::CANCEL),
        }
        Some(())
    }
}

impl RawAnswer {
    fn of(http: u16, headers: &[&HeaderMap], body: &[u8]) -> Self {
        let text = |name: &str| headers.iter().find_map(|headers| headers.get(name)?.to_str().ok());
        let code = text("grpc-status").and_then(|code| code.parse().ok()).unwrap_or(-1);
        let message = text("grpc-message").unwrap_or_default();
        let message = percent_encoding::percent_decode_str(message).decode_utf8_lossy();
        Self {
            http,
            code,
            message: message.into_owned(),
            body: body.get(5..).unwrap_or_default().into(),
        }
    }

    /// The message of the answer.
    ///
    /// # Panics
    /// When it is invalid.
    pub fn decoded<M: Message + Default>(&self) -> M {
        M::decode(self.body.as_slice()).expect("a message")
    }
}
