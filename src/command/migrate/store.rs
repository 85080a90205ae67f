//! The flags of the store: the Redis topology, addresses and credentials.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use super::translation::Translation;
use super::values::{Mistakes, Values};
use crate::settings::StoreUrl;

/// Placeholder for an unknown server. Without `--store`, each replica would silently count on its
/// own.
const UNKNOWN: &str = "redis://REDIS_HOST:6379";

/// Placeholder for the path of the password file.
const PASSWORD_FILE: &str = "/run/secrets/redis-password";

/// Characters that a URL parameter need not escape.
const PARAMETER: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.');

/// The servers of one `REDIS_URL`.
struct Servers {
    /// The URL for `--store`, without a password.
    url: String,
    /// `user:password` or `password`, if the URL contained it.
    auth: Option<String>,
}

/// Adds the flags.
pub(super) fn add(values: &Values<'_>, translation: &mut Translation, mistakes: &mut Mistakes) {
    let servers = match servers(values) {
        Ok(Ok(servers)) => servers,
        Ok(Err((variable, why))) => {
            translation
                .before(variable, format!("{why}: put the host of a Redis in place of REDIS_HOST"));
            return translation.set("--store", UNKNOWN);
        }
        Err(message) => return values.refuse("REDIS_URL", &message, mistakes),
    };
    // The URL is checked by the parser of `--store`; the message repeats no part of the URL.
    if let Err(error) = servers.url.parse::<StoreUrl>() {
        return values.refuse("REDIS_URL", &format!("{error}{}", allowed(values)), mistakes);
    }
    let is_encrypted = servers.url.starts_with("rediss");
    translation.set("--store", servers.url);
    credentials(values, servers.auth.as_deref(), translation);
    certificates(values, is_encrypted, translation, mistakes);
}

/// The servers; or the variable that names no reachable server, and the reason.
///
/// # Errors
/// `REDIS_URL` is malformed.
fn servers(values: &Values<'_>) -> Result<Result<Servers, (&'static str, &'static str)>, String> {
    if values.text("BACKEND_TYPE") == Some("memcache") {
        return Ok(Err(("BACKEND_TYPE", "memcache is not supported as a store")));
    }
    let socket = values.text("REDIS_SOCKET_TYPE");
    let tls = values.is_on("REDIS_TLS") || socket == Some("tls");
    let scheme = if tls { "rediss" } else { "redis" };
    let Some(url) = values.text("REDIS_URL") else {
        return Ok(Err((
            "REDIS_URL",
            "it is not set, which means a Unix socket in envoyproxy/ratelimit",
        )));
    };
    match values.text("REDIS_TYPE") {
        Some("CLUSTER") => {
            Ok(Ok(several(scheme, url, |scheme, hosts| format!("{scheme}-cluster://{hosts}"))))
        }
        Some("SENTINEL") => sentinels(scheme, url).map(Ok),
        _ if !is_path(url) && socket == Some("unix") => Err(
            "is not a path, while REDIS_SOCKET_TYPE is unix; allowed is a path, or tcp as the type"
                .into(),
        ),
        _ if url.contains(',') => {
            Err("has several hosts; set REDIS_TYPE to CLUSTER or SENTINEL, or leave one HOST:PORT"
                .into())
        }
        _ if !is_path(url) => {
            Ok(Ok(several(scheme, url, |scheme, hosts| format!("{scheme}://{hosts}"))))
        }
        _ if matches!(socket, None | Some("unix")) => {
            Ok(Err(("REDIS_URL", "Tidegate reaches Redis over TCP, not over a Unix socket")))
        }
        _ => Err("is a path, and REDIS_SOCKET_TYPE is not unix; allowed is HOST:PORT".into()),
    }
}

fn is_path(url: &str) -> bool {
    url.starts_with(['/', '@', '.'])
}

