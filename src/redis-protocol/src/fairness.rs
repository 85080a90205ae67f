//! Lets other tasks of a thread run while replies keep coming.
//!
//! tokio makes a task yield after 128 reads of its socket. fred takes replies from the buffer between
//! two reads, a thousand short ones from each, so a server that sends replies without end would keep
//! the thread for seconds. Therefore each reply counts as a read.

use std::task::{Context, Poll, Waker};

use tokio::task::coop::{has_budget_remaining, poll_proceed};

/// Takes one unit of the running task's budget. When none is left, the next read of a socket yields.
pub(crate) fn spend() {
    if has_budget_remaining()
        && let Poll::Ready(unit) = poll_proceed(&mut Context::from_waker(Waker::noop()))
    {
        unit.made_progress();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_use_up_the_budget_of_a_task_and_nothing_else() {
        spend();
        assert!(has_budget_remaining(), "outside of a task there is no budget");
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let left = runtime.block_on(async {
            (0..1_000).take_while(|_| has_budget_remaining()).map(|_| spend()).count()
        });
        assert!((64..1_000).contains(&left), "{left} replies");
    }
}
