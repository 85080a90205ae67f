//! Malformed and extreme calls of Envoy's service, byte by byte: each row has its expected answer,
//! and after each the service must still decide.

use std::time::Duration;

use prost::encoding::encode_varint;
use tidegate::proto::envoy::service::ratelimit::v3::{RateLimitResponse, rate_limit_response};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tonic::Code;

use crate::support::client::{Served, request};
use crate::support::raw::{RawAnswer, RawCall};

const LIMITS: &str =
    "{domain: edge, descriptors: [{key: k, rate_limit: {limit: 1000000, period: 36500d}}]}";

/// The deadline for a connection to end.
const DEADLINE: Duration = Duration::from_secs(20);

/// The longest message.
const MESSAGE_MAX: usize = 4 << 20;

const UNREADABLE: &str = "message: is not readable protobuf";

/// The expected answer.
enum Expected {
    /// A decision with so many statuses that have a limit.
    Passes(usize),
    /// A decision that rejects.
    Rejected,
    /// This code, with a message that begins with this text.
    Code(Code, &'static str),
    /// This HTTP status and no gRPC code.
    Http(u16),
    /// The service closes the connection.
    Nothing,
}

use Expected::{Http, Nothing, Passes, Rejected};

fn invalid(message: &'static str) -> Expected {
    Expected::Code(Code::InvalidArgument, message)
}

fn internal(message: &'static str) -> Expected {
    Expected::Code(Code::Internal, message)
}

/// A field of bytes, with its number.
fn field(number: u64, bytes: impl AsRef<[u8]>) -> Vec<u8> {
    let mut out = tag(number, 2);
    encode_varint(bytes.as_ref().len() as u64, &mut out);
    out.extend(bytes.as_ref());
    out
}

/// A field of a number.
fn varint(number: u64, value: u64) -> Vec<u8> {
    let mut out = tag(number, 0);
    encode_varint(value, &mut out);
    out
}

fn tag(number: u64, wire_type: u64) -> Vec<u8> {
    let mut out = Vec::new();
    encode_varint(number << 3 | wire_type, &mut out);
    out
}

/// A request of one descriptor, with these bytes after its entry.
fn described(more: impl AsRef<[u8]>) -> Vec<u8> {
    let entry = field(1, [field(1, "k"), field(2, "v")].concat());
    [field(1, "edge"), field(2, [entry.as_slice(), more.as_ref()].concat())].concat()
}

/// A good request with these bytes after it.
fn and(more: impl AsRef<[u8]>) -> Vec<u8> {
    [described("").as_slice(), more.as_ref()].concat()
}

/// A request whose descriptor has an override of these fields.
fn overridden(fields: &[Vec<u8>]) -> Vec<u8> {
    described(field(2, fields.concat()))
}

/// A valid request, padded to this length.
fn padded(len: usize) -> Vec<u8> {
    let plain = and("");
    let padding = |len: usize| field(99, vec![b'x'; len]);
    let more = (0..8).find_map(|frame| {
        let padded = [plain.as_slice(), &padding(len.checked_sub(plain.len() + frame)?)].concat();
        (padded.len() == len).then_some(padded)
    });
    more.expect("a length that padding can reach")
}

async fn assert_answers(rows: Vec<(&str, RawCall, Expected)>) {
    let served = Served::with_limits(LIMITS);
    let caller = served.caller().await;
    for (row, call, expected) in rows {
        let answer = call.send(served.tidegate.grpc).await;
        assert_answer(row, answer, &expected);
        assert!(caller.allows(&request("edge").about("k", "next")).await, "{row}");
    }
}

fn assert_answer(row: &str, answer: Option<RawAnswer>, expected: &Expected) {
    let answer = match (answer, expected) {
        (None, Nothing) => return,
        (answer, _) => answer.unwrap_or_else(|| panic!("{row}: no answer")),
    };
    match expected {
        Expected::Code(code, message) => {
            assert_eq!((answer.http, answer.code), (200, *code as i32), "{row}: {answer:?}");
            assert!(answer.message.starts_with(message), "{row}: {}", answer.message);
        }
        Http(status) => assert_eq!((answer.http, answer.code), (*status, -1), "{row}: {answer:?}"),
        Passes(limits) => assert_decision(row, &answer, Some(*limits)),
        Rejected => assert_decision(row, &answer, None),
        Nothing => panic!("{row}: {answer:?}"),
    }
}

fn assert_decision(row: &str, answer: &RawAnswer, limits: Option<usize>) {
    assert_eq!((answer.http, answer.code), (200, 0), "{row}: {answer:?}");
    let decision: RateLimitResponse = answer.decoded();
    let Some(limits) = limits else {
        assert_eq!(decision.overall_code(), rate_limit_response::Code::OverLimit, "{row}");
        return;
    };
    assert_eq!(decision.overall_code(), rate_limit_response::Code::Ok, "{row}");
    let limited = decision.statuses.iter().filter(|status| status.current_limit.is_some());
    assert_eq!(limited.count(), limits, "{row}");
}

#[tokio::test]
async fn malformed_protobuf_is_refused_with_its_position() {
    let rows = [
        ("cut short", UNREADABLE, and([0x0a, 9])),
        ("a number for the domain", UNREADABLE, varint(1, 1)),
        ("a number for a descriptor", UNREADABLE, and(varint(2, 1))),
        ("a group for the domain", UNREADABLE, and([tag(1, 3), tag(1, 4)].concat())),
        ("a group left open", UNREADABLE, and(tag(100, 3))),
        ("a group closed by another's end", UNREADABLE, and([tag(100, 3), tag(101, 4)].concat())),
        ("the end of no group", UNREADABLE, and(tag(100, 4))),
        ("100,000 groups in each other", UNREADABLE, and(tag(100, 3).repeat(100_000))),
        (
            "1,000 groups closed again",
            UNREADABLE,
            and([tag(100, 3).repeat(1_000), tag(100, 4).repeat(1_000)].concat()),
        ),
        ("wire type 6", UNREADABLE, and(tag(1, 6))),
        ("wire type 7", UNREADABLE, and(tag(1, 7))),
        ("field 0", UNREADABLE, and(varint(0, 1))),
        ("a field's number of 64 bits", UNREADABLE, and(varint(u64::MAX >> 3, 1))),
        ("a varint of 11 bytes", UNREADABLE, and([&tag(3, 0), &[0xff; 10][..], &[1]].concat())),
        ("a length of 2^64 - 1", UNREADABLE, and([&tag(1, 2), &[0xff; 9][..], &[1]].concat())),
        (
            "a length of 2^31",
            UNREADABLE,
            and([&tag(2, 2), &[0x80, 0x80, 0x80, 0x80, 8][..]].concat()),
        ),
        ("nothing but NUL", UNREADABLE, vec![0; 64]),
        ("a number for an entry", "descriptors[0]: is not readable", described(varint(1, 1))),
        (
            "a number for a key",
            "descriptors[0].entries[1]: is not readable",
            described(field(1, varint(1, 1))),
        ),
        (
            "a broken override",
            "descriptors[0].limit: is not readable",
            described(field(2, [0x0a, 9])),
        ),
        ("hits cut short", "descriptors[0]: is not readable", described(field(3, [8]))),
        ("a domain that is no text", "domain: is not UTF-8", field(1, [0xff])),
        (
            "a key that is no text",
            "descriptors[0].entries[0].key: is not UTF-8",
            field(2, field(1, field(1, [0xc0, 0x80]))),
        ),
        (
            "half a surrogate",
            "descriptors[0].entries[0].value: is not UTF-8",
            field(2, field(1, [field(1, "k"), field(2, [0xed, 0xa0, 0x80])].concat())),
        ),
        ("no bytes at all", "domain: must not be empty", Vec::new()),
        (
            "an entry without a key",
            "descriptors[0].entries[1].key: must not be empty",
            described(field(1, "")),
        ),
    ];
    let rows = rows
        .into_iter()
        .map(|(row, printed, message)| (row, RawCall::message(message), invalid(printed)));
    assert_answers(rows.collect()).await;
}

#[tokio::test]
async fn extreme_numbers_are_decided_or_refused() {
    let unit = "descriptors[0].limit.unit: ";
    let multiplier = "descriptors[0].limit.unit_multiplier: ";
    let own = |unit, multiplier| overridden(&[varint(1, 5), varint(2, unit), multiplier]);
    let most = u64::from(u32::MAX);
    let rows = [
        ("an override of nothing", overridden(&[]), invalid(unit)),
        ("an override without a unit", overridden(&[varint(1, 5)]), invalid(unit)),
        ("a unit of -1", own(u64::MAX, Vec::new()), invalid(unit)),
        ("a unit of 2^32 + 1 is read as 1", own((1 << 32) + 1, Vec::new()), Passes(1)),
        ("a multiplier of nothing is 0", own(1, field(3, "")), invalid(multiplier)),
        ("136 years of seconds", own(1, field(3, varint(1, most))), invalid(multiplier)),
        ("100 years", own(6, field(3, varint(1, 100))), Passes(1)),
        (
            "an override in two parts",
            { described([field(2, varint(1, 0)), field(2, varint(2, 1))].concat()) },
            Rejected,
        ),
        ("no requests", overridden(&[varint(1, 0), varint(2, 1)]), Rejected),
        (
            "2^32 requests are read as none",
            overridden(&[varint(1, 1 << 32), varint(2, 1)]),
            Rejected,
        ),
        ("2^64 - 1 hits", described(field(3, varint(1, u64::MAX))), Rejected),
        (
            "2^64 - 1 hits given back",
            { described([field(3, varint(1, u64::MAX)), varint(4, 1)].concat()) },
            Passes(1),
        ),
        ("hits of nothing only ask", described(field(3, "")), Passes(1)),
        ("2^32 - 1 hits of the request", and(varint(3, most)), Rejected),
        ("2^32 hits are read as none, which is one", and(varint(3, 1 << 32)), Passes(1)),
        ("hits of another wire type are unknown", and(field(3, "9")), Passes(1)),
        ("the last domain counts", and(field(1, "other")), Passes(0)),
        (
            "the last value counts",
            { described(field(1, [field(1, "x"), field(1, "k"), field(2, "v")].concat())) },
            Passes(0),
        ),
        ("an unknown group", and([tag(100, 3), tag(100, 4)].concat()), Passes(1)),
        ("the longest message", padded(MESSAGE_MAX), Passes(1)),
        ("a longer message", padded(MESSAGE_MAX + 1), {
            Expected::Code(Code::OutOfRange, "the message has 4194305 bytes")
        }),
    ];
    let rows =
        rows.into_iter().map(|(row, message, expected)| (row, RawCall::message(message), expected));
    assert_answers(rows.collect()).await;
}

#[tokio::test]
async fn requests_that_are_not_grpc_calls_get_an_error() {
    let good = || RawCall::message(and(""));
    let flagged = |flag| RawCall::frame(flag, and(""));
    let service = "/envoy.service.ratelimit";
    let unserved = Expected::Code(Code::Unimplemented, service);
    let unpacked = || Expected::Code(Code::Unimplemented, "the message is compressed");
    let too_long = Expected::Code(Code::OutOfRange, "the message has 4294967295 bytes");
    let rows = vec![
        ("compressed by nothing", flagged(1), internal("1 before the message's length")),
        ("compressed", flagged(1).header("grpc-encoding", "gzip"), unpacked()),
        ("said to be compressed", good().header("grpc-encoding", "zstd"), Passes(1)),
        ("flag 2", flagged(2), internal("2 before the message's length")),
        ("flag 255", flagged(255), internal("255 before the message's length")),
        ("half a frame's head", RawCall::body([0, 0, 0]), internal("the message ends before")),
        ("half a frame", RawCall::body([0, 0, 0, 0, 9, 1]), internal("the message ends before")),
        ("a frame of 4 GiB", RawCall::body([0, 0xff, 0xff, 0xff, 0xff]), too_long),
        ("no frame", RawCall::body([]), internal("the call has no message")),
        ("only trailers", RawCall::body([]).with_trailers(), internal("the call has no message")),
        ("trailers after the message", good().with_trailers(), Passes(1)),
        ("no message after a head", RawCall::message([]), invalid("domain: must not be empty")),
        ("text", good().header("content-type", "text/plain"), Http(415)),
        ("no content type", good().header("content-type", ""), Http(415)),
        ("JSON", good().header("content-type", "application/grpc+json"), Http(415)),
        ("gRPC-Web", good().header("content-type", "application/grpc-web"), Http(415)),
        ("GET", good().method("GET"), Http(405)),
        ("PUT", good().method("PUT"), Http(405)),
        ("a method of our own", good().method("TAKE"), Http(405)),
        ("without te", good().header("te", ""), Passes(1)),
        (
            "the service of before",
            good().path(&format!("{service}.v2.RateLimitService/ShouldRateLimit")),
            unserved,
        ),
        (
            "no method's path",
            good().path("/"),
            Expected::Code(Code::Unimplemented, "/ is not served"),
        ),
        ("a timeout that is none", good().header("grpc-timeout", "soon"), Passes(1)),
        ("20 KB of headers", good().header("x-long", &"x".repeat(20_000)), Http(431)),
        ("a reset after the message", good().then_reset(), Nothing),
        ("a reset in the message", RawCall::body([0, 0, 0, 0, 9, 1]).then_reset(), Nothing),
    ];
    assert_answers(rows).await;
}

#[tokio::test]
async fn connections_without_http2_are_closed() {
    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let served = Served::with_limits(LIMITS);
    let caller = served.caller().await;
    let cases: [&[u8]; 5] = [
        b"GET / HTTP/1.1\r\nhost: x\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        &[0xff; 64],
        &[PREFACE, &[0xff; 64]].concat(),
    ];
    for bytes in cases {
        let mut stream = TcpStream::connect(served.tidegate.grpc).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        let mut answer = Vec::new();
        let end = timeout(DEADLINE, stream.read_to_end(&mut answer));
        // A reset also counts as closed.
        let _ = end.await.unwrap_or_else(|_| panic!("{bytes:?} keeps its connection"));
        assert!(caller.allows(&request("edge").about("k", "next")).await);
    }
}
