//! Refuses requests that a page in somebody's browser may have sent without their knowledge.
//!
//! A page of any site can make a browser send requests to this port, if the browser reaches it. Browsers
//! tell where a request comes from: `Origin` and `Sec-Fetch-Site`. Requests that change something must
//! come from the same site, or from no browser.
//!
//! A site can also let its own name point to this machine's address. To the browser the port then
//! belongs to that site, which may read its pages. So pages with values are shown only under a name that
//! nobody can own in public DNS: an address, one word, or a name of a private network. Other names must
//! be listed in `--http-hosts`.

use std::net::{Ipv4Addr, Ipv6Addr};

use http::header::{HOST, HeaderName, ORIGIN};
use http::{HeaderMap, Method};

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Ends of names that public DNS does not have.
const PRIVATE: [&str; 4] = [".internal", ".local", ".localhost", ".svc"];

/// Pages that show names and values, not just whether the service works.
const WITH_VALUES: [&str; 2] = ["/limits", "/top"];

/// Why a request is refused.
const OTHER_SITE: &str = "requests from pages of other sites are refused\n";
/// The same, about the name of the service.
const UNKNOWN_HOST: &str =
    "this page is shown under private names and addresses, and under the names in --http-hosts\n";

/// Why the request is refused, if it is. `hosts` are further names of the service.
pub fn refusal(
    method: &Method,
    path: &str,
    headers: &HeaderMap,
    hosts: &[String],
) -> Option<&'static str> {
    let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    let is_read = matches!(*method, Method::GET | Method::HEAD);
    let origin = text(ORIGIN).filter(|_| !is_read);
    let host = text(HOST).unwrap_or_default();
    if !is_read {
        let is_foreign =
            text(SEC_FETCH_SITE).is_some_and(|site| !matches!(site, "same-origin" | "none"));
        let other = |origin: &str| origin.split_once("://").is_none_or(|(_, from)| from != host);
        if is_foreign || origin.is_some_and(other) {
            return Some(OTHER_SITE);
        }
    }
    let tells = origin.is_some() || WITH_VALUES.contains(&path);
    (tells && !is_known(name_of(host), hosts)).then_some(UNKNOWN_HOST)
}

/// The host without its port.
fn name_of(host: &str) -> &str {
    let end = match host.rfind(']') {
        Some(end) => end + 1,
        None => host.find(':').unwrap_or(host.len()),
    };
    &host[..end]
}

fn is_known(name: &str, hosts: &[String]) -> bool {
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    let in_brackets = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
    let is_address = name.parse::<Ipv4Addr>().is_ok()
        || in_brackets.is_some_and(|name| name.parse::<Ipv6Addr>().is_ok());
    // A request without a name is of no browser.
    is_address
        || !name.contains('.')
        || PRIVATE.iter().any(|end| name.ends_with(end))
        || hosts.iter().any(|host| name.eq_ignore_ascii_case(host))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn refused(method: &Method, path: &str, headers: &[(HeaderName, &'static str)]) -> bool {
        let headers: HeaderMap = headers
            .iter()
            .map(|(name, value)| (name.clone(), HeaderValue::from_static(value)))
            .collect();
        refusal(method, path, &headers, &["limits.example.com".to_owned()]).is_some()
    }

    #[test]
    fn a_post_from_a_page_of_another_site_is_refused() {
        let host = (HOST, "127.0.0.1:8080");
        for (from, is_refused) in [
            (vec![], false),
            (vec![(ORIGIN, "http://127.0.0.1:8080")], false),
            (vec![(ORIGIN, "http://127.0.0.1:9999")], true),
            (vec![(ORIGIN, "https://evil.example")], true),
            (vec![(ORIGIN, "null")], true),
            (vec![(SEC_FETCH_SITE, "same-origin")], false),
            (vec![(SEC_FETCH_SITE, "none")], false),
            (vec![(SEC_FETCH_SITE, "same-site")], true),
            (vec![(SEC_FETCH_SITE, "cross-site")], true),
        ] {
            let headers = [std::slice::from_ref(&host), &from[..]].concat();
            assert_eq!(refused(&Method::POST, "/json", &headers), is_refused, "{from:?}");
            assert!(!refused(&Method::GET, "/metrics", &headers), "{from:?}");
        }
    }

    #[test]
    fn pages_with_values_are_shown_under_private_and_known_names_only() {
        for (host, is_known) in [
            ("127.0.0.1:8080", true),
            ("[::1]:8080", true),
            ("localhost:8080", true),
            ("tidegate", true),
            ("tidegate.limits.svc:8080", true),
            ("tidegate.limits.svc.cluster.local", true),
            ("ip-10-0-0-1.ec2.internal", true),
            ("LIMITS.example.com:8080", true),
            ("limits.example.com.", true),
            ("evil.example:8080", false),
            ("127.0.0.1.evil.example", false),
            ("limits.example.com.evil.example", false),
        ] {
            for path in ["/top", "/limits"] {
                assert_eq!(refused(&Method::GET, path, &[(HOST, host)]), !is_known, "{host}");
            }
            assert!(!refused(&Method::GET, "/healthz", &[(HOST, host)]), "{host}");
            assert!(!refused(&Method::POST, "/json", &[(HOST, host)]), "{host}");
        }
        let rebound = [(HOST, "evil.example"), (ORIGIN, "http://evil.example")];
        assert!(refused(&Method::POST, "/json", &rebound));
    }
}
