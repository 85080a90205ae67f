//! Turns values into the flags of `serve`, with remarks where behaviour differs.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::Uri;

use super::store;
use super::translation::Translation;
use super::values::{Mistakes, Values};
use crate::period::{self, Unit};

/// Placeholder for the limits folder, when no variable gives it.
const LIMITS: &str = "/etc/tidegate";

/// The longest connection age that this program allows.
const AGE_MAX: Duration = Duration::from_millis(Unit::Day.ms());

/// The ports of OTLP collectors, for gRPC and for HTTP.
const OTLP_GRPC_PORT: u16 = 4_317;
const OTLP_HTTP_PORT: u16 = 4_318;

impl Translation {
    /// The flags for these values.
    pub fn of(values: &Values<'_>, mistakes: &mut Mistakes) -> Self {
        let mut translation = Self::default();
        translation.limits(values);
        store::add(values, &mut translation, mistakes);
        translation.addresses(values);
        translation.certificates(values);
        translation.switches(values);
        translation.answers(values);
        translation.log(values);
        translation.traces(values);
        translation
    }

    fn limits(&mut self, values: &Values<'_>) {
        if values.text("CONFIG_TYPE") == Some("GRPC_XDS_SOTW") {
            let what = format!(
                "put the limits that xDS serves into files in {LIMITS}, or change --limits"
            );
            self.before("CONFIG_TYPE", what);
            self.set("--limits", LIMITS);
        } else {
            self.set("--limits", folder(values).display().to_string());
        }
        if values.is_on("MERGE_DOMAIN_CONFIG") {
            self.flag("--merge-domains");
        }
    }

    fn addresses(&mut self, values: &Values<'_>) {
        let addr = |host, port, default| {
            SocketAddr::new(values.host(host), values.port(port, default)).to_string()
        };
        match values.text("GRPC_UDS") {
            Some(path) => self.set("--grpc-addr", format!("unix:{path}")),
            None => self.set("--grpc-addr", addr("GRPC_HOST", "GRPC_PORT", 8_081)),
        }
        self.set("--http-addr", addr("HOST", "PORT", 8_080));
        if let Some(calls) = values.count("MAX_CONCURRENT_REQUESTS").filter(|calls| *calls > 0) {
            self.set("--max-in-flight", calls.to_string());
        }
        if let Some(age) = values.duration("GRPC_MAX_CONNECTION_AGE") {
            self.set("--max-connection-age", spelled(age.min(AGE_MAX)));
            if age > AGE_MAX {
                self.remark("GRPC_MAX_CONNECTION_AGE", "the maximum is 1d; 0 means no maximum age");
            }
        }
    }

    fn certificates(&mut self, values: &Values<'_>) {
        let has_authority = values.text("GRPC_CLIENT_TLS_CACERT").is_some();
        for (variable, flag) in [
            ("GRPC_SERVER_TLS_CERT", "--grpc-cert-file"),
            ("GRPC_SERVER_TLS_KEY", "--grpc-key-file"),
            ("GRPC_CLIENT_TLS_CACERT", "--grpc-client-ca-file"),
            ("GRPC_CLIENT_TLS_SAN", "--grpc-allow-client-san"),
        ] {
            let Some(value) = values.text(variable) else { continue };
            if !values.is_on("GRPC_SERVER_USE_TLS") {
                self.remark(variable, "has no effect while GRPC_SERVER_USE_TLS is off");
            } else if variable == "GRPC_CLIENT_TLS_SAN" && !has_authority {
                self.remark(variable, "has no effect without GRPC_CLIENT_TLS_CACERT");
            } else {
                self.set(flag, value);
            }
        }
    }

    fn switches(&mut self, values: &Values<'_>) {
        for (variable, flag) in [("SHADOW_MODE", "--shadow-mode"), ("QUOTA_MODE", "--quota-mode")] {
            if values.is_on(variable) {
                self.flag(flag);
            }
        }
        if values.is_on("STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT") {
            let what = "always so in Tidegate: a rejected request takes nothing";
            self.remark("STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", what);
        }
    }

