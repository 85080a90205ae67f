//! The chart's `settings` against the flags of `tidegate serve`: what the schema lets pass, the
//! program accepts.

use clap::Parser;
use serde_json::{Value, json};
use tidegate::settings::Cli;

use super::chart::{CHART, flags, rendered};
use crate::support::schema::fits;
use crate::support::tools::text;

/// Values of all types, right for some flags and wrong for the others.
fn candidates() -> Vec<Value> {
    let words = [
        "",
        "local",
        "deny",
        "denny",
        "error",
        "on",
        "off",
        "x-ratelimit",
        "draft",
        "auto",
        "text",
        "json",
        "xml",
        "info",
        "0",
        "5",
        "-1",
        "5s",
        "60s",
        "61s",
        "2m",
        "1m",
        "90m",
        "1h30m",
        "25h",
        "24h",
        "1d",
        "0ms",
        "15ms",
        "1s500ms",
        "60001ms",
        "5 s",
        "1.5s",
        "0.5",
        "127.0.0.1:8082",
        "127.0.0.1:65536",
        "[::1]:8082",
        "nowhere",
        "http://collector:4317",
        "https://c",
        "ftp://c",
        "http://",
        "10.1.0.0/16",
        "10.1.0.0/33",
        "10.1.0.256",
        "10.1.0.1,fd00::/8",
        "fd00::/129",
        "63MiB",
        "64MiB",
        "256Mi",
        "131072KiB",
        "2GiB",
        "2 GiB",
    ];
    let mut values: Vec<_> = words.into_iter().map(|word| json!(word)).collect();
    values.extend([json!(true), json!(false), json!(0.5), json!(1.5), json!(-1), json!(-0.5)]);
    values
        .extend((0..11).flat_map(|zeros| [json!(10_u64.pow(zeros)), json!(10_u64.pow(zeros) + 1)]));
    values.extend([
        json!(0),
        json!(2_000),
        json!(2_001),
        json!(1_024),
        json!(1_025),
        json!(u32::MAX),
    ]);
    values
}

/// The whole schema with one property: the settings.
fn schema_of_settings() -> Value {
    let mut schema: Value =
        serde_json::from_str(&text(&format!("{CHART}/values.schema.json"))).unwrap();
    schema["required"] = json!([]);
    schema
}

fn names(schema: &Value) -> Vec<String> {
    let settings = schema["properties"]["settings"]["properties"].as_object().unwrap();
    settings.keys().cloned().collect()
}

/// Whether `tidegate serve` accepts a flag with what the chart would write for this value.
fn is_accepted(flag: &str, value: &Value) -> bool {
    let takes_words = ["headers", "dynamic-metadata"].contains(&flag);
    let text = match value.as_str() {
        Some(text) => text.to_owned(),
        None if takes_words && *value == json!(true) => "on".to_owned(),
        None if takes_words && *value == json!(false) => "off".to_owned(),
        None => value.to_string(),
    };
    // Switches take their value from the environment, where a flag takes none.
    if ["merge-domains", "shadow-mode", "quota-mode", "count-rejected"].contains(&flag) {
        return value.is_boolean();
    }
    let flag = format!("--{flag}={text}");
    Cli::try_parse_from(["tidegate", "serve", "--limits", "limits", &flag]).is_ok()
}

#[test]
fn the_chart_lets_pass_only_settings_that_the_program_accepts() {
    let schema = schema_of_settings();
    let mut wrong = Vec::new();
    for flag in names(&schema) {
        let values = candidates();
        let passed: Vec<_> = values
            .iter()
            .filter(|value| fits(&schema, &json!({ "settings": { &flag: value } })))
            .collect();
        assert!(!passed.is_empty(), "{flag}: no candidate passes");
        wrong.extend(
            passed
                .into_iter()
                .filter(|value| !is_accepted(&flag, value))
                .map(|value| (flag.clone(), value.clone())),
        );
    }
    assert!(wrong.is_empty(), "the schema accepts what serve refuses: {wrong:?}");
}

#[test]
fn the_chart_refuses_no_value_of_the_right_type_that_the_program_accepts() {
    let schema = schema_of_settings();
    for flag in names(&schema) {
        let is_number = candidates().iter().any(|value| {
            value.is_number()
                && is_accepted(&flag, value)
                && fits(&schema, &json!({ "settings": { &flag: value } }))
        });
        for value in candidates() {
            // Numbers are written as numbers, and any address of the admin port but loopback fails later.
            let is_other_type = value.is_string() && is_number && flag != "max-connection-age"
                || !value.is_string() && !is_number
                || value == json!("")
                || flag == "admin-addr"
                || flag == "log";
            if !is_other_type && is_accepted(&flag, &value) {
                let settings = json!({ "settings": { &flag: value } });
                assert!(
                    fits(&schema, &settings),
                    "serve accepts it, the schema does not: {settings}"
                );
            }
        }
    }
}

#[test]
fn numbers_and_words_arrive_as_they_were_written() {
    for (set, flag, expected) in [
        ("settings.max-in-flight=1000000", "--max-in-flight", "1000000"),
        ("settings.headers=off", "--headers", "off"),
        ("settings.dynamic-metadata=false", "--dynamic-metadata", "off"),
        ("settings.shadow-mode=true", "--shadow-mode", "true"),
    ] {
        assert_eq!(flags(&rendered(&["--set", set]))[flag], expected);
    }
    let json = r#"settings={"decision-log-sample":0.001,"memory-max-keys":1000000}"#;
    let flags = flags(&rendered(&["--set-json", json]));
    assert_eq!(flags["--decision-log-sample"], "0.001");
    assert_eq!(flags["--memory-max-keys"], "1000000");
}
