//! Every error has google.rpc details for programs.

use std::time::Duration;

use bytes::Bytes;
use http::uri::PathAndQuery;
use tonic::{Code, Status};
use tonic_prost::ProstCodec;
use tonic_types::{ErrorDetails, StatusExt};

use crate::support::client::{Caller, Served, request};
use crate::support::servers::free_port;

const LIMITS: &str = "{domain: edge, descriptors: [{key: k, rate_limit: {limit: 9, period: 1h}}]}";

/// The details of an error, whose `ErrorInfo` has this reason.
fn details(status: &Status, reason: &str) -> ErrorDetails {
    let details = status.check_error_details().expect("the details can be read");
    let info = details.error_info().unwrap_or_else(|| panic!("no ErrorInfo: {status:?}"));
    assert_eq!((info.domain.as_str(), info.reason.as_str()), ("tidegate", reason), "{status:?}");
    details
}

#[tokio::test]
async fn a_mistake_of_the_caller_has_its_field() {
    let served = Served::with_limits(LIMITS);
    let caller = served.caller().await;
    let bad = request("edge").about("k", "v").about("", "v");
    for status in [
        caller.check(&bad).await.unwrap_err(),
        caller.quota(&bad).await.unwrap_err(),
        caller.refund(&bad).await.unwrap_err(),
        caller.should(&bad).await.unwrap_err(),
    ] {
        assert_eq!(status.code(), Code::InvalidArgument);
        assert_eq!(status.message(), "descriptors[1].entries[0].key: must not be empty");
        let details = details(&status, "INVALID_REQUEST");
        let [violation] = &details.bad_request().unwrap().field_violations[..] else {
            panic!("{details:?}")
        };
        assert_eq!(violation.field, "descriptors[1].entries[0].key");
        assert_eq!(violation.description, "must not be empty");
        assert!(details.retry_info().is_none());
    }
}

#[tokio::test]
async fn an_error_that_passes_says_when_to_retry() {
    let nobody = format!("redis://127.0.0.1:{}", free_port());
    let args = ["--store", &nobody, "--on-store-failure", "error"];
    let served = Served::with(&[LIMITS], &args);
    let caller = served.caller().await;
    let status = caller.check(&request("edge").about("k", "v")).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    let retry = details(&status, "STORE_UNAVAILABLE").retry_info().unwrap().retry_delay;
    assert_eq!(retry, Some(Duration::from_secs(1)));
}

#[tokio::test]
async fn an_unknown_method_and_a_long_message_have_details() {
    let served = Served::with_limits(LIMITS);
    let caller = served.caller().await;
    let unknown = call(&caller, "/tidegate.v1.RateLimitService/Nothing", Bytes::new()).await;
    assert_eq!(unknown.code(), Code::Unimplemented);
    details(&unknown, "NOT_SUPPORTED");
    let long = Bytes::from(vec![0; 5 << 20]);
    let long = call(&caller, "/tidegate.v1.RateLimitService/CheckRateLimit", long).await;
    assert_eq!(long.code(), Code::OutOfRange);
    details(&long, "MESSAGE_TOO_LONG");
}

async fn call(caller: &Caller, path: &'static str, message: Bytes) -> Status {
    let mut client = tonic::client::Grpc::new(caller.channel());
    client.ready().await.unwrap();
    let codec: ProstCodec<Bytes, ()> = ProstCodec::default();
    let path = PathAndQuery::from_static(path);
    client.unary(tonic::Request::new(message), path, codec).await.unwrap_err()
}
