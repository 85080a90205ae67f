//! The only parser of callers' data: messages become a [`Request`], or an error that names the
//! field. What is past here is within its bounds.

use std::fmt;

use crate::decide::Mode;
use crate::limit::{Algorithm, HITS_MAX, Limit, LimitSpec};
use crate::proto::envoy::extensions::common::ratelimit::v3 as envoy;
use crate::proto::envoy::service::ratelimit::v3::RateLimitRequest;
use crate::proto::envoy::r#type::v3::RateLimitUnit;
use crate::proto::tidegate::v1 as api;

/// How much a request may bring.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Descriptors a request.
    pub descriptors_max: usize,
    /// Entries a descriptor.
    pub entries_max: usize,
    /// Bytes a domain, key or value.
    pub text_bytes_max: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { descriptors_max: 256, entries_max: 32, text_bytes_max: 4_096 }
    }
}

/// One request, within its bounds.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// Names the limits file.
    pub domain: String,
    /// The dimensions asked about.
    pub descriptors: Vec<Descriptor>,
}

/// One dimension: a path of entries.
#[derive(Clone, Debug, PartialEq)]
pub struct Descriptor {
    /// Key and value, as the configuration nests them.
    pub entries: Vec<(String, String)>,
    /// At most [`HITS_MAX`]; 0 only asks.
    pub hits: u64,
    /// What happens with the hits.
    pub mode: Mode,
    /// A limit that the request brings, in place of the configured ones.
    pub limit: Option<Limit>,
}

/// The caller's fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestError {
    /// Where in the message.
    pub field: String,
    /// What is wrong there, and what is allowed.
    pub message: String,
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

impl std::error::Error for RequestError {}

fn refuse<T>(field: impl Into<String>, message: impl Into<String>) -> Result<T, RequestError> {
    Err(RequestError { field: field.into(), message: message.into() })
}

impl Request {
    /// Reads a check of Tidegate's own API.
    ///
    /// # Errors
    /// Names the field that is missing or out of bounds.
    pub fn from_check(
        message: api::CheckRateLimitRequest,
        bounds: &Bounds,
    ) -> Result<Self, RequestError> {
        let mode = if message.refund { Mode::Refund } else { Mode::Take };
        let default_hits = u64::from(message.hits.max(1));
        Self::from_api(message.domain, message.descriptors, (default_hits, mode), bounds)
    }

    /// Reads a question for quotas, which is tested as one hit and takes none.
    ///
    /// # Errors
    /// Names the field that is missing or out of bounds.
    pub fn from_quota(
        message: api::GetQuotaRequest,
        bounds: &Bounds,
    ) -> Result<Self, RequestError> {
        let mut request =
            Self::from_api(message.domain, message.descriptors, (0, Mode::Peek), bounds)?;
        request.descriptors.iter_mut().for_each(|descriptor| descriptor.hits = 0);
        Ok(request)
    }

    fn from_api(
        domain: String,
        descriptors: Vec<api::Descriptor>,
        (hits, mode): (u64, Mode),
        bounds: &Bounds,
    ) -> Result<Self, RequestError> {
        let descriptor = |descriptor: api::Descriptor| {
            let entries = descriptor.entries.into_iter().map(|entry| (entry.key, entry.value));
            Descriptor {
                entries: entries.collect(),
                hits: descriptor.hits.unwrap_or(hits).min(HITS_MAX),
                mode,
                limit: None,
            }
        };
        let descriptors = descriptors.into_iter().map(descriptor).collect();
        Self { domain, descriptors }.within(bounds)
    }

    /// Reads a request of Envoy's rate limit service.
    ///
    /// # Errors
    /// Names the field that is missing or out of bounds, or the override's.
    pub fn from_envoy(message: RateLimitRequest, bounds: &Bounds) -> Result<Self, RequestError> {
        let default_hits = u64::from(message.hits_addend.max(1));
        let mut descriptors = Vec::with_capacity(message.descriptors.len());
        for (at, descriptor) in message.descriptors.into_iter().enumerate() {
            let limit = descriptor.limit.map(|limit| override_limit(limit, at)).transpose()?;
            let entries = descriptor.entries.into_iter().map(|entry| (entry.key, entry.value));
            descriptors.push(Descriptor {
                entries: entries.collect(),
                hits: descriptor.hits_addend.unwrap_or(default_hits).min(HITS_MAX),
                mode: if descriptor.is_negative_hits { Mode::Refund } else { Mode::Take },
                limit,
            });
        }
        Self { domain: message.domain, descriptors }.within(bounds)
    }

