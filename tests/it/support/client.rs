//! Clients of the service: generated clients, requests that read as sentences, and a service with
//! limits files of its own.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;
use tidegate::proto::envoy::extensions::common::ratelimit::v3 as common;
use tidegate::proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor as parts;
use tidegate::proto::envoy::service::ratelimit::v3 as rls;
use tidegate::proto::envoy::service::ratelimit::v3::rate_limit_service_client as rls_client;
use tidegate::proto::tidegate::v1 as api;
use tidegate::proto::tidegate::v1::rate_limit_service_client as api_client;
use tonic::Status;
use tonic::transport::{Channel, Endpoint};
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use super::servers::free_port;
use super::tidegate::Tidegate;

/// The deadline of one call; a service that takes longer fails the test.
const CALL_DEADLINE: Duration = Duration::from_secs(20);

/// A running service with limits files in a folder of its own.
pub struct Served {
    /// The process.
    pub tidegate: Tidegate,
    folder: TempDir,
}

impl Served {
    /// Serves the limits of one file, on the memory store.
    pub fn with_limits(yaml: &str) -> Self {
        Self::with(&[yaml], &[])
    }

    /// Serves a folder with a file for each of `yamls`, with further arguments.
    pub fn with(yamls: &[&str], args: &[&str]) -> Self {
        Self::with_port(0, yamls, args)
    }

    /// The same on a gRPC port that [`Served::serve_again`] can reuse.
    pub fn on_lasting_port(yamls: &[&str], args: &[&str]) -> Self {
        Self::with_port(free_port(), yamls, args)
    }

    fn with_port(port: u16, yamls: &[&str], args: &[&str]) -> Self {
        let folder = limits_folder(yamls);
        let path = folder.path().to_str().expect("a folder for temporary files is UTF-8");
        let args = [&["--limits", path], args].concat();
        Self { tidegate: Tidegate::serve_on((Ipv4Addr::LOCALHOST, port).into(), &args), folder }
    }

    /// Starts the service again on the same address, with other arguments.
    pub fn serve_again(&mut self, args: &[&str]) {
        let path = self.folder.path().to_str().expect("a folder for temporary files is UTF-8");
        let args = [&["--limits", path], args].concat();
        self.tidegate.kill();
        self.tidegate = Tidegate::serve_on(self.tidegate.grpc, &args);
    }

    /// The folder of the limits files.
    pub fn limits(&self) -> &Path {
        self.folder.path()
    }

    /// A new connection.
    pub async fn caller(&self) -> Caller {
        Caller::of(self.tidegate.grpc).await
    }

    /// A page of the HTTP port.
    pub fn page(&self, path: &str) -> Page {
        Page::get(self.tidegate.http, path)
    }
}

/// A folder with a limits file for each of `yamls`.
pub fn limits_folder(yamls: &[&str]) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    for (at, yaml) in yamls.iter().enumerate() {
        fs::write(folder.path().join(format!("limits-{at}.yaml")), yaml).expect("it is writable");
    }
    folder
}

/// The services that reflection of a version lists. The versions have the same messages, as other types.
macro_rules! listed_services {
    ($version:ident, $channel:expr) => {{
        use reflection::server_reflection_client::ServerReflectionClient;
        use reflection::server_reflection_request::MessageRequest;
        use reflection::server_reflection_response::MessageResponse;
        use tonic_reflection::pb::$version as reflection;
        let mut client = ServerReflectionClient::new($channel);
        let request = reflection::ServerReflectionRequest {
            host: String::new(),
            message_request: Some(MessageRequest::ListServices(String::new())),
        };
        let requests = tokio_stream::once(request);
        let answers = client.server_reflection_info(requests).await.expect("reflection answers");
        let answer = answers.into_inner().message().await.expect("an answer").expect("one answer");
        let Some(MessageResponse::ListServicesResponse(list)) = answer.message_response else {
            panic!("no list of services: {answer:?}")
        };
        list.service.into_iter().map(|service| service.name).collect()
    }};
}

/// One connection to a service.
#[derive(Clone)]
pub struct Caller(Channel);

impl Caller {
    /// Connects.
    ///
    /// # Panics
    /// When the address does not accept connections.
    pub async fn of(addr: SocketAddr) -> Self {
        let endpoint = Endpoint::from_shared(format!("http://{addr}")).expect("an address");
        Self(endpoint.timeout(CALL_DEADLINE).connect().await.expect("the service listens"))
    }

    /// Calls over an existing connection.
    pub const fn over(channel: Channel) -> Self {
        Self(channel)
    }

    /// The connection, for calls that no generated client supports.
    pub fn channel(&self) -> Channel {
        self.0.clone()
    }