    fn answers(&mut self, values: &Values<'_>) {
        if values.is_on("LIMIT_RESPONSE_HEADERS_ENABLED") {
            self.set("--headers", "x-ratelimit");
            let what = "callers get X-RateLimit-Limit, X-RateLimit-Remaining and X-RateLimit-Reset, \
                whatever the names were";
            self.remark("LIMIT_RESPONSE_HEADERS_ENABLED", what);
        }
        if values.is_on("RESPONSE_DYNAMIC_METADATA") {
            let what = "they have other fields: the domain, the rules met, those that reject, and the \
                rules' own metadata";
            self.remark("RESPONSE_DYNAMIC_METADATA", what);
        }
        if values.is_off("RESPONSE_DYNAMIC_METADATA") {
            self.set("--dynamic-metadata", "off");
        }
    }

    fn traces(&mut self, values: &Values<'_>) {
        if !values.is_on("TRACING_ENABLED") {
            return;
        }
        let names = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];
        let told = names.into_iter().find_map(|name| Some((name, values.text(name)?)));
        let endpoint = told.and_then(|(_, endpoint)| collector(endpoint));
        if let (Some((name, _)), None) = (told, &endpoint) {
            let what = "it is not http://HOST:PORT: put the collector's host in place of OTEL_HOST; a \
                password goes into OTEL_EXPORTER_OTLP_HEADERS";
            self.before(name, what);
        }
        let host = if told.is_some() { "OTEL_HOST" } else { "localhost" };
        let default = || format!("http://{host}:{OTLP_GRPC_PORT}");
        self.set("--otlp-endpoint", endpoint.unwrap_or_else(default));
        self.set("--otlp-sample", values.text("TRACING_SAMPLING_RATE").unwrap_or("1"));
        if values.text("TRACING_EXPORTER_PROTOCOL") != Some("grpc") {
            let what = "spans go by gRPC here, not by HTTP: let the collector listen for OTLP over \
                gRPC where --otlp-endpoint says";
            self.before("TRACING_ENABLED", what);
        }
    }

    fn log(&mut self, values: &Values<'_>) {
        match values.text("LOG_LEVEL") {
            None => {}
            Some("panic" | "fatal") => self.set("--log", "error"),
            Some("warning") => self.set("--log", "warn"),
            Some(level) => self.set("--log", level),
        }
        if let Some(format) = values.text("LOG_FORMAT") {
            self.set("--log-format", format);
        }
    }
}

/// The folder in which envoyproxy/ratelimit reads limits files.
fn folder(values: &Values<'_>) -> PathBuf {
    let root = values.text("RUNTIME_ROOT").unwrap_or("/srv/runtime_data/current");
    let sub = values.text("RUNTIME_SUBDIRECTORY").unwrap_or_default();
    let app = values.text("RUNTIME_APPDIRECTORY").unwrap_or("config");
    // Joining an absolute path would drop the root.
    let parts = [sub, app].map(|part| part.trim_matches('/'));
    let parts = parts.iter().filter(|part| !part.is_empty());
    parts.fold(PathBuf::from(root), |path, part| path.join(Path::new(part)))
}

/// An age as the value of a flag: at least 1 ms unless it is 0, which means no maximum age.
fn spelled(age: Duration) -> String {
    let ms = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
    if age.is_zero() { "0".to_owned() } else { period::format(ms.max(1)) }
}

/// The address of a collector for gRPC, made from one for HTTP by removing the path and port 4318.
/// `None` if the address has more parts.
fn collector(endpoint: &str) -> Option<String> {
    let with_scheme = if endpoint.contains("://") { "" } else { "http://" };
    let uri: Uri = format!("{with_scheme}{endpoint}").parse().ok()?;
    let (scheme, authority) = (uri.scheme_str()?, uri.authority()?);
    if !["http", "https"].contains(&scheme) || authority.as_str().contains('@') {
        return None;
    }
    let default = if scheme == "https" { 443 } else { OTLP_GRPC_PORT };
    let port = match authority.port_u16() {
        Some(OTLP_HTTP_PORT) => OTLP_GRPC_PORT,
        port => port.unwrap_or(default),
    };
    Some(format!("{scheme}://{}:{port}", authority.host()))
}