    /// The request, if it keeps the bounds.
    ///
    /// # Errors
    /// Names the field that does not.
    pub fn within(self, bounds: &Bounds) -> Result<Self, RequestError> {
        check_text("domain", &self.domain, bounds)?;
        if self.domain.is_empty() {
            return refuse("domain", "must not be empty");
        }
        if self.descriptors.is_empty() {
            return refuse("descriptors", "must hold at least one");
        }
        let (count, max) = (self.descriptors.len(), bounds.descriptors_max);
        if count > max {
            return refuse("descriptors", format!("{count} are over the most, {max}"));
        }
        for (at, descriptor) in self.descriptors.iter().enumerate() {
            descriptor.check(at, bounds)?;
        }
        Ok(self)
    }
}

impl Descriptor {
    fn check(&self, at: usize, bounds: &Bounds) -> Result<(), RequestError> {
        let (count, max) = (self.entries.len(), bounds.entries_max);
        if count == 0 {
            return refuse(format!("descriptors[{at}].entries"), "must hold at least one");
        }
        if count > max {
            let message = format!("{count} are over the most, {max}");
            return refuse(format!("descriptors[{at}].entries"), message);
        }
        for (entry, (key, value)) in self.entries.iter().enumerate() {
            let name = |part: &str| format!("descriptors[{at}].entries[{entry}].{part}");
            if key.is_empty() {
                return refuse(name("key"), "must not be empty");
            }
            check_text(name("key"), key, bounds)?;
            check_text(name("value"), value, bounds)?;
        }
        Ok(())
    }
}

fn check_text(field: impl Into<String>, text: &str, bounds: &Bounds) -> Result<(), RequestError> {
    if text.len() > bounds.text_bytes_max {
        let message = format!("{} bytes are over the most, {}", text.len(), bounds.text_bytes_max);
        return refuse(field, message);
    }
    Ok(())
}

/// Milliseconds of a unit, of those that an override can name.
fn unit_ms(unit: i32) -> Option<u64> {
    const DAY_MS: u64 = 86_400_000;
    match RateLimitUnit::try_from(unit).ok()? {
        RateLimitUnit::Unknown => None,
        RateLimitUnit::Second => Some(1_000),
        RateLimitUnit::Minute => Some(60_000),
        RateLimitUnit::Hour => Some(3_600_000),
        RateLimitUnit::Day => Some(DAY_MS),
        RateLimitUnit::Month => Some(30 * DAY_MS),
        RateLimitUnit::Year => Some(365 * DAY_MS),
    }
}

fn override_limit(
    limit: envoy::rate_limit_descriptor::RateLimitOverride,
    at: usize,
) -> Result<Limit, RequestError> {
    let field = |name: &str| format!("descriptors[{at}].limit.{name}");
    let Some(unit_ms) = unit_ms(limit.unit) else {
        let message = format!(
            "{} is not one of SECOND (1), MINUTE (2), HOUR (3), DAY (4), MONTH (5), YEAR (6)",
            limit.unit
        );
        return refuse(field("unit"), message);
    };
    let multiplier = limit.unit_multiplier.unwrap_or(1);
    if multiplier == 0 {
        return refuse(field("unit_multiplier"), "must be at least 1");
    }
    let spec = LimitSpec {
        algorithm: Algorithm::FixedWindow,
        hits: u64::from(limit.requests_per_unit),
        period_ms: unit_ms.saturating_mul(u64::from(multiplier)),
        ..LimitSpec::default()
    };
    Limit::new(&spec)
        .map_err(|error| RequestError { field: field("unit_multiplier"), message: error.message })
}