    pub async fn check(&self, request: &Request) -> Result<api::CheckRateLimitResponse, Status> {
        let mut client = api_client::RateLimitServiceClient::new(self.channel());
        client.check_rate_limit(request.check()).await.map(tonic::Response::into_inner)
    }

    pub async fn quota(&self, request: &Request) -> Result<api::GetQuotaResponse, Status> {
        let mut client = api_client::RateLimitServiceClient::new(self.channel());
        client.get_quota(request.quota()).await.map(tonic::Response::into_inner)
    }

    pub async fn refund(&self, request: &Request) -> Result<api::RefundHitsResponse, Status> {
        let mut client = api_client::RateLimitServiceClient::new(self.channel());
        client.refund_hits(request.refund()).await.map(tonic::Response::into_inner)
    }

    pub async fn should(&self, request: &Request) -> Result<rls::RateLimitResponse, Status> {
        let mut client = rls_client::RateLimitServiceClient::new(self.channel());
        client.should_rate_limit(request.envoy()).await.map(tonic::Response::into_inner)
    }

    /// Whether one hit of a request passes.
    ///
    /// # Panics
    /// When there is no decision.
    pub async fn allows(&self, request: &Request) -> bool {
        self.check(request).await.expect("a decision").decision() == api::Decision::Allowed
    }

    /// The remaining hits of the only limit that a request matches.
    ///
    /// # Panics
    /// When there is no answer, or it has more or fewer limits than one.
    pub async fn remaining(&self, request: &Request) -> u64 {
        let statuses = self.quota(request).await.expect("a quota").statuses;
        assert_eq!(statuses.len(), 1, "{statuses:?}");
        statuses[0].remaining.expect("a limit")
    }

    /// The health of a service as the name of the protocol's enum.
    pub async fn health(&self, service: &str) -> Result<HealthCheckResponse, Status> {
        let mut client = HealthClient::new(self.channel());
        let request = HealthCheckRequest { service: service.to_owned() };
        client.check(request).await.map(tonic::Response::into_inner)
    }

    /// Waits until the service's health is `wanted`.
    ///
    /// # Panics
    /// When it is not in time.
    pub async fn wait_for_health(&self, wanted: tonic_health::ServingStatus) {
        let mut client = HealthClient::new(self.channel());
        let watch = async {
            let request = HealthCheckRequest { service: String::new() };
            let mut events = client.watch(request).await.expect("health can be watched");
            while let Some(event) = events.get_mut().message().await.expect("an event") {
                if event.status == wanted as i32 {
                    return;
                }
            }
            panic!("the watch ended before {wanted:?}");
        };
        tokio::time::timeout(CALL_DEADLINE, watch).await.expect("health changes in time");
    }

    /// The services that reflection lists.
    ///
    /// # Panics
    /// When it lists none.
    pub async fn services(&self) -> Vec<String> {
        listed_services!(v1, self.channel())
    }

    /// The services that reflection lists, as older clients ask.
    ///
    /// # Panics
    /// When it lists none.
    pub async fn services_by_v1alpha(&self) -> Vec<String> {
        listed_services!(v1alpha, self.channel())
    }
}

/// A request for either service: `request("edge").about("user_id", "42").and("path",
/// "/login").taking(2)`.
#[derive(Clone, Debug, Default)]
pub struct Request {
    domain: String,
    descriptors: Vec<Descriptor>,
    hits: Option<u64>,
    explain: bool,
}

#[derive(Clone, Debug, Default)]
struct Descriptor {
    entries: Vec<(String, String)>,
    hits: Option<u64>,
    refund: bool,
    limit: Option<parts::RateLimitOverride>,
}

/// A request without descriptors.
pub fn request(domain: impl Into<String>) -> Request {
    Request { domain: domain.into(), ..Request::default() }
}

impl Request {
    /// Adds a descriptor with one entry.
    pub fn about(self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.about_nothing().and(key, value)
    }

    /// Adds a descriptor without entries.
    pub fn about_nothing(mut self) -> Self {
        self.descriptors.push(Descriptor::default());
        self
    }

    /// Adds an entry to the last descriptor.
    pub fn and(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.last().entries.push((key.into(), value.into()));
        self
    }

    /// Sets the hits of the last descriptor.
    pub fn taking(mut self, hits: u64) -> Self {
        self.last().hits = Some(hits);
        self
    }

    /// Sets the hits of every descriptor that names none.
    pub fn each_taking(mut self, hits: u64) -> Self {
        self.hits = Some(hits);
        self
    }

    /// Gives back the hits of the last descriptor. Only Envoy's message has this.
    pub fn giving_back(mut self) -> Self {
        self.last().refund = true;
        self
    }

    /// Asks for explanations. Only the message of GetQuota has this.
    pub fn explained(mut self) -> Self {
        self.explain = true;
        self
    }

