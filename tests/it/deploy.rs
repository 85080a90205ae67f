//! What is shipped beside the program, judged by the programs that it is written for.
#![allow(clippy::unwrap_used, clippy::expect_used)] // a test's helpers may end the test

mod chart;
mod compose;
mod dashboard;
mod drawing;
mod image;
mod rules;
#[cfg(target_os = "linux")]
mod unit;
