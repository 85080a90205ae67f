//! The program: arguments → settings → command → exit code.
//!
//! Every command returns a `Result` whose error is a text for people; this file prints it and
//! chooses the exit code. It has no other logic, so that tests can run the commands of the library
//! without a process.

use std::process::ExitCode;

use tidegate::command::{
    self, Completion, bench, check, complete, migrate, query, reset, serve, simulate, top,
};
use tidegate::settings::{Cli, Command};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Exit codes of `query`; `bench` ends with 0 or 2, other commands with 0 or 1. `check` has mistakes to
/// show where `query` is rejected.
const REJECTED: u8 = 1;
const NO_DECISION: u8 = 2;

/// Added to the number of the signal that stopped a command, as shells do.
const STOPPED: u8 = 128;

fn main() -> ExitCode {
    match Cli::read().command {
        Command::Serve(settings) => match serve::run(*settings) {
            Ok(()) => ExitCode::SUCCESS,
            Err(failure) => {
                failure.print();
                ExitCode::FAILURE
            }
        },
        Command::Simulate(settings) => ended(simulate::run(&settings), 1),
        Command::Check(settings) => decided(check::run(&settings), 1),
        Command::Query(settings) => decided(query::run(&settings), NO_DECISION),
        Command::Reset(settings) => finish(reset::run(&settings), 1),
        Command::Top(settings) => finish(top::run(&settings), 1),
        Command::Bench(settings) => ended(bench::run(&settings), NO_DECISION),
        Command::Migrate(settings) => finish(migrate::run(&settings), 1),
        Command::Completions(settings) => finish(complete::completions(&settings), 1),
        Command::Man(settings) => finish(complete::man(&settings), 1),
    }
}

fn decided(result: Result<bool, String>, failure: u8) -> ExitCode {
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(REJECTED),
        Err(error) => finish(Err(error), failure),
    }
}

fn ended(result: Result<Completion, String>, failure: u8) -> ExitCode {
    match result {
        Ok(Completion::Stopped(signal)) => ExitCode::from(STOPPED + signal),
        Ok(Completion::Complete) => ExitCode::SUCCESS,
        Err(error) => finish(Err(error), failure),
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
