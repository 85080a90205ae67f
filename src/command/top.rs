//! `tidegate top`: shows the values that a running service rejects most.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use tokio::time::timeout;

use super::dial::Target;
use super::{columns, printable};
use crate::settings::Top;

/// Timeout of the request.
const DEADLINE: Duration = Duration::from_secs(5);

/// The largest answer in bytes.
const ANSWER_BYTES_MAX: usize = 16 << 20;

const HEADER: [&str; 5] = ["RULE", "VALUE", "REJECTIONS", "UP TO", "SHARE"];

#[derive(Deserialize)]
struct Page {
    of_last_seconds: [u64; 2],
    left_out: u64,
    rules: Vec<Rule>,
}

#[derive(Deserialize)]
struct Rule {
    domain: String,
    rule: String,
    rejections: u64,
    values: Vec<Value>,
}

#[derive(Deserialize)]
struct Value {
    entries: String,
    rejections: u64,
    error_max: u64,
    share: f64,
}

/// Requests `/top` and prints it.
///
/// # Errors
/// There is no answer. The message is for people.
pub fn run(top: &Top) -> Result<(), String> {
    let runtime = super::runtime()?;
    let asked = runtime.block_on(async { timeout(DEADLINE, ask(top)).await });
    let answer = asked
        .map_err(|_elapsed| format!("no answer from {} in {DEADLINE:?}", top.addr))
        .and_then(|answer| answer)?;
    if top.json {
        return super::print(&format!("{answer}\n"));
    }
    let page: Page = serde_json::from_str(&answer)
        .map_err(|error| format!("{} does not answer as tidegate does: {error}", top.addr))?;
    super::print(&table(&page))
}

async fn ask(top: &Top) -> Result<String, String> {
    let addr = &top.addr;
    let failed = |error: &dyn std::fmt::Display| {
        format!(
            "no service at {addr}: {error}; start one with `tidegate serve`, or name its HTTP port \
             with --addr"
        )
    };
    let target = Target::new(addr, &top.client, b"http/1.1")?;
    let stream = target.connect().await.map_err(|error| failed(&error))?;
    let shaken = http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = shaken.map_err(|error| failed(&error))?;
    // A failure of the connection fails the request as well.
    tokio::spawn(connection);
    let request = Request::get(page(top)?).header(header::HOST, addr).body(Empty::<Bytes>::new());
    let request = request.map_err(|error| failed(&error))?;
    let answer = sender.send_request(request).await.map_err(|error| failed(&error))?;
    let status = answer.status();
    let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
    let body = body.map_err(|error| failed(&error))?.to_bytes();
    let text = String::from_utf8_lossy(&body).into_owned();
    if status == StatusCode::OK { Ok(text) } else { Err(format!("{status}: {}", text.trim())) }
}

fn page(top: &Top) -> Result<Uri, String> {
    let given = [("domain", &top.domain), ("rule", &top.rule)];
    let filters = given.iter().filter_map(|(name, value)| {
        let value = utf8_percent_encode(value.as_ref()?, NON_ALPHANUMERIC);
        Some(format!("{name}={value}"))
    });
    let filters: Vec<_> = filters.collect();
    format!("/top?{}", filters.join("&")).parse().map_err(|error| format!("--rule: {error}"))
}

fn table(page: &Page) -> String {
    let [least, most] = page.of_last_seconds;
    let mut rows = vec![HEADER.map(String::from)];
    for rule in &page.rules {
        let name = printable(&format!("{}: {}", rule.domain, rule.rule)).into_owned();
        rows.push([
            name.clone(),
            "all".into(),
            rule.rejections.to_string(),
            String::new(),
            String::new(),
        ]);
        rows.extend(rule.values.iter().map(|value| row(&name, value)));
    }
    let mut text = if page.rules.is_empty() {
        format!("nothing was rejected in the last {least} to {most} seconds\n")
    } else {
        columns(&rows)
    };
    if page.left_out > 0 {
        let count = page.left_out;
        text +=
            &format!("too many rules reject: {count} rejections since the start are not told\n");
    }
    text
}

fn row(rule: &str, value: &Value) -> [String; 5] {
    let up_to = value.rejections + value.error_max;
    let share = format!("{:.1} %", value.share * 100.0);
    let count = value.rejections.to_string();
    [rule.to_owned(), printable(&value.entries).into_owned(), count, up_to.to_string(), share]
}
