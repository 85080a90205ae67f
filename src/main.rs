//! The program: arguments → settings → command → exit code.
//!
//! Every command returns a `Result` whose error is a text for people; this file prints it and
//! chooses the exit code. It has no other logic, so that tests can run the commands of the library
//! without a process.

use std::process::ExitCode;

use clap::Parser;
use tidegate::command::{self, bench, check, migrate, query, reset, serve, simulate, top};
use tidegate::settings::{Cli, Command};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Exit codes of `query`; `bench` ends with 0 or 2, other commands with 0 or 1.
const REJECTED: u8 = 1;
const NO_DECISION: u8 = 2;

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Serve(settings) => match serve::run(*settings) {
            Ok(()) => ExitCode::SUCCESS,
            Err(failure) => {
                anstream::eprintln!("{failure}");
                ExitCode::FAILURE
            }
        },
        Command::Simulate(settings) => finish(simulate::run(&settings), 1),
        Command::Check(settings) => match check::run(&settings) {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => ExitCode::FAILURE,
            Err(error) => finish(Err(error), 1),
        },
        Command::Query(settings) => match query::run(&settings) {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => ExitCode::from(REJECTED),
            Err(error) => finish(Err(error), NO_DECISION),
        },
        Command::Reset(settings) => finish(reset::run(&settings), 1),
        Command::Top(settings) => finish(top::run(&settings), 1),
        Command::Bench(settings) => finish(bench::run(&settings), NO_DECISION),
        Command::Migrate(settings) => finish(migrate::run(&settings), 1),
    }
}

fn finish(result: Result<(), String>, failure: u8) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            command::print_failure(&error);
            ExitCode::from(failure)
        }
    }
}
