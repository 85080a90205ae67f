//! The messages and services of `proto/`, as generated.
#![allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic)]
#![allow(clippy::missing_errors_doc, clippy::wildcard_enum_match_arm, clippy::too_many_lines)]

pub mod tidegate {
    pub mod admin {
        pub mod v1 {
            tonic::include_proto!("tidegate.admin.v1");
        }
    }
    pub mod v1 {
        tonic::include_proto!("tidegate.v1");
    }
}

pub mod envoy {
    pub mod config {
        pub mod core {
            pub mod v3 {
                tonic::include_proto!("envoy.config.core.v3");
            }
        }
    }
    pub mod extensions {
        pub mod common {
            pub mod ratelimit {
                pub mod v3 {
                    tonic::include_proto!("envoy.extensions.common.ratelimit.v3");
                }
            }
        }
    }
    pub mod service {
        pub mod ratelimit {
            pub mod v3 {
                tonic::include_proto!("envoy.service.ratelimit.v3");
            }
        }
    }
    pub mod r#type {
        pub mod v3 {
            tonic::include_proto!("envoy.r#type.v3");
        }
    }
}

/// The descriptors of all of `proto/`, for reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

/// The longest `google.protobuf.Duration`: 315,576,000,000 s, 10,000 years.
pub(crate) const DURATION_MAX_MS: u64 = 315_576_000_000_000;

/// Milliseconds, at most [`DURATION_MAX_MS`]: periods are shorter, and answers hold no longer wait.
#[allow(clippy::cast_possible_wrap)]
pub(crate) fn duration(ms: u64) -> prost_types::Duration {
    let nanos = i32::try_from(ms % 1_000 * 1_000_000).unwrap_or(0);
    prost_types::Duration { seconds: (ms / 1_000) as i64, nanos }
}