    /// Sets an override for the last descriptor: `requests` per unit, by the unit's number.
    pub fn limited_to(mut self, requests: u32, unit: i32) -> Self {
        let limit =
            parts::RateLimitOverride { requests_per_unit: requests, unit, unit_multiplier: None };
        self.last().limit = Some(limit);
        self
    }

    /// Sets the number of units in the override's period.
    pub fn every(mut self, units: u32) -> Self {
        self.last().limit.as_mut().expect("an override").unit_multiplier = Some(units);
        self
    }

    fn last(&mut self) -> &mut Descriptor {
        self.descriptors.last_mut().expect("a descriptor")
    }

    /// The message of CheckRateLimit.
    pub fn check(&self) -> api::CheckRateLimitRequest {
        api::CheckRateLimitRequest {
            domain: self.domain.clone(),
            descriptors: self.descriptors.iter().map(Descriptor::own).collect(),
            hits: self.hits,
        }
    }

    /// The message of RefundHits.
    pub fn refund(&self) -> api::RefundHitsRequest {
        api::RefundHitsRequest {
            domain: self.domain.clone(),
            descriptors: self.descriptors.iter().map(Descriptor::own).collect(),
            hits: self.hits,
        }
    }

    /// The message of GetQuota.
    pub fn quota(&self) -> api::GetQuotaRequest {
        api::GetQuotaRequest {
            domain: self.domain.clone(),
            descriptors: self.descriptors.iter().map(Descriptor::own).collect(),
            explain: self.explain,
        }
    }

    /// The message of ShouldRateLimit.
    pub fn envoy(&self) -> rls::RateLimitRequest {
        rls::RateLimitRequest {
            domain: self.domain.clone(),
            descriptors: self.descriptors.iter().map(Descriptor::envoy).collect(),
            hits_addend: self.hits.map_or(0, |hits| hits.try_into().expect("32 bits")),
        }
    }
}

impl Descriptor {
    fn own(&self) -> api::Descriptor {
        let entry =
            |(key, value): &(String, String)| api::Entry { key: key.clone(), value: value.clone() };
        api::Descriptor { entries: self.entries.iter().map(entry).collect(), hits: self.hits }
    }

    fn envoy(&self) -> common::RateLimitDescriptor {
        let entry = |(key, value): &(String, String)| parts::Entry {
            key: key.clone(),
            value: value.clone(),
        };
        common::RateLimitDescriptor {
            entries: self.entries.iter().map(entry).collect(),
            limit: self.limit,
            hits_addend: self.hits,
            is_negative_hits: self.refund,
        }
    }
}

/// The response of the HTTP port.
#[derive(Debug)]
pub struct Page {
    pub status: u16,
    /// Names in lower case.
    pub head: String,
    pub body: String,
}

impl Page {
    /// Requests `path`.
    ///
    /// # Panics
    /// When the response is not HTTP.
    pub fn get(addr: SocketAddr, path: &str) -> Self {
        Self::get_by("HTTP/1.1", addr, path)
    }

    /// Requests `path` with this HTTP version: a response in HTTP/1.0 comes in one piece.
    ///
    /// # Panics
    /// As [`Page::get`].
    pub fn get_by(version: &str, addr: SocketAddr, path: &str) -> Self {
        let head = format!("GET {path} {version}\r\nHost: {addr}\r\nConnection: close\r\n\r\n");
        Self::ask(addr, &head)
    }

    /// Posts `body` to `path`.
    ///
    /// # Panics
    /// When the response is not HTTP.
    pub fn post(addr: SocketAddr, path: &str, body: &str) -> Self {
        Self::post_with(addr, path, "", body)
    }

    /// Posts `body` to `path` with further header lines.
    ///
    /// # Panics
    /// When the response is not HTTP.
    pub fn post_with(addr: SocketAddr, path: &str, headers: &str, body: &str) -> Self {
        let length = body.len();
        let head = format!("POST {path} HTTP/1.1\r\nHost: {addr}\r\nConnection: close\r\n");
        Self::ask(addr, &format!("{head}{headers}Content-Length: {length}\r\n\r\n{body}"))
    }

    /// Sends a request verbatim.
    ///
    /// # Panics
    /// When the response is not HTTP.
    pub fn ask(addr: SocketAddr, request: &str) -> Self {
        let mut stream = TcpStream::connect(addr).expect("the HTTP port listens");
        stream.set_read_timeout(Some(CALL_DEADLINE)).expect("a deadline can be set");
        // A server that refuses a request need not read it completely.
        let _ = stream.write_all(request.as_bytes());
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let answer = String::from_utf8(answer).expect("an answer in UTF-8");
        let (head, body) = answer.split_once("\r\n\r\n").expect("an HTTP answer");
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        Self {
            status: status.expect("an HTTP status"),
            head: head.to_lowercase(),
            body: body.to_owned(),
        }
    }
}
