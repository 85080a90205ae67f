//! Routes each call by its path: the two rate limit services, health and reflection.
//!
//! The rate limit methods bypass tonic's router, which costs as much CPU as a decision on memory.

use std::convert::Infallible;
use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::service;

use super::calls::{Calls, TrackedBody};
use super::message::ResponseBody;
use super::refusal::{Reason, refuse};
use super::rpc::{self, CheckRateLimit, GetQuota, RefundHits, Rpc, ShouldRateLimit};
use super::{Answering, Grpc};

/// Why a stream of health or reflection is refused.
const TOO_MANY_STREAMS: &str = "this connection has enough streams of this kind";

/// Why any other call is refused.
const TOO_MANY_UNREAD: &str = "too many answers are not read; call again later";

/// All services of the gRPC port.
pub struct Routes {
    /// The rate limit services.
    pub grpc: Arc<Grpc>,
    /// Health, and reflection in both versions.
    pub aside: service::Routes,
}

impl Routes {
    /// Accepts one of a connection's `calls`, or refuses it if too many are open.
    pub fn accept(
        &self,
        call: Request<Incoming>,
        calls: &Arc<Calls>,
    ) -> impl Future<Output = Response<TrackedBody<ResponseBody>>> + Send + use<> {
        let path = call.uri().path();
        let may_stay = rpc::is_health(path) || rpc::is_reflection(path);
        let open = if may_stay { calls.watch() } else { calls.begin() };
        let (open, answer) = match open {
            Some(open) => (open, self.with_timeout(call)),
            None => {
                let why = if may_stay { TOO_MANY_STREAMS } else { TOO_MANY_UNREAD };
                (calls.begin_refusal(), refused(why))
            }
        };
        async { answer.await.map(|body| open.until_sent(body)) }
    }

    /// Routes a call within the time that the caller's `grpc-timeout` allows.
    fn with_timeout(&self, call: Request<Incoming>) -> Answering {
        if let Some(status) = no_call(call.method(), call.headers()) {
            let mut answer = Response::new(ResponseBody::default());
            *answer.status_mut() = status;
            return Box::pin(ready(answer));
        }
        let Some(timeout) = caller_timeout(call.headers()) else {
            return self.route(call);
        };
        let answer = tokio::time::timeout(timeout, self.route(call));
        Box::pin(async {
            answer.await.unwrap_or_else(|_elapsed| {
                let message = "the caller's grpc-timeout is over";
                refuse(Reason::DeadlineExceeded, message).into_http()
            })
        })
    }

    fn route(&self, call: Request<Incoming>) -> Answering {
        let grpc = || Arc::clone(&self.grpc);
        match call.uri().path() {
            ShouldRateLimit::PATH => grpc().handle::<ShouldRateLimit>(call),
            CheckRateLimit::PATH => grpc().handle::<CheckRateLimit>(call),
            GetQuota::PATH => grpc().handle::<GetQuota>(call),
            RefundHits::PATH => grpc().handle::<RefundHits>(call),
            path if rpc::is_health(path) || rpc::is_reflection(path) => {
                let answer = self.aside.clone().call(call);
                Box::pin(async { of_tonic(answer.await) })
            }
            path => {
                let message = format!("{path} is not served here; reflection lists what is");
                Box::pin(ready(refuse(Reason::NotSupported, message).into_http()))
            }
        }
    }
}

fn of_tonic(answer: Result<Response<Body>, Infallible>) -> Response<ResponseBody> {
    let answer = answer.unwrap_or_else(|never| match never {});
    answer.map(ResponseBody::Tonic)
}

/// The HTTP status for requests that are not gRPC calls. Without this check, a web page could make
/// a browser send a request that is decided and takes hits.
fn no_call(method: &Method, headers: &HeaderMap) -> Option<StatusCode> {
    if *method != Method::POST {
        return Some(StatusCode::METHOD_NOT_ALLOWED);
    }
    let kind = headers.get(header::CONTENT_TYPE).map_or(&b""[..], |kind| kind.as_bytes());
    let protobuf = match kind.strip_prefix(b"application/grpc") {
        Some(rest) => {
            matches!(rest.strip_prefix(b"+proto").unwrap_or(rest), [] | [b';' | b' ', ..])
        }
        None => false,
    };
    (!protobuf).then_some(StatusCode::UNSUPPORTED_MEDIA_TYPE)
}

fn refused(why: &str) -> Answering {
    Box::pin(ready(refuse(Reason::Overloaded, why).into_http()))
}

/// Parses the header `grpc-timeout`: up to 8 digits and a unit. A malformed header sets no bound.
fn caller_timeout(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get("grpc-timeout")?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.len() > 8 || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let count: u64 = digits.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(count * 3_600)),
        "M" => Some(Duration::from_secs(count * 60)),
        "S" => Some(Duration::from_secs(count)),
        "m" => Some(Duration::from_millis(count)),
        "u" => Some(Duration::from_micros(count)),
        "n" => Some(Duration::from_nanos(count)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_posted_protobuf_is_a_call() {
        let posted = |kind: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, kind.parse().unwrap());
            no_call(&Method::POST, &headers)
        };
        for kind in ["", "+proto", ";charset=utf-8", "+proto; charset=utf-8"] {
            assert_eq!(posted(&format!("application/grpc{kind}")), None, "{kind}");
        }
        for kind in ["text/plain", "", "application/grpc-web", "application/grpc+json"] {
            assert_eq!(posted(kind), Some(StatusCode::UNSUPPORTED_MEDIA_TYPE), "{kind}");
        }
        let none = HeaderMap::new();
        assert_eq!(no_call(&Method::POST, &none), Some(StatusCode::UNSUPPORTED_MEDIA_TYPE));
        assert_eq!(no_call(&Method::GET, &none), Some(StatusCode::METHOD_NOT_ALLOWED));
    }

    #[test]
    fn a_callers_timeout_is_read_in_every_unit() {
        let timeout = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("grpc-timeout", text.parse().unwrap());
            caller_timeout(&headers)
        };
        assert_eq!(timeout("20m"), Some(Duration::from_millis(20)));
        assert_eq!(timeout("1H"), Some(Duration::from_secs(3_600)));
        assert_eq!(timeout("2M"), Some(Duration::from_secs(120)));
        assert_eq!(timeout("99999999S"), Some(Duration::from_secs(99_999_999)));
        assert_eq!(timeout("5u"), Some(Duration::from_micros(5)));
        assert_eq!(timeout("0n"), Some(Duration::ZERO));
        for none in ["", "m", "20", "20x", "-1m", "+1m", "123456789m", "é"] {
            assert_eq!(timeout(none), None, "{none}");
        }
    }
}
