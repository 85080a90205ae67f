//! `tidegate top`: shows the values that a running service rejects most.

use std::io::{IsTerminal, stdout};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use tokio::time::{interval, timeout};

use super::dial::{Port, Stream, Target};
use super::signals::Signals;
use super::{columns, printable};
use crate::entries;
use crate::settings::Top;

/// Timeout of the request.
const DEADLINE: Duration = Duration::from_secs(5);

/// The largest answer in bytes.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// Moves the cursor to the top left and clears the screen.
const CLEAR: &str = "\x1b[H\x1b[2J";

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
    entries: Vec<(String, String)>,
    rejections: u64,
    error_max: u64,
    share: f64,
}

/// Requests `/top` and prints it; with `--watch` again and again, until Ctrl-C.
///
/// # Errors
/// There is no answer. The message is for people.
pub fn run(top: &Top) -> Result<(), String> {
    super::runtime()?.block_on(async {
        let Some(watch) = top.watch else { return super::print(&shown(top).await?) };
        let (mut signals, mut ticks) = (Signals::new()?, interval(watch));
        let clear = if stdout().is_terminal() && !top.json { CLEAR } else { "" };
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                _ = signals.next() => return Ok(()),
            }
            let text = shown(top).await?;
            let blank = if top.json { "" } else { "\n" };
            if super::print_until_closed(&format!("{clear}{text}{blank}"))?.is_break() {
                return Ok(());
            }
        }
    })
}

/// The answer as it is printed.
async fn shown(top: &Top) -> Result<String, String> {
    let target = Target::new(&top.addr, &top.client, Port::Http)?;
    let asked = timeout(DEADLINE, ask(top, &target)).await;
    let answer =
        asked.unwrap_or_else(|_late| Err(format!("no answer from {target} in {DEADLINE:?}")))?;
    if top.json {
        return Ok(format!("{answer}\n"));
    }
    let page: Page = serde_json::from_str(&answer)
        .map_err(|error| format!("{target} does not answer as tidegate does: {error}"))?;
    Ok(table(&page))
}

async fn ask(top: &Top, target: &Target) -> Result<String, String> {
    let page = page(top)?;
    let stream = target.connect().await?;
    let (status, text) = match exchange(target, page, stream).await {
        Ok(answer) => answer,
        Err(error) => return Err(target.failure(&error).await),
    };
    match status {
        StatusCode::OK => Ok(text),
        // With a filter it says that nothing in force has this name.
        StatusCode::NOT_FOUND if top.domain.is_none() && top.rule.is_none() => {
            Err(format!("{target} has no /top: it is not Tidegate's HTTP port"))
        }
        _ => Err(format!("{status}: {}", text.trim())),
    }
}

/// Sends one request and receives its answer.
async fn exchange(
    target: &Target,
    page: Uri,
    stream: Stream,
) -> Result<(StatusCode, String), String> {
    let told = |error: &dyn std::fmt::Display| error.to_string();
    let shaken = http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = shaken.map_err(|error| told(&error))?;
    // A failure of the connection fails the request as well.
    tokio::spawn(connection);
    let request = Request::get(page).header(header::HOST, target.host());
    let request = request.body(Empty::<Bytes>::new()).map_err(|error| told(&error))?;
    let answer = sender.send_request(request).await.map_err(|error| told(&error))?;
    let status = answer.status();
    let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
    let body = body.map_err(|error| told(&error))?.to_bytes();
    Ok((status, String::from_utf8_lossy(&body).into_owned()))
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
    let mut entries = String::new();
    value.entries.iter().for_each(|(key, value)| entries::push(&mut entries, key, value));
    [rule.to_owned(), printable(&entries).into_owned(), count, up_to.to_string(), share]
}
