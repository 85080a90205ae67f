//! What is shipped beside the program, judged by the programs that it is written for.

mod chart;
mod compose;
mod dashboard;
mod drawing;
mod image;
mod rules;
#[cfg(target_os = "linux")]
mod unit;
