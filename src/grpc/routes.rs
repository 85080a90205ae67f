//! From a call's path to what answers it: the two rate limit services, health and reflection.
//!
//! The rate limit services go round tonic's router, which costs as much as a decision.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::http::{HeaderMap, Request, Response};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic_health::pb::health_server::{Health, HealthServer};
use tonic_reflection::server::v1::{ServerReflection, ServerReflectionServer};

use super::Grpc;

/// Everything on the gRPC port.
pub struct Routes<H, R> {
    /// The rate limit services.
    pub grpc: Grpc,
    /// `grpc.health.v1.Health`.
    pub health: HealthServer<H>,
    /// `grpc.reflection.v1.ServerReflection`.
    pub reflection: ServerReflectionServer<R>,
}

impl<H: Health, R: ServerReflection> Routes<H, R> {
    /// Answers a call within the time that its caller gives it.
    ///
    /// # Errors
    /// None: mistakes are answers too.
    pub async fn answer(
        self: Arc<Self>,
        call: Request<Incoming>,
    ) -> Result<Response<Body>, Infallible> {
        let Some(timeout) = caller_timeout(call.headers()) else {
            return self.route(call).await;
        };
        match tokio::time::timeout(timeout, self.route(call)).await {
            Ok(answer) => answer,
            Err(_elapsed) => {
                Ok(Status::deadline_exceeded("the caller's grpc-timeout is over").into_http())
            }
        }
    }

    async fn route(&self, call: Request<Incoming>) -> Result<Response<Body>, Infallible> {
        match call.uri().path() {
            "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit" => {
                Ok(self.grpc.should_rate_limit(call).await)
            }
            "/tidegate.v1.RateLimitService/CheckRateLimit" => {
                Ok(self.grpc.check_rate_limit(call).await)
            }
            "/tidegate.v1.RateLimitService/GetQuota" => Ok(self.grpc.get_quota(call).await),
            path if path.starts_with("/grpc.health.v1.Health/") => {
                self.health.clone().call(call).await
            }
            path if path.starts_with("/grpc.reflection.v1.ServerReflection/") => {
                self.reflection.clone().call(call).await
            }
            path => {
                let message = format!("{path} is not served here; reflection lists what is");
                Ok(Status::unimplemented(message).into_http())
            }
        }
    }
}

/// The header `grpc-timeout`: up to 8 digits and a unit. One that is not so is no bound.
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