/// One host, or several separated by commas. The client library of envoyproxy/ratelimit also
/// accepts `redis://USER:PASSWORD@HOST:PORT/DB` for each.
fn several(scheme: &str, hosts: &str, url: impl FnOnce(&str, &str) -> String) -> Servers {
    let (mut scheme, mut auth) = (scheme, None);
    let hosts = hosts.split(',').map(str::trim).filter(|host| !host.is_empty());
    let hosts = hosts.map(|host| {
        let rest = match host.split_once("://") {
            Some(("rediss", rest)) => {
                scheme = "rediss";
                rest
            }
            Some(("redis", rest)) => rest,
            _ => host,
        };
        let Some((own, host)) = rest.rsplit_once('@') else { return rest };
        let own = percent_decode_str(own).decode_utf8_lossy().into_owned();
        auth = auth.take().or(Some(own).filter(|own| !own.is_empty() && own != ":"));
        host
    });
    let hosts = hosts.collect::<Vec<_>>().join(",");
    Servers { url: url(scheme, &hosts), auth }
}

/// The name of the master comes first. Credentials before an `@` apply to the sentinels and to the
/// servers that they manage.
fn sentinels(scheme: &str, url: &str) -> Result<Servers, String> {
    let (name, hosts) = url
        .split_once(',')
        .filter(|(name, _)| !name.trim().is_empty())
        .ok_or_else(|| "names no sentinels; allowed is MASTER,HOST:PORT,HOST:PORT,…".to_owned())?;
    let name = utf8_percent_encode(name.trim(), PARAMETER);
    Ok(several(scheme, hosts, |scheme, hosts| {
        format!("{scheme}-sentinel://{hosts}?service={name}")
    }))
}

fn allowed(values: &Values<'_>) -> &'static str {
    match values.text("REDIS_TYPE") {
        Some("CLUSTER") => "; allowed is HOST:PORT,HOST:PORT,…",
        Some("SENTINEL") => "; allowed is MASTER,HOST:PORT,HOST:PORT,…",
        _ => "; allowed is HOST:PORT",
    }
}

fn credentials(values: &Values<'_>, in_url: Option<&str>, translation: &mut Translation) {
    let own = values.text("REDIS_AUTH").map(|auth| ("REDIS_AUTH", auth));
    let in_url = in_url.map(|auth| ("REDIS_URL", auth));
    if let Some((variable, auth)) = own.or(in_url) {
        let user = auth.split_once(':').map(|(user, _)| user).filter(|user| !user.is_empty());
        if let Some(user) = user {
            translation.set("--store-user", user);
        }
        translation.set("--store-password-file", PASSWORD_FILE);
        let what = format!(
            "write its password into {PASSWORD_FILE}, or leave that flag out and set \
                TIDEGATE_STORE_PASSWORD"
        );
        translation.before(variable, what);
    }
    if values.has("REDIS_SENTINEL_AUTH") && values.text("REDIS_TYPE") == Some("SENTINEL") {
        let what = "leave --store out, and set TIDEGATE_STORE to its value with \
            &sentinelPassword=PASSWORD at the end (&sentinelUsername=USER too, if there is one)";
        translation.before("REDIS_SENTINEL_AUTH", what);
    }
}

fn certificates(
    values: &Values<'_>,
    is_encrypted: bool,
    translation: &mut Translation,
    mistakes: &mut Mistakes,
) {
    let files = [
        ("REDIS_TLS_CACERT", "--store-ca-file"),
        ("REDIS_TLS_CLIENT_CERT", "--store-cert-file"),
        ("REDIS_TLS_CLIENT_KEY", "--store-key-file"),
    ];
    let set = files.map(|(name, flag)| (name, flag, values.text(name)));
    let [_, (cert, _, has_cert), (key, _, has_key)] = set;
    if has_cert.is_some() != has_key.is_some() {
        let (one, other) = if has_cert.is_some() { (cert, key) } else { (key, cert) };
        return values.refuse(
            one,
            &format!("is set, and {other} is not; both are needed"),
            mistakes,
        );
    }
    for (name, flag, path) in set {
        match path {
            Some(path) if is_encrypted => translation.set(flag, path),
            Some(_) => translation.remark(name, "has no effect while REDIS_TLS is off"),
            None => {}
        }
    }
}
