//! An HTTP client: requests that read as sentences, answers with everything in them.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::time::timeout;

/// For one request and its whole answer.
const DEADLINE: Duration = Duration::from_secs(60);

/// A client of one server, with as many connections as requests are under way.
#[derive(Clone)]
pub struct Web {
    client: Client<HttpConnector, Full<Bytes>>,
    addr: SocketAddr,
}

/// A request in the making.
#[derive(Clone)]
pub struct WebRequest {
    web: Web,
    path: String,
    headers: HeaderMap,
    body: Bytes,
}

/// What came back.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: String,
}

impl Web {
    /// Over HTTP/1.1.
    pub fn on(addr: SocketAddr) -> Self {
        Self { client: Client::builder(TokioExecutor::new()).build_http(), addr }
    }

    /// Over HTTP/2, all requests on one connection.
    pub fn http2_on(addr: SocketAddr) -> Self {
        Self { client: Client::builder(TokioExecutor::new()).http2_only(true).build_http(), addr }
    }

    /// GET, or POST where a body is given.
    pub fn get(&self, path: &str) -> WebRequest {
        let web = self.clone();
        WebRequest { web, path: path.to_owned(), headers: HeaderMap::new(), body: Bytes::new() }
    }
}

impl WebRequest {
    /// One more header.
    ///
    /// # Panics
    /// When it is none.
    pub fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        let name = HeaderName::from_bytes(name.as_bytes()).expect("a header's name");
        let value = HeaderValue::from_bytes(value.as_ref()).expect("a header's value");
        self.headers.append(name, value);
        self
    }

    /// What is sent after the headers.
    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    /// Sends it; the answer is whole.
    ///
    /// # Panics
    /// When no answer comes in time.
    pub async fn send(&self) -> Answer {
        let path = &self.path;
        self.try_send().await.unwrap_or_else(|| panic!("no answer to {path}"))
    }

    /// Sends it; `None` when the server does not answer.
    ///
    /// # Panics
    /// When the path is none.
    pub async fn try_send(&self) -> Option<Answer> {
        let method = if self.body.is_empty() { "GET" } else { "POST" };
        let uri = format!("http://{}{}", self.web.addr, self.path);
        let request = Request::builder().method(method).uri(uri);
        let mut request = request.body(Full::new(self.body.clone())).expect("a request");
        request.headers_mut().extend(self.headers.clone());
        let answer = timeout(DEADLINE, async {
            let (head, body) = self.web.client.request(request).await.ok()?.into_parts();
            let body = body.collect().await.ok()?.to_bytes();
            Some((head, String::from_utf8_lossy(&body).into_owned()))
        });
        let (head, body) = answer.await.ok()??;
        Some(Answer { status: head.status.as_u16(), headers: head.headers, body })
    }

    /// Sends it so often, all at once; how many answers had this status.
    ///
    /// # Panics
    /// When an answer does not come in time.
    pub async fn count_at_once(&self, times: usize, status: u16) -> usize {
        let sent: Vec<_> = (0..times)
            .map(|_| {
                let ask = self.clone();
                tokio::spawn(async move { ask.send().await.status })
            })
            .collect();
        let mut counted = 0;
        for answer in sent {
            counted += usize::from(answer.await.expect("an answer") == status);
        }
        counted
    }

    /// Sends it so often, one after the other; their statuses.
    ///
    /// # Panics
    /// When an answer does not come in time.
    pub async fn statuses(&self, times: usize) -> Vec<u16> {
        let mut statuses = Vec::with_capacity(times);
        for _ in 0..times {
            statuses.push(self.send().await.status);
        }
        statuses
    }
}

impl Answer {
    /// A header's text, where it is there once.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.get_all(name).iter();
        let value = values.next()?.to_str().ok();
        if values.next().is_some() { None } else { value }
    }

    /// A header's number.
    ///
    /// # Panics
    /// When it is not there once, or no number.
    pub fn number(&self, name: &str) -> u64 {
        let number = self.header(name).and_then(|text| text.parse().ok());
        number.unwrap_or_else(|| panic!("no number {name} in {self:?}"))
    }
}
