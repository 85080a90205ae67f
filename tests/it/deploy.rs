//! The files of `deploy/`, checked by the programs that read them.

mod chart;
mod compose;
mod dashboard;
mod drawing;
mod image;
mod rules;
mod settings;
mod sizes;
#[cfg(target_os = "linux")]
mod unit;
